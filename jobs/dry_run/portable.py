"""A census as one Parquet file, which a dry run reads with neither a warehouse nor Spark.

One row for each distinct subject, cluster and what headers hold on to: `subject`, `cluster`,
`carries`, `messages`, `bytes`. Files of older releases have no `carries`. As in the tables of a
warehouse the texts are always UTF-8, and `subject_raw` and `cluster_raw` hold the bytes where they
are not. What else is known stands in the metadata of the file, as JSON under `KEY`. Beside it
stands a checksum of that JSON and of the rows: a file that was damaged on its way is
refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import product
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from jobs.dry_run.tried import tried
from jobs.files.output import whole
from nats_transform.errors import InvalidConfig
from nats_transform.kernel import compile_mappings
from nats_transform.kernel.digest import digest_batch
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import ANY_TAIL, ANY_TOKEN, SEPARATOR, decode, intersection
from nats_transform.mappings.symbolic import (
    Symbol,
    computes_with,
    filter_of,
    filter_of_results,
    is_cut,
    results,
)
from nats_transform.mappings.transform import Transform
from nats_transform.migration import DryRun, Question
from nats_transform.migration.tables.census import CensusPart, added_up

KEY = b"nats-transform.census"
CHECKSUM = b"nats-transform.checksum"
TEXTS = ("subject", "cluster")
CARRIES = "carries"
COUNTS = ("messages", "bytes")
_PARQUET = b"PAR"  # so each such file starts, an encrypted one too
_NO_CENSUS = (
    "no census; make one with `nats-transform census export --stream NAME --out census.parquet`"
)
BATCH_ROWS = 2**18  # at once, and those with the same subject as the last
_MOST_SHAPES = 10_000  # of subjects on their way through streams
_MOST = 2.0**56  # messages, and bytes: what is computed with them fits into 64 bits


class About(BaseModel):
    """The description of a census in its file.

    Attributes:
        format: the version of the format. It goes up when older files can no longer be read.
        stream: the stream whose subjects were counted.
        days: the days of the archive.
        first, last: the times of the first and the last message (UTC).
        redacted: the positions, from 1 on, of the tokens that are hashes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = Field(default=1, ge=1, le=1)
    stream: str
    days: tuple[date, ...]
    first: AwareDatetime
    last: AwareDatetime
    redacted: tuple[Annotated[int, Field(ge=1)], ...] = ()


@dataclass(frozen=True, slots=True)
class Live:
    """What a server counted.

    Attributes:
        counted: the streams whose messages it counted.
        whole: those of them of which every subject was counted.
    """

    server: str
    counted: tuple[str, ...]
    whole: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PortableCensus:
    """A census in memory.

    Attributes:
        rows: a row for each `subject`, `cluster` and `carries` (bytes), with `messages` and
            `bytes`, in order.
        live: the streams that a server counted; None if an archive was counted.
    """

    about: About
    rows: pa.Table
    live: Live | None = None

    @property
    def archived(self) -> tuple[str, ...]:
        """The streams of which every subject was counted."""
        return (self.about.stream,) if self.live is None else self.live.whole

    def dry_run(self, question: Question, out: Path | None = None) -> DryRun:
        """What a candidate would do to these subjects; `out` is a folder for the tables."""
        return tried(self._parts(), question, out)

    def _parts(self) -> Iterator[CensusPart]:
        """The rows, some at a time: what mappings make of them takes more memory than they do."""
        subjects, start = self.rows["subject"], 0
        while True:
            end = min(start + BATCH_ROWS, len(subjects))
            while 0 < end < len(subjects) and subjects[end] == subjects[end - 1]:
                end += 1
            yield added_up(self.rows.slice(start, end - start))
            if end == len(subjects):
                return
            start = end

    @property
    def knows_headers(self) -> bool:
        """Whether somebody looked at the headers of all messages."""
        return not self.rows[CARRIES].null_count

    @property
    def clusters(self) -> tuple[str, ...]:
        """The names of the clusters."""
        return tuple(
            sorted(decode(raw) for raw in pc.unique(self.rows["cluster"]).to_pylist() if raw)
        )

    @property
    def hours(self) -> float:
        """The time from the first message to the last, at least one hour."""
        return max(1.0, (self.about.last - self.about.first).total_seconds() / 3600)


