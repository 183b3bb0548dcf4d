"""How messages spread: over the partitions of a destination, and each key over destinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.audit.result import KeyStickiness, PartitionBalance
from jobs.audit.rows import Parts, Reading, Rows
from jobs.files.grouped import Grouping, grouped
from jobs.files.read import Task
from jobs.files.tokens import TokenAt
from nats_transform.audit import Period, is_audited
from nats_transform.audit.partitions import partitioned_ends
from nats_transform.kernel.counting import combinations, texts
from nats_transform.mappings.subject import encode

MOST_PARTITIONS = 1024
"""The balance of more partitions is not worth a row each."""

MOST_BALANCES = 50
"""Destinations whose partitions are counted."""

_End = tuple[str | None, str | None]


def partition_balances(rows: Rows, periods: Sequence[Period]) -> Iterator[PartitionBalance]:
    """The balance of the first `partition()`s whose place in the mapped subject is fixed.

    Args:
        rows: transformed messages.
    """
    every = (partitioned_ends(period.mappings, MOST_PARTITIONS) for period in periods)
    ends = [end for of_period in every for end in of_period if end.place > 0 and end.count > 1]
    ends = list(dict.fromkeys(ends))[:MOST_BALANCES]
    if not ends:
        return
    tokens: dict[_End, TokenAt] = {
        (end.end.source, end.end.destination): TokenAt(end.place) for end in ends
    }
    columns = ("mapping_source", "mapping_destination", "mapped_subject")
    counted = sum(rows.each(partial(_count_numbers, tokens), columns), Counter[Any]())
    for end in ends:
        source, destination = end.end.source, end.end.destination
        counts = tuple(counted[source, destination, n] for n in range(end.count))
        mean = sum(counts) / end.count
        yield PartitionBalance(
            source=source,
            destination=destination,
            partitions=end.count,
            counts=counts,
            busiest=max(counts) / mean if mean else 0.0,
        )


def _rows_of_ends(rows: pa.RecordBatch) -> Iterator[tuple[_End, pa.Array]]:
    """Each mapping and destination that a batch has, with which rows came to it."""
    sources, destinations = (texts(rows.column(f"mapping_{n}")) for n in ("source", "destination"))
    together = sources.numbers * len(destinations.values) + destinations.numbers
    for number in np.unique(together).tolist():
        source, destination = divmod(number, len(destinations.values))
        yield (
            (sources.values[source], destinations.values[destination]),
            pa.array(np.flatnonzero(together == number)),
        )


def _count_numbers(tokens: Mapping[_End, TokenAt], parts: Parts) -> Counter[Any]:
    """The messages of a task by mapping, destination and partition number."""
    counts: Counter[Any] = Counter()
    for _, rows in parts:
        for end, chosen in _rows_of_ends(rows):
            if end in tokens:
                numbers = tokens[end].of(rows.column("mapped_subject").take(chosen))
                for number in numbers.drop_null().value_counts().to_pylist():
                    counts[(*end, int(number["values"]))] += number["counts"]
    return counts


@dataclass(frozen=True, slots=True)
class Keyed:
    """An end of a mapping, by number, and which token of a subject, 1-based, is the key there."""

    source: str
    end: int
    place: int


_KeyedRows = Callable[[int, pa.RecordBatch], Iterator[tuple[Keyed, pa.Array]]]


def expected_keys(rows: Rows, periods: Sequence[Period], wildcard: int) -> Iterator[KeyStickiness]:
    """How many keys of each mapping with weights saw more than one end.

    Args:
        rows: transformed messages.
        wildcard: number of the source's wildcard that is the key.
    """
    places: dict[str, int] = {}
    ends: dict[str, int] = {"": 0}
    for mapping in (m for period in periods for m in period.mappings.mappings if is_audited(m)):
        if wildcard <= len(mapping.filter.wildcards):
            places[mapping.source] = mapping.filter.wildcards[wildcard - 1] + 1
        for share in mapping.ends():
            ends.setdefault(share.destination or "", len(ends))
    columns = ("mapping_source", "mapping_destination", "subject")
    return sticky(rows, columns, partial(_keyed_rows, places, ends), wildcard)


def _keyed_rows(
    places: dict[str, int], ends: dict[str, int], _: int, rows: pa.RecordBatch
) -> Iterator[tuple[Keyed, pa.Array]]:
    """The subjects of each end whose mapping has the key."""
    for (source, destination), chosen in _rows_of_ends(rows):
        if source in places:
            keyed = Keyed(source, ends[destination or ""], places[source])
            yield keyed, rows.column("subject").take(chosen)


def sticky(
    rows: Rows,
    columns: Sequence[str],
    keyed: _KeyedRows,
    wildcard: int,
) -> Iterator[KeyStickiness]:
    """How many keys of each mapping there are, and how many saw more than one end.

    Args:
        keyed: a function of a mapping version and its rows. It gives the subjects of each end that
            has a key.
    """
    read = partial(_read_keys, rows.reading, columns, keyed)
    grouping = Grouping(("key", "source"), lows=("first",), highs=("last",))
    storage = rows.reading.reader.storage
    each = grouped(
        rows.tasks, read, grouping, _split, storage=storage, folder=rows.folder, spark=rows.session
    )
    keys, split = Counter[str](), Counter[str]()
    for of_task, split_of_task in each:
        keys.update(of_task)
        split.update(split_of_task)
    for source in sorted(keys):
        yield KeyStickiness(
            source=source, wildcard=wildcard, keys=keys[source], split=split[source]
        )


def _read_keys(
    reading: Reading, columns: Sequence[str], keyed: _KeyedRows, task: Task
) -> Iterator[pa.RecordBatch]:
    """The key, mapping and end of the rows of a task, repeats left out batch by batch."""
    tokens: dict[int, TokenAt] = {}
    for index, rows in reading.read(task, columns):
        for of, subjects in keyed(index, rows):
            token = tokens.setdefault(of.place, TokenAt(of.place))
            keys = token.of(subjects).drop_null().unique()
            if len(keys):
                source = pa.repeat(pa.scalar(encode(of.source), pa.binary()), len(keys))
                end = pa.array(np.full(len(keys), of.end))
                yield pa.record_batch(
                    [keys, source, end, end], names=["key", "source", "first", "last"]
                )


def _split(_: object, groups: pa.RecordBatch) -> tuple[Counter[str], Counter[str]]:
    """The keys of each mapping, and those that saw more than one end."""
    is_split = pc.not_equal(groups.column("first"), groups.column("last"))
    every, split = (
        Counter({source: count for (source,), count in combinations(texts(sources))})
        for sources in (groups.column("source"), groups.column("source").filter(is_split))
    )
    return every, split
