"""The job `erase`: messages leave every table, and nothing brings them back.

A tombstone in the accounts of the stream comes first. It names sequences, which an ingest skips
from then on. Then one commit for each table replaces the files that have the messages, in all
branches and tags, and removes all other snapshots. Then the files that were needed before are
deleted. Each step can be done again, so a run that died is finished by the next one.

A job that works meanwhile on messages that are erased cannot publish what it makes: the files that
it read, or those that it replaces, are no longer those of the table.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pydantic import BaseModel
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotsUpdate
from pyiceberg.table.update.snapshot import ManageSnapshots

from jobs.errors import ArchiveError, ConcurrentWrite, WarehouseError
from jobs.files.commit import arrow_schema, data_file
from jobs.files.engine import run, session_for
from jobs.files.erasure import Match, Matches, Old, Rewrite, Rewritten
from jobs.files.intact import check_files
from jobs.files.scan import Scan
from jobs.files.storage import Storage
from jobs.progress import step
from jobs.session import Spark
from jobs.settings.erase import EraseSettings
from jobs.warehouse import staging
from jobs.warehouse.accounting import Archived, Tombstone
from jobs.warehouse.folder import YOUNG, delete, files_of, filesystem_of, needed, unused
from jobs.warehouse.paths import NAMESPACE
from jobs.warehouse.rows import Total
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import (
    PROPERTY,
    Branch,
    attempts,
    data_files,
    digest_properties,
    forget_digests,
    open_catalog,
    open_table,
    partitions_of,
    sequence_ends,
    stream_and_day,
    unless_overtaken,
    warehouse_errors,
)
from jobs.warehouse.transaction import FrugalTransaction
from nats_transform.kernel.coverage import Coverage
from nats_transform.words import plural

ELSEWHERE = (
    "the stream on the server, its mirrors and backups",
    "streams that `replay` filled and folders that `export` wrote",
    "dumps that were ingested, and the same messages under another stream's name",
    "files that `census export`, `dry-run --out` and `--report` wrote",
    "Data Docs and run logs of Dagster",
    "copies of the warehouse",
)
"""Where messages of an archive can be that a warehouse knows nothing of."""


class Cleaned(BaseModel):
    """What was done to a table.

    Attributes:
        rewritten: how many data files were replaced or removed.
        deleted: how many files were deleted, those of old snapshots among them.
        waiting: how many more files may have the messages: jobs that run or were stopped have not
            finished them.
        waiting_until: when the last of them is old enough to be deleted.
    """

    rewritten: int = 0
    deleted: int = 0
    waiting: int = 0
    waiting_until: datetime | None = None


class EraseResult(BaseModel):
    """What was erased, or would be.

    Attributes:
        stream: the stream.
        messages: how many messages.
        days: how many of each day.
        sequences: the sequences that an ingest skips from now on.
        tombstones: what stays of the messages; empty if nothing was erased.
        tables: what was done to each table, for the last tombstone.
        not_erased: where the messages can be besides.
        refused: why they are still there, or may be, or that no message matches; null if they are
            gone.
    """

    stream: str
    messages: int
    days: dict[date, int]
    sequences: str
    tombstones: tuple[Tombstone, ...] = ()
    tables: dict[str, Cleaned] = {}
    not_erased: tuple[str, ...] = ELSEWHERE
    refused: str | None = None


def erase(spark: Spark, settings: EraseSettings) -> EraseResult:
    """Erases messages, and finishes erasures of the stream that were stopped.

    Raises:
        ArchiveError: the warehouse has no such stream, or there is nothing to finish.
        ConcurrentWrite: other jobs kept getting in first; run again.
        WarehouseError: the tables cannot be read or written, or a file was changed after being
            published.
    """
    stream, matches = settings.stream, Matches()
    table = open_table(settings.warehouse, MESSAGES, create=settings.yes)
    archived = Archived.of(table, stream)
    if not (archived.erased or data_files(table, stream)):
        raise Archived.none(table, stream)
    named = None if settings.range is None else Coverage.of([settings.range])
    if settings.has_filter:
        match = Match(settings.subject, settings.pair, named)
        files = data_files(table, stream)
        check_files(spark, table, files)  # one that changed may hide messages that are meant
        scan = Scan.of(table, MESSAGES, files, match.columns)
        matches = scan.sum(spark, match, f"looking for messages of {stream}")
    elif not archived.unfinished:
        raise ArchiveError("no-unfinished-erasure", stream=stream)
    new = (named or matches.sequences) - archived.erased_coverage
    unmatched = None if matches.days else _unmatched(settings, archived, named)
    if not settings.yes or (unmatched and not archived.unfinished):
        return EraseResult(
            stream=stream,
            messages=matches.days.total(),
            days=dict(sorted(matches.days.items())),
            sequences="" if unmatched else str(new),
            refused=unmatched or "nothing was erased: add --yes to erase; it can't be undone",
        )
    if new and not unmatched:
        stone = Tombstone(
            name=uuid.uuid4().hex,
            sequences=str(new),
            by=settings.by,
            reason=settings.reason,
            at=datetime.now(UTC),
        )
        _record(table, stream, lambda archived: archived.bury(stone))
    result = _finish(spark, table, settings)
    return result.model_copy(update={"refused": result.refused or unmatched})


def _unmatched(settings: EraseSettings, archived: Archived, named: Coverage | None) -> str | None:
    """Why nothing matches, as far as that can be a typo: a done request must have been done."""
    if not settings.has_filter:
        return None
    if named is not None:
        # An ingest skips those that are not archived yet; all are erased after an earlier run.
        is_meant = bool(named - archived.coverage) or not named - archived.erased_coverage
    else:
        # A tombstone does not have the filter, so its reason tells that it is of this request.
        is_meant = any(
            stone.reason == settings.reason and (stone.messages or not stone.is_finished)
            for stone in archived.erased
        )
    if is_meant:
        return None
    (option,) = (name for name in ("subject", "seq", "header") if getattr(settings, name))
    return f"no archived message matches --{option}: check it, and the name of the stream"


def _record(table: Table, stream: str, change: Callable[[Archived], Archived]) -> None:
    """Changes the accounts of a stream."""
    for _ in attempts(MESSAGES.name):
        changed = change(Archived.of(table.refresh(), stream))
        with contextlib.suppress(ConcurrentWrite):
            # With a snapshot: a commit of properties alone could be overwritten unseen.
            staging.publish(
                table,
                staging.Staged("", ()),
                stream,
                replace=False,
                properties={"job": "erase", "stream": stream},
                table_properties={Archived.key(stream): changed.model_dump_json()},
            )
            return


def _finish(spark: Spark, table: Table, settings: EraseSettings) -> EraseResult:
    """Does what is left to do for each tombstone."""
    catalog, stream = open_catalog(settings.warehouse), settings.stream
    names = [stone.name for stone in Archived.of(table, stream).unfinished]
    cleaned, waiting = dict[str, Cleaned](), dict[str, Cleaned]()

    def stones() -> list[Tombstone]:
        erased = Archived.of(table.refresh(), stream).erased
        return [stone for stone in erased if stone.name in names]

    with warehouse_errors(settings.warehouse):
        # Messages first, because jobs make the rows of all other tables of them.
        tables = sorted(name for _, name in catalog.list_tables(NAMESPACE))
        for number in range(len(names)):
            for name in sorted(tables, key=lambda name: name != MESSAGES.name):
                there = catalog.load_table((NAMESPACE, name))
                stone = stones()[number]
                cleaned[name] = _Cleaning(spark, there, stream, stone, settings.no_other_jobs).run()
            waiting |= {name: its for name, its in cleaned.items() if its.waiting}
    if not waiting:
        _record(table, stream, lambda archived: archived.finished(names))
    days = sum((Counter(stone.days) for stone in stones()), Counter[date]())
    return EraseResult(
        stream=stream,
        messages=days.total(),
        days=dict(sorted(days.items())),
        sequences=str(Coverage.of(r for stone in stones() for r in stone.coverage.ranges)),
        tombstones=tuple(stones()),
        tables={name: its for name, its in cleaned.items() if its != Cleaned()},
        refused=_waits(stream, waiting.values()) if waiting else None,
    )


def _waits(stream: str, waiting: Collection[Cleaned]) -> str:
    files = plural(sum(its.waiting for its in waiting), "unfinished file")
    until = max(its.waiting_until for its in waiting if its.waiting_until is not None)
    return (
        f"{files} of jobs that run or were stopped may have messages: run `nats-transform erase "
        f"--stream {stream} --yes` again after {until:%Y-%m-%d %H:%M} UTC; or now, with "
        "--no-other-jobs, if no job is running"
    )


@dataclass
class _Cleaning:
    """One table, which messages leave for a tombstone.

    Attributes:
        is_alone: whether no other job uses the warehouse.
    """

    spark: Spark
    table: Table
    stream: str
    stone: Tombstone
    is_alone: bool

    def __post_init__(self) -> None:
        names, owners = self.table.schema().column_names, partitions_of(self.table)
        self.erased = self.stone.coverage
        self.folder = staging.new_folder(self.table, self._prefix)
        # The table `messages`, or one with the same rows. Those of other tables with subjects were
        # counted or simulated: all of them go, and jobs make them again when they need them.
        self.has_messages = owners[:1] == ["stream"] and "seq" in names
        self.has_subjects = bool(owners) and "subject" in names
        self.columns = [*owners[:1], "seq" if self.has_messages else "day"]
        self.days = None if owners[:1] != ["stream"] else list(self.stone.days)

    @property
    def _prefix(self) -> str:
        """How the folders of this erasure begin; each run has its own."""
        return f"erase-{self.stone.name}-"

    def run(self) -> Cleaned:
        """Takes the messages out of the table, and deletes the files that had them."""
        table, name = self.table, self.table.name()[-1]
        if not (self.has_messages or self.has_subjects):
            return Cleaned()
        done = dict[str, Rewritten | None]()
        with step(f"erasing messages of {self.stream} from {name}"):
            for _ in attempts(name):
                listed = {entry.path for entry in files_of(table)}
                with unless_overtaken(table):
                    files, old = self._state()
                    while todo := [old[path] for path in old.keys() - done]:
                        done |= self._rewrite(todo)
                        files, old = self._state()  # others may have published meanwhile
                    left = {path: new for path in old if (new := done[path]) is not None}
                    before = self._publish(files, old, left, done)
                    return self._sweep(listed, before, len(left))
        raise AssertionError  # attempts() has raised

    def _state(self) -> tuple[dict[str, list[DataFile]], dict[str, DataFile]]:
        """The files that may have the messages now: of each branch and tag, and by their paths."""
        refs = self.table.refresh().metadata.refs
        files = {ref: self._files(Branch(self.table, ref)) for ref in refs}
        return files, {file.file_path: file for of_ref in files.values() for file in of_ref}

    def _files(self, state: Table) -> list[DataFile]:
        """The files that may have the messages."""
        if not self.has_messages:
            return data_files(state, self.stream, self.days)
        # Where the metadata lacks the ends, a file may have any sequence.
        files = [(file, sequence_ends(state, file)) for file in data_files(state, self.stream)]
        return [file for file, ends in files if not ends or self.erased & Coverage.of([ends])]

    def _rewrite(self, files: Sequence[DataFile]) -> dict[str, Rewritten | None]:
        paths = [file.file_path for file in files]
        if not self.has_messages:
            return dict.fromkeys(paths, Rewritten(None, Total()))
        # The new files get hashes, which would vouch for rows that somebody changed.
        check_files(self.spark, self.table, files)
        is_archive = self.table.name()[-1] == MESSAGES.name
        work = Rewrite(
            Storage.of(self.table),
            self.folder,
            arrow_schema(self.table.schema()),
            self.erased,
            tuple(MESSAGES.rows.names) if is_archive else (),
        )
        day_of = stream_and_day(self.table)
        olds = [Old(file.file_path, day_of(file)[1]) for file in files]
        session = session_for(self.spark, sum(file.file_size_in_bytes for file in files))
        return dict(zip(paths, run(work, olds, session), strict=True))

    def _publish(
        self,
        files: Mapping[str, Sequence[DataFile]],
        old: Mapping[str, DataFile],
        left: Mapping[str, Rewritten],
        done: Mapping[str, Rewritten | None],
    ) -> TableMetadata:
        """One commit; gives the state before old snapshots were removed."""
        table = self.table
        written = [new.written for new in done.values() if new and new.written]
        hashes = {new.path.rpartition("/")[2]: new.digest for new in written}
        properties = digest_properties(self.folder, hashes)
        if table.name()[-1] == MESSAGES.name:
            total, day_of = defaultdict[date, Total](Total), stream_and_day(table)
            for path, its in left.items():
                total[day_of(old[path])[1]] += its.left
            accounts = Archived.of(table, self.stream)
            (stone,) = [its for its in accounts.erased if its.name == self.stone.name]
            changed = accounts.without(stone, total)
            properties[PROPERTY + Archived.key(self.stream)] = changed.model_dump_json()
        new = {p: data_file(table, it.written) if it.written else None for p, it in left.items()}
        about = {"job": "erase", "stream": self.stream, "tombstone": self.stone.name}
        return _replace_everywhere(table, files, new, about, properties)

    def _sweep(self, listed: Collection[str], before: TableMetadata, rewritten: int) -> Cleaned:
        """Deletes files that are not needed after the commit.

        Of those that were listed before it, no job can publish a list of files any more, because
        every branch has changed since. But data files may be those of a job that works on other
        messages.

        Args:
            listed: the paths of all files before the commit.
            before: the state with all snapshots.
        """
        table, now, replaced = self.table, datetime.now(UTC), set[str]()
        with contextlib.suppress(WarehouseError):  # another job deletes the same files
            replaced = needed(table, before)
        known = {*listed, *replaced}
        entries = [entry for entry in files_of(table) if entry.path in known]
        live = needed(table.refresh())
        with contextlib.suppress(CommitFailedException):  # `maintain` does it, too
            forget_digests(table, live)
        filesystem, lists = filesystem_of(f"{table.location()}/metadata/", table)
        deleted, waiting = 0, []
        for entry in unused(entries, live):
            is_known = entry.path in replaced or entry.path.startswith(lists)
            if not (is_known or f"/data/{self._prefix}" in entry.path):
                has_them = self._has_messages(filesystem, entry)
                if has_them is False:
                    continue
                if has_them is None and not self.is_alone and entry.mtime > now - YOUNG:
                    waiting.append(entry.mtime)
                    continue
            with contextlib.suppress(FileNotFoundError):
                delete(entry.path, table)
                deleted += 1
        return Cleaned(
            rewritten=rewritten,
            deleted=deleted,
            waiting=len(waiting),
            waiting_until=max(waiting) + YOUNG if waiting else None,
        )

    def _has_messages(self, filesystem: pafs.FileSystem, entry: pafs.FileInfo) -> bool | None:
        """Whether a data file has some of the messages; None if nobody can say."""
        try:
            with filesystem.open_input_file(entry.path) as opened, pq.ParquetFile(opened) as file:
                for rows in file.iter_batches(columns=self.columns):
                    is_ours = pc.equal(rows.column(self.columns[0]), self.stream)
                    ours = rows.filter(is_ours.fill_null(False)).column(self.columns[1])
                    if self.has_messages and self.erased.has(ours).any():
                        return True
                    days = set() if self.has_messages else set(ours.to_pylist())
                    if days and (self.days is None or not days.isdisjoint(self.days)):
                        # It was made of the messages if it is older than their tombstone.
                        return True if entry.mtime < self.stone.at else None
        except (OSError, pa.ArrowException, KeyError):
            return None
        return False


def _replace_everywhere(
    table: Table,
    files: Mapping[str, Sequence[DataFile]],
    new: Mapping[str, DataFile | None],
    properties: Mapping[str, str],
    table_properties: Mapping[str, str],
) -> TableMetadata:
    """Replaces files in all branches and tags, and removes every other snapshot.

    Each branch and tag gets a snapshot, so a commit that another job has prepared fails. Manifests
    of the new snapshots do not mention the files that left, not even as deleted.

    Args:
        files: by branch or tag, of which some are replaced.
        new: what takes the place of a file, by its path; None if nothing does.
        properties: the properties of the snapshots, without the prefix.
        table_properties: properties of the table to set in the same commit.

    Returns:
        The state with all snapshots that the table had, and those made on the way.

    Raises:
        CommitFailedException, ValueError: another job changed the table meanwhile.
    """
    about = {PROPERTY + name: value for name, value in properties.items()}
    refs = table.metadata.refs
    transaction = FrugalTransaction(table)
    # PyIceberg (0.12) keeps only the first requirement of a kind, unless they come together.
    heads = ({"ref": name, "snapshot-id": ref.snapshot_id} for name, ref in refs.items())
    transaction._stage((), tuple(AssertRefSnapshotId.model_validate(head) for head in heads))
    for name, ref in refs.items():
        is_tag = ref.snapshot_ref_type == SnapshotRefType.TAG
        branch = f"{name}.erase" if is_tag else name
        if is_tag:  # which no snapshot can be added to
            ManageSnapshots(transaction).create_branch(ref.snapshot_id, branch).commit()
        if old := [file for file in files[name] if file.file_path in new]:
            with transaction.update_snapshot(about, branch).overwrite() as snapshot:
                for file in old:
                    snapshot.delete_data_file(file)
                    if (instead := new[file.file_path]) is not None:
                        snapshot.append_data_file(instead)
        transaction.update_snapshot(about, branch).fast_append().commit()
        if is_tag:
            head = transaction.table_metadata.refs[branch].snapshot_id
            moved = ManageSnapshots(transaction).remove_tag(name).create_tag(head, name)
            moved.remove_branch(branch).commit()
    metadata = transaction.table_metadata
    newest = {ref.snapshot_id for ref in metadata.refs.values()}
    gone = [s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in newest]
    transaction._stage((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": gone}),))
    if table_properties:
        transaction.set_properties(dict(table_properties))
    transaction.commit_transaction()
    return metadata
