"""The job `export`: messages of an archive as a stream backup, which `nats stream restore` loads.

Sequences, times, headers and payloads stay as they were archived (schedules in headers can be
rewritten, see `jobs.jetstream.schedules`); the subjects are those that the
mappings gave, or the archived ones for a way back. Messages that the mappings lost or filtered
leave gaps, as deleted messages do.

The messages are looked at once before anything is written: which subjects there are, and whether
the filters of consumers still choose the same messages. Then they are written in the order of their
sequences, with bounded memory, and what was written is read back and compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from jobs.errors import AccountingError, ArchiveError, JobError, WarehouseError, text_of
from jobs.files.selection import Selection
from jobs.files.storage import Storage
from jobs.jetstream import schedules, wire
from jobs.jetstream.answers import Config
from jobs.jetstream.schedules import Rewriting
from jobs.progress import advance, step
from jobs.settings.export import ExportSettings
from jobs.sources.backup import open_backup
from jobs.sources.new_backup import NewBackup
from jobs.warehouse import versions
from jobs.warehouse.accounting import Archived
from jobs.warehouse.rows import new_subjects
from jobs.warehouse.specs import MESSAGES, QUARANTINED, TRANSFORMED, TableSpec
from jobs.warehouse.tables import count_rows, open_table
from nats_transform import AccountMappings
from nats_transform.backup.adapt import adapted_config, adapted_filters
from nats_transform.backup.archive import read_head, read_messages
from nats_transform.backup.consumers import parse_consumer, with_filters, without
from nats_transform.backup.writer import ArchiveWriter
from nats_transform.config import mapping_version
from nats_transform.config.load import load_mappings
from nats_transform.digest import Digest
from nats_transform.errors import InvalidBackup, InvalidStream
from nats_transform.kernel.coverage import Coverage
from nats_transform.kernel.covering import Covering
from nats_transform.kernel.digest import digest_batch
from nats_transform.mappings.subject import subscribes
from nats_transform.streams.consumer import filters_of
from nats_transform.streams.stream import parse_stream
from nats_transform.untrusted import few_values
from nats_transform.words import plural

if TYPE_CHECKING:
    from jobs.dry_run.simulated import SimulatedMessages

_SHORT = ("seq", "subject", "mapped_subject")
_WHOLE = ("seq", "ts_ns", "subject", "mapped_subject", "headers", "headers_raw", "data")
_AT_ONCE = 16_384  # messages
_EXAMPLES = 3


class Finding(BaseModel):
    """Something that the backup does not have as it was, or that the user should know.

    Attributes:
        code: a word for programs.
        message: a sentence for people.
    """

    code: str
    message: str


class ExportResult(BaseModel):
    """What was exported.

    Attributes:
        stream: the stream whose messages were exported.
        backup: where the backup is.
        name: the name that the stream has when it is restored.
        subjects: the subjects of its configuration.
        messages, bytes, first_seq, last_seq: the numbers that the server will show.
        gaps: how many sequences between the first and the last have no message.
        left_out: how many messages of each fate are not in the backup.
        schedules: how many messages have a schedule (header Nats-Schedule).
        rewritten: how many headers have a subject that was rewritten, by the header's name.
        digest: the digest over sequence, time, subject, header block and payload of the messages.
        mapping_version: the version of the mapping; null if subjects are as they were archived.
        consumers: the consumers in the backup.
        file_bytes: the size of the archive file.
        findings: what the backup does not have as it was.
    """

    stream: str
    backup: str
    name: str
    subjects: list[str]
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    gaps: int
    left_out: dict[str, int]
    schedules: int
    rewritten: dict[str, int]
    digest: str
    mapping_version: str | None
    consumers: list[str]
    file_bytes: int
    findings: list[Finding]

    def fails(self, level: str) -> bool:
        """Whether there is a finding; `finding` is the only level."""
        return bool(self.findings)


def export(settings: ExportSettings) -> ExportResult:
    """Write the backup, and say what is in it.

    Raises:
        JobError: the messages cannot be exported as asked, or the place cannot be written.
        WarehouseError: the tables cannot be read.
    """
    return _Export(settings).run()


@dataclass
class _Consumer:
    """A consumer, and whether its filters choose the same messages under their new subjects."""

    described: Mapping[str, Any]
    filters: list[str]
    new_filters: list[str]
    old: Covering
    new: Covering
    differences: int = 0


class _Export:
    def __init__(self, settings: ExportSettings) -> None:
        self.settings = settings
        self.findings: list[Finding] = []
        self.archived = Archived.of(open_table(settings.warehouse, MESSAGES), settings.stream)
        fates = None
        if settings.simulated is not None:
            self.rows: Selection | SimulatedMessages = self._simulated(settings.simulated)
        elif settings.messages == "transformed":
            fates = {"mapped", "unmatched"} | ({"invalid"} if settings.invalid == "keep" else set())
            self.rows = self._selected(TRANSFORMED, fates)
        else:
            self.rows = self._selected(MESSAGES, None)
        counts = sorted(self.rows.fates.items())
        self.left_out = {fate: n for fate, n in counts if fates and fate not in fates}
        self.total = self.rows.messages - sum(self.left_out.values())
        self.schedules = 0
        self.rewriting = Rewriting()

    def _simulated(self, stream: str) -> SimulatedMessages:
        from jobs.dry_run.simulated import SimulatedMessages  # it imports Spark

        self.columns = [name for name in _WHOLE if name != "mapped_subject"]
        self.storage = Storage.of(open_table(self.settings.warehouse, MESSAGES))
        warehouse, archive = self.settings.warehouse, self.settings.stream
        return SimulatedMessages(warehouse, archive, stream, self.columns)

    def _selected(self, spec: TableSpec, fates: set[str] | None) -> Selection:
        table = open_table(self.settings.warehouse, spec)
        self.storage = Storage.of(table)
        there = set(spec.rows.names)
        self.columns = [name for name in _WHOLE if name in there]
        rows = Selection(table, self.settings.stream, None, fates, self.columns, spec)
        self._check_rows(rows)
        return rows

    def _check_rows(self, rows: Selection) -> None:
        stream = self.settings.stream
        if not rows.messages and not self.archived.covered:
            raise ArchiveError("stream-not-archived", stream=stream)
        if rows.messages != self.archived.messages:
            others, cure = "", "every day first"
            if apart := count_rows(self.settings.warehouse, QUARANTINED, stream):
                others = f", and {apart:,} {'is' if apart == 1 else 'are'} in quarantine"
                cure = "every day with a mapping that passes the checks"
            raise JobError(
                "export-untransformed",
                stream=stream,
                messages=self.archived.messages,
                transformed=rows.messages,
                others=others,
                cure=cure,
            )
        if len(rows.versions) > 1:
            raise JobError("export-several-versions", stream=stream, versions=len(rows.versions))
        if self.settings.invalid == "refuse" and (count := rows.fates["invalid"]):
            raise JobError(
                "export-illegal-subjects",
                messages=plural(count, "message"),
                stream=stream,
                have="has" if count == 1 else "have",
            )

    # --- Before ----------------------------------------------------------------------------------

    def run(self) -> ExportResult:
        """Looks at everything, writes, reads back, publishes."""
        original, consumers = self._original()
        mappings = self._mappings()
        if self.settings.config is not None:
            config = _config(self.settings.config)
        else:
            config = dict(original) if mappings is None else adapted_config(original, mappings)
        self._rewrite(config, mappings)
        with_state = self._consumers(consumers, mappings)
        pending = np.unique([n for c in consumers.values() for n in _pending(c)]).astype(np.int64)
        gone = self._look(config, with_state, pending)
        kept = self._kept(with_state, gone)
        with NewBackup(self.settings.to_backup, self.storage) as folder:
            with step(f"writing {self.settings.stream}", self.total):
                state, digest = self._write(folder.content, config, kept)
            with step("reading the backup back", self.total):
                self._read_back(folder.content, state, digest)
            folder.publish({"config": config, "state": state})
            size = folder.size
        first, last = state["first_seq"], state["last_seq"]
        return ExportResult(
            stream=self.settings.stream,
            backup=self.settings.to_backup,
            name=str(config["name"]),
            subjects=list(config.get("subjects") or []),
            messages=state["messages"],
            bytes=state["bytes"],
            first_seq=first,
            last_seq=last,
            gaps=last - first + 1 - state["messages"],
            left_out=self.left_out,
            schedules=self.schedules,
            rewritten=self.rewriting.rewritten,
            digest=str(digest),
            mapping_version=next(iter(self.rows.versions), None),
            consumers=sorted(kept),
            file_bytes=size,
            findings=self.findings,
        )

    def _find(self, code: str, message: str) -> None:
        self.findings.append(Finding(code=code, message=message))

    def _original(self) -> tuple[dict[str, Any], Mapping[str, Mapping[str, Any]]]:
        """The configuration of the original stream, and its consumers."""
        path = self.settings.original
        if path is None:
            return {}, {}
        if not path.is_dir():
            return _config(path), {}
        backup = open_backup(path)
        had = Coverage.of([(backup.state["first_seq"], backup.state["last_seq"])])
        if (missing := had - self.archived.coverage) or self.archived.subject:
            examples = ", ".join(f"{a}-{b}" for a, b in missing.ranges[:_EXAMPLES]) or "none"
            self._find(
                "partial",
                f"the archive has a part of backup {path}: missing sequences {examples}, "
                f"subject filter {self.archived.subject or 'none'}",
            )
        if not backup.is_archive():
            self._find(
                "consumers",
                f"backup {path} is from a nats-server before 2.15, so its consumers are not "
                "taken over",
            )
            return backup.config, {}
        with _damage(str(path)), backup.content.open("rb") as file:
            documents = read_head(file).consumers
            return backup.config, {n: parse_consumer(n, d) for n, d in documents.items()}

    def _mappings(self) -> AccountMappings | None:
        """The mappings that the messages were transformed with; None if they were not."""
        if not self.rows.versions:
            return None
        (version,), settings = self.rows.versions, self.settings
        if settings.mapping is None:
            is_own = settings.config is not None and settings.original is None
            if is_own and not settings.rewrite_headers:
                return None  # nothing to adapt
            try:
                return versions.find(settings.warehouse, version).mappings
            except (versions.UnknownVersion, WarehouseError) as error:
                raise JobError("version-without-mappings", version=version[:12]) from error
        mappings = load_mappings(settings.mapping, settings.account)
        if mapping_version(mappings, settings.seed) != version:
            raise JobError(
                "export-other-mapping",
                mapping=settings.mapping,
                version=version[:12],
                stream=settings.stream,
            )
        return mappings

    def _rewrite(self, config: Mapping[str, Any], mappings: AccountMappings | None) -> None:
        """Finds the new headers of schedules, if they are to be rewritten."""
        if not self.settings.rewrite_headers or mappings is None:
            return
        filters, name = config.get("subjects") or (), str(config["name"])

        def fault(subject: str) -> str | None:
            is_stored = any(subscribes(filter, subject) for filter in filters)
            return None if is_stored else f"stream {name} does not capture it"

        table = open_table(self.settings.warehouse, TRANSFORMED)
        everything = Selection(table, self.settings.stream, None, None, schedules.COLUMNS)
        rewriting = self.rewriting = Rewriting.of(
            everything.rows(), self.rows.rows(["seq"]), mappings, fault
        )
        if rewriting.faults:
            some = [f"sequence {seq}: {why}" for seq, why in rewriting.faults.items()][:_EXAMPLES]
            what = plural(len(rewriting.faults), "schedule")
            raise JobError("export-headers-fixed", what=what, stream=name, examples="; ".join(some))
        if rewriting.fired:
            self._find(
                "schedules",
                f"{plural(rewriting.fired, 'schedule')} fired, or was replaced, and would fire "
                "again after a restore: archive a new backup, which no longer has it",
            )

    def _consumers(
        self, consumers: Mapping[str, Mapping[str, Any]], mappings: AccountMappings | None
    ) -> dict[str, _Consumer]:
        if self.settings.gaps == "close" and consumers:
            self._find(
                "consumers", f"{len(consumers)} consumers are left out, because sequences are new"
            )
            return {}
        prepared = {}
        for name, described in consumers.items():
            filters = filters_of(described["config"])
            new = adapted_filters(filters, mappings) if mappings else filters
            prepared[name] = _Consumer(described, filters, new, Covering(filters), Covering(new))
        return prepared

    def _look(
        self, config: Mapping[str, Any], consumers: Mapping[str, _Consumer], pending: Any
    ) -> Any:
        """Checks all subjects; returns the pending sequences that no exported message has."""
        captured, uncaptured = Covering(config.get("subjects") or []), 0
        has_subjects = bool(config.get("subjects"))
        there = np.zeros(len(pending), bool)
        faults: list[str] = []
        # A subject transform of a stream stores illegal subjects, and a restore takes any subject.
        keeps = self.settings.invalid == "keep"
        is_literal = lru_cache(100_000)(wire.is_literal)
        for rows in self.rows.rows([name for name in _SHORT if name in self.columns]):
            old, new = rows.column("subject").view(pa.binary()), new_subjects(rows)
            for subject in new.unique().to_pylist():
                if not keeps and len(faults) < _EXAMPLES and not is_literal(subject):
                    faults.append(str(wire.fault(subject)))
            if has_subjects:
                uncaptured += int(np.count_nonzero(~captured(new)))
            for consumer in consumers.values():
                if consumer.filters:
                    differ = consumer.old(old) != consumer.new(new)
                    consumer.differences += int(np.count_nonzero(differ))
            there |= np.isin(pending, rows.column("seq").to_numpy())
        if faults:
            raise JobError(
                "export-original-subjects", stream=self.settings.stream, faults="; ".join(faults)
            )
        if uncaptured:
            self._find(
                "subjects",
                f"{plural(uncaptured, 'message has', 'messages have')} a subject that the "
                f"exported stream does not capture ({', '.join(config['subjects'])}): a restore "
                "keeps it, but the stream won't take more like it",
            )
        return set(pending[~there].tolist())

    def _kept(
        self, consumers: Mapping[str, _Consumer], gone: set[int]
    ) -> dict[str, Mapping[str, Any]]:
        """The consumers that go into the backup."""
        kept: dict[str, Mapping[str, Any]] = {}
        for name, consumer in consumers.items():
            if consumer.differences:
                self._find(
                    "consumer",
                    f"consumer {name} is left out: no filter chooses the messages that "
                    f"{', '.join(consumer.filters)} chose ({', '.join(consumer.new_filters)} "
                    f"differs in {consumer.differences:,}); create it again",
                )
                continue
            kept[name] = without(with_filters(consumer.described, consumer.new_filters), gone)
        return kept

    # --- Writing ---------------------------------------------------------------------------------

    def _write(
        self, path: Path, config: Mapping[str, Any], consumers: Mapping[str, Mapping[str, Any]]
    ) -> tuple[dict[str, Any], Digest]:
        digest, keeps = Digest(), self.settings.gaps == "keep" and self.settings.simulated is None
        last = self.archived.end if keeps else 0
        with path.open("wb") as file:
            writer = ArchiveWriter(file, consumers, config.get("storage") == "memory")
            for messages in self._messages():
                writer.write(*messages.columns)
                digest += digest_batch(messages)
                advance(len(messages))
            return writer.close(last), digest

    def _messages(self) -> Iterator[pa.RecordBatch]:
        """The messages as the archive has them."""
        closes, following = self.settings.gaps == "close", self.archived.first_seq or 1
        for batch in self.rows.in_order():
            for at in range(0, len(batch), _AT_ONCE):
                rows = batch.slice(at, _AT_ONCE)
                sequences = rows.column("seq")
                if closes:
                    sequences = pa.array(np.arange(following, following + len(rows)))
                    following += len(rows)
                self.schedules += schedules.schedules_in(rows.column("headers"))
                blocks = self.rewriting.blocks(rows.column("seq"), _blocks(rows))
                columns = [sequences, rows.column("ts_ns"), new_subjects(rows), blocks]
                data = pc.fill_null(rows.column("data"), b"")
                yield pa.RecordBatch.from_arrays([*columns, data], names=_NAMES)

    def _read_back(self, path: Path, state: Mapping[str, Any], digest: Digest) -> None:
        read = Digest()
        with _damage(self.settings.to_backup), path.open("rb") as file:
            head = read_head(file)
            for batch in read_messages(file, head.messages):
                columns = [pa.array(batch.sequences), pa.array(batch.times)]
                columns += [batch.subjects(), batch.headers(), batch.data()]
                read += digest_batch(pa.RecordBatch.from_arrays(columns, names=_NAMES))
                advance(len(batch))
        if read != digest or read.rows != self.total or head.state != state:
            raise AccountingError(
                "export-read-back-differs",
                backup=self.settings.to_backup,
                rows=digest.rows,
                digest=digest,
                rows_read=read.rows,
                digest_read=read,
            )


_NAMES = ["seq", "ts_ns", "subject", "headers", "data"]


def _config(path: Path) -> dict[str, Any]:
    """A stream's configuration: alone, or as `nats stream info --json` prints it."""
    try:
        text = path.read_bytes()
        few_values(text)
        document = json.loads(text)
        is_object = isinstance(document, dict)
        config: dict[str, Any] = document.get("config", document) if is_object else document
        Config.model_validate(config)
        parse_stream(config)
    except (OSError, ValueError, RecursionError, InvalidStream) as error:
        why = f"{text_of(error)}; give what `nats stream info NAME --json` prints"
        raise JobError("export-not-a-stream", path=path, reason=why) from error
    return config


