"""The partition numbers of mapped subjects, and the keys that they were made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh64_intdigest

from expectations.measures.rows import SEED, is_missing, numbers_of, sample_hashes, words
from nats_transform import AccountMappings
from nats_transform.audit import End
from nats_transform.subject import SEPARATOR, decode, encode

MAX_NUMBERS = 4096
"""Rows of a `partition(n)` are counted by number up to this n; above it only the range is."""

_CUT = len(str(MAX_NUMBERS)) + 1  # bytes

_BASE = 0x9E3779B1  # any odd number


@dataclass(frozen=True, slots=True)
class PartitionedEnd:
    """A destination with a `partition()`: where the number and the key of its first one are.

    Attributes:
        end: the source of the mapping, and the destination.
        count: the number of partitions.
        place: `Transform.partition_place`: of the number among the tokens of the mapped subject.
        key: 0-based places of the key's tokens in the subject; none stands for the whole subject.
    """

    end: End
    count: int
    place: int | None
    key: tuple[int, ...]

    @property
    def is_counted(self) -> bool:
        """Whether rows are counted by number: its place is fixed, and there are not too many."""
        return self.place is not None and self.count <= MAX_NUMBERS


def partitioned_ends(mappings: AccountMappings) -> list[PartitionedEnd]:
    """The destinations that have a partition function."""
    found = []
    for mapping in mappings.mappings:
        for _, share in mapping.ends():
            partition = share.transform.partition if share.transform else None
            if partition is None or share.transform is None or share.destination is None:
                continue
            end = End(mapping.source, share.destination)
            place = share.transform.partition_place
            found.append(PartitionedEnd(end, max(partition.count, 1), place, partition.positions))
    return found


def numbered(
    rows: pa.RecordBatch, ends: Sequence[PartitionedEnd], one_in: int
) -> Iterator[tuple[End, str, int | None, int]]:
    """Where messages came: end, partition number as it is written, key, and how many messages.

    Only of one key in `one_in` there is a hash of the key.
    """
    columns = [words(rows.column(f"mapping_{name}")) for name in ("source", "destination")]
    sources, destinations = (
        {text: n for n, text in enumerate(column.dictionary.view(pa.binary()).to_pylist())}
        for column in columns
    )
    of_source, of_destination = (numbers_of(column).astype(np.int64) for column in columns)
    came = of_source * (len(destinations) + 1) + of_destination
    # Ends that look alike are looked at together: there may be thousands.
    alike: dict[tuple[int, tuple[int, ...]], dict[int, End]] = defaultdict(dict)
    for one in ends:
        source = sources.get(encode(one.end.source))
        destination = destinations.get(encode(one.end.destination))
        if one.place is None or not one.is_counted or source is None or destination is None:
            continue
        alike[one.place, one.key][source * (len(destinations) + 1) + destination] = one.end
    both = rows.select(["subject", "mapped_subject"])
    # A message that became invalid has a destination too, and no subject to find a number in.
    has_subject = ~is_missing(both, both.schema.names)
    for (place, positions), here in alike.items():
        chosen = np.flatnonzero(np.isin(came, list(here)) & has_subject)
        subjects, mapped = (column.view(pa.binary()) for column in both.take(pa.array(chosen)))
        keys = _keys(subjects, positions)
        counted = pa.table(
            {
                "end": came[chosen],
                # What is longer than any number is cut, or garbage would make a group of every row.
                "number": pc.binary_slice(_token(_split(mapped), place), 0, _CUT),
                "key": pc.if_else(pa.array(_is_sampled(keys, one_in)), keys, None),
            }
        )
        grouped = counted.group_by(counted.column_names, use_threads=False)
        for found in grouped.aggregate([([], "count_all")]).to_pylist():
            key = None if found["key"] is None else _hash(found["key"], bool(positions))
            yield here[found["end"]], decode(found["number"]), key, found["count_all"]


def _split(subjects: pa.Array) -> pa.ListArray:
    return pc.split_pattern(subjects, SEPARATOR.encode())


def _token(tokens: pa.ListArray, place: int) -> pa.Array:
    """A token of each subject, 1-based, from the end if negative; the nearest if there is none."""
    starts, ends = tokens.offsets.to_numpy()[:-1], tokens.offsets.to_numpy()[1:]
    wanted = starts + place - 1 if place > 0 else ends + place
    return tokens.values.take(pa.array(np.clip(wanted, starts, ends - 1)))


def _keys(subjects: pa.Array, positions: Sequence[int]) -> pa.Array:
    """The key of each subject: the whole subject, or some of its tokens."""
    if not positions:
        return subjects
    tokens = _split(subjects)
    keys = [_token(tokens, position + 1) for position in positions]
    return pc.binary_join_element_wise(*keys, SEPARATOR.encode())


def _is_sampled(keys: pa.Array, one_in: int) -> np.ndarray:
    """Whether each key is in the sample; equal keys are, or are not.

    A polynomial of the bytes decides, which numpy computes for all keys at once.
    """
    if one_in == 1 or not len(keys):
        return np.ones(len(keys), np.bool_)
    starts = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)[starts[0] : starts[-1]]
    starts = starts - starts[0]
    places = np.arange(len(data)) - np.repeat(starts[:-1], np.diff(starts))
    powers = np.power(np.uint64(_BASE), np.arange(int(np.diff(starts).max()) + 1, dtype=np.uint64))
    sums = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum((data + np.uint64(1)) * powers[places], dtype=np.uint64)]
    )
    hashes = sample_hashes((sums[starts[1:]] - sums[starts[:-1]]).view(np.int64))
    chosen: np.ndarray = hashes % one_in == 0
    return chosen


def _hash(key: bytes, has_tokens: bool) -> int:
    """The XXH64 of a key; of one of several tokens it is chained."""
    hash = SEED
    for part in key.split(SEPARATOR.encode()) if has_tokens else [key]:
        hash = xxh64_intdigest(part, hash)
    return hash