def summed(rows: pa.Table) -> pa.Table:
    """One row for each subject, cluster and what headers hold on to, all as bytes, sorted."""
    sums = added_up(rows).rows
    return pa.table(
        {name: sums[name].cast(pa.binary()) for name in (*TEXTS, CARRIES)}
        | {name: sums[name] for name in COUNTS}
    )


def write_census(census: PortableCensus, path: Path, readable: Callable[[bytes], str]) -> None:
    """Writes a file, all of it or nothing.

    Args:
        path: the file; one that is there is replaced.
        readable: the text that stands for some bytes.

    Raises:
        InvalidConfig: the file cannot be written.
    """
    columns = {}
    for name in TEXTS:
        values = census.rows[name].to_pylist()
        texts = [None if value is None else readable(value) for value in values]
        pairs = zip(values, texts, strict=True)
        raw = [None if text is None or text.encode() == value else value for value, text in pairs]
        columns[name] = pa.array(texts, pa.string())
        columns[f"{name}_raw"] = pa.array(raw, pa.binary())
    columns |= {name: census.rows[name].combine_chunks() for name in COUNTS}
    columns[CARRIES] = census.rows[CARRIES].combine_chunks().cast(pa.string())
    about = census.about.model_dump_json().encode()
    table = pa.table(columns).replace_schema_metadata(
        {KEY: about, CHECKSUM: _checksum(about, census.rows)}
    )
    try:
        with whole(path) as part:
            pq.write_table(table, part, compression="zstd")
    except OSError as error:
        raise InvalidConfig("census-unwritable", str(path), reason=error.strerror) from error


def read_census(path: Path, stream: str = "") -> PortableCensus:
    """The census in a file.

    Args:
        stream: the stream that the census must be of; "" allows any.

    Raises:
        InvalidConfig: it is no such file, or it is of another stream.
    """
    try:
        with path.open("rb") as start:
            is_parquet = start.read(len(_PARQUET)) == _PARQUET
        if not is_parquet:
            raise InvalidConfig("census-not-parquet", str(path), cure=_NO_CENSUS)
        file = pq.ParquetFile(path, page_checksum_verification=True)
        metadata = file.schema_arrow.metadata or {}
        description = metadata.get(KEY)
        if description is None:
            raise InvalidConfig("census-other-parquet", str(path), cure=_NO_CENSUS)
        about = About.model_validate_json(description)
        columns = [*TEXTS, *COUNTS, *(f"{name}_raw" for name in TEXTS), CARRIES]
        table = file.read(columns=columns)
        rows = {
            name: pc.coalesce(table[f"{name}_raw"], table[name].cast(pa.binary())) for name in TEXTS
        } | {name: table[name].cast(pa.int64()) for name in COUNTS}
        for name in COUNTS:
            counts = rows[name].to_numpy()
            if rows[name].null_count or (counts < 0).any() or counts.sum(dtype=float) > _MOST:
                raise KeyError("a row has no count, or an impossible one")
        if CARRIES in table.schema.names:
            rows[CARRIES] = table[CARRIES].cast(pa.binary())
        stored = pa.table(rows)
        # Releases before 0.2 wrote no checksum.
        if CHECKSUM in metadata and metadata[CHECKSUM] != _checksum(description, stored):
            raise KeyError("the rows or metadata changed after they were written")
    except OSError as error:
        raise InvalidConfig(
            "census-unreadable", str(path), reason=error.strerror or error
        ) from error
    except (pa.ArrowException, KeyError, UnicodeDecodeError, ValidationError) as error:
        raise InvalidConfig("census-damaged", str(path)) from error
    if stream and about.stream != stream:
        raise InvalidConfig("census-of-other-stream", str(path), stream=about.stream, wanted=stream)
    return PortableCensus(about, summed(stored))


def _checksum(about: bytes, rows: pa.Table) -> bytes:
    """The same for any order of the rows."""
    # Older releases wrote no `carries`; those of a live census are null.
    names = (*TEXTS, *COUNTS, CARRIES) if CARRIES in rows.schema.names else (*TEXTS, *COUNTS)
    digest = digest_batch(rows, names)
    return f"{xxhash.xxh64_hexdigest(about)} {digest.rows} {digest}".encode()