def _blocks(rows: pa.RecordBatch) -> pa.Array:
    """The header blocks, as they were stored; empty where there are none."""
    headers = rows.column("headers")
    pairs = headers.flatten()
    raw = rows.column("headers_raw")
    if not len(pairs):
        return pc.fill_null(raw, b"")
    texts = [pc.fill_null(pairs.field(name).view(pa.binary()), b"") for name in ("name", "value")]
    lines = pc.binary_join_element_wise(*texts, b": ")
    sizes = pc.fill_null(pc.list_value_length(headers), 0).to_numpy()
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), lines), b"\r\n")
    blocks = pc.binary_join_element_wise(b"NATS/1.0", joined, b"\r\n", b"\r\n")
    usual = pc.if_else(pa.array(sizes > 0), blocks, pa.scalar(b"", pa.binary()))
    return pc.coalesce(raw, usual)


def _pending(consumer: Mapping[str, Any]) -> Iterator[int]:
    """The sequences that a consumer waits for, or has delivered again."""
    for part in ("pending", "redelivered"):
        yield from consumer["state"].get(part) or {}


@contextmanager
def _damage(where: str) -> Iterator[None]:
    try:
        yield
    except InvalidBackup as error:
        raise ArchiveError("backup-damaged", backup=where, reason=error) from error