def check_redaction(census: PortableCensus, question: Question, path: Path) -> None:
    """Refuses a question that looks into a token which the census has as a hash.

    Raises:
        InvalidConfig: a source or a filter names such a token, or a function computes with it.
    """
    redacted = {position - 1 for position in census.about.redacted}
    for what, position in _seen(question, redacted) if redacted else ():
        raise InvalidConfig("census-redacted", str(path), what=what, position=position + 1)


def _seen(question: Question, redacted: Collection[int]) -> Iterator[tuple[str, int]]:
    """The filters and functions that look at a redacted token, each with its position."""
    # What subjects can look like, with the positions of the redacted tokens in them.
    shapes: list[tuple[str, dict[int, int]]] = []
    for mappings in (question.current, question.candidate):
        for mapping in mappings.mappings:
            shapes.append((mapping.source, {position: position for position in redacted}))
            yield from _literals(f"the mapping of {mapping.source}", mapping.source, shapes[-1:])
            for transform in mapping.transforms:
                what = f"a function in {transform.destination}"
                yield from ((what, p) for p in computes_with(transform, redacted))
                shapes.append(_shape(transform, redacted))
    there = question.leaf_node.mappings if question.leaf_node is not None else ()
    on = "on the other side of a leaf node connection"
    filters = [*question.filters, *((f"a mapping {on}", mapping.source) for mapping in there)]
    behind = [transform for mapping in there for transform in mapping.transforms]
    filters += ((f"a result {on}", filter_of_results(transform)) for transform in behind)
    behind += question.network.transforms
    done, most = 0, len(shapes) + _MOST_SHAPES
    for _ in behind:  # a message passes each of them once
        reached, done = shapes[done:], len(shapes)
        for (shape, places), transform in product(reached, behind):
            if intersection(shape, transform.source) is None:
                continue
            what = f"a function in {transform.destination}"
            yield from ((what, places[place]) for place in computes_with(transform, places))
            made, kept = _shape(transform, places)
            further = made, {place: places[before] for place, before in kept.items()}
            if further in shapes:
                continue
            if len(shapes) == most:  # nobody looks at what is behind the rest
                what = "the way through the streams, which has too many forms,"
                yield from ((what, place) for place in redacted)
                return
            shapes.append(further)
    yield from (
        literal
        for what, filter in filters
        for literal in _literals(f"{what}, with the filter {filter},", filter, shapes)
    )


def _literals(
    what: str, filter: str, shapes: Iterable[tuple[str, dict[int, int]]]
) -> Iterator[tuple[str, int]]:
    tokens = filter.split(SEPARATOR)
    for shape, positions in shapes:
        if intersection(filter, shape) is None:
            continue
        for place, position in positions.items():
            if place < len(tokens) and tokens[place] not in (ANY_TOKEN, ANY_TAIL):
                yield what, position


def _shape(transform: Transform, redacted: Collection[int]) -> tuple[str, dict[int, int]]:
    """What a transform makes, and where the redacted tokens are in it."""
    places: dict[int, int] = {}
    tokens, spread = results(transform), 1
    for place, token in enumerate(tokens):
        if is_cut(token):
            spread = token.most  # what follows a token in pieces can be at any of these places
        elif isinstance(token, Symbol) and (first := token.position) is not None:
            kept = [p for p in redacted if p == first or (token.most > 1 and p > first)]
            places |= {place + p - first + n: p for p in kept for n in range(spread)}
    return filter_of(tokens), places


def messages_by_source(
    census: PortableCensus, mappings: AccountMappings
) -> Counter[tuple[str, str | None]]:
    """How many messages of the census each mapping takes, by its source and their cluster."""
    program = compile_mappings(mappings)
    counts: Counter[tuple[str, str | None]] = Counter()
    for batch in census.rows.to_batches(max_chunksize=2**16):
        clusters = batch["cluster"]
        states = program.run(batch["subject"], cluster=clusters).states
        rows = pa.table({"state": states, "cluster": clusters, "messages": batch["messages"]})
        for row in rows.group_by(["state", "cluster"]).aggregate([("messages", "sum")]).to_pylist():
            source, cluster = program.states[row["state"]].source, row["cluster"]
            if source is not None:
                name = None if cluster is None else decode(cluster)
                counts[source, name] += row["messages_sum"]
    return counts
