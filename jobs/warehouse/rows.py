"""Messages in Arrow, as rows of the table `messages`. Text columns hold any bytes, unchecked.

This module is separate from `tables`, because workers import it: the import of PyIceberg would take
them longer than many tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch
from nats_transform.kernel.messages import HEADERS, MESSAGES, NARROW, PAIR

DAY_NS = 86_400 * 1_000_000_000

WORDS = ("stream", "cluster")
"""The text columns with few values, held as dictionaries."""
_WORD = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([(name, _WORD if name in WORDS else kind) for name, kind in MESSAGES.items()])


def rows_of(
    stream: str,
    seq: pa.Array,
    ts_ns: pa.Array,
    subject: pa.Array,
    cluster: pa.Array,
    headers: pa.Array,
    headers_raw: pa.Array,
    data: pa.Array,
) -> pa.RecordBatch:
    """The rows of messages; what the other columns say follows from these.

    Args:
        seq, ts_ns: whole numbers; where the time is null, so are `ts` and `day`.
        subject: text of any bytes.
        cluster: text, plain or as a dictionary.
        headers: lists of type `HEADERS`.
        headers_raw, data: bytes.
    """
    missing = ts_ns.is_null().to_numpy(zero_copy_only=False) if ts_ns.null_count else None
    times = ts_ns.fill_null(0).to_numpy()
    ts = pa.array(times // 1000, mask=missing).cast(pa.timestamp("us", "UTC"))
    day = pa.array((times // DAY_NS).astype(np.int32), mask=missing).cast(pa.date32())
    if not pa.types.is_dictionary(cluster.type):
        cluster = cluster.dictionary_encode()
    label = constant(stream, len(seq))
    return pa.RecordBatch.from_arrays(
        [label, seq, ts, ts_ns, day, subject, cluster, headers, headers_raw, data], schema=SCHEMA
    )


def new_subjects(rows: pa.RecordBatch) -> pa.Array:
    """The mapped subject of each row, or its own without one, as bytes."""
    names = [name for name in ("mapped_subject", "subject") if name in rows.schema.names]
    return pc.coalesce(*(rows.column(name).view(pa.binary()) for name in names), b"")


def constant(value: str | None, count: int) -> pa.Array:
    """A column with the same word, or null, in every row."""
    if value is None:
        return pa.nulls(count, _WORD)
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))


def header_lists(offsets: Any, names: pa.Array, values: pa.Array) -> pa.ListArray:
    """The headers of rows, of which these are the names and values, one after the other.

    Args:
        offsets: where the headers of each row begin, and last where those of the last row end.
        names, values: text of any bytes.
    """
    pairs = pa.StructArray.from_arrays([names, values], fields=list(PAIR))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, HEADERS)


def raw_text(values: Iterable[bytes | None]) -> pa.Array:
    """A column of text that nobody checks."""
    return pa.array(values, pa.binary()).view(pa.string())


def no_headers(count: int) -> pa.ListArray:
    """The headers of rows that have none."""
    nothing = pa.array([], pa.string())
    return header_lists(np.zeros(count + 1, np.int32), nothing, nothing)


def header_values(headers: pa.ListArray, name: str, otherwise: pa.Array) -> pa.Array:
    """The first value of the header with this name, or what stands in `otherwise`."""
    count = len(headers)
    pairs = headers.flatten()
    pairs_with_name = np.flatnonzero(
        pc.equal(pairs.field("name"), name).fill_null(False).to_numpy(zero_copy_only=False)
    )
    rows = pc.list_parent_indices(headers).to_numpy()[pairs_with_name]
    rows, earliest = np.unique(rows, return_index=True)  # the first of repeated headers
    places, present = np.zeros(count, np.int64), np.zeros(count, bool)
    places[rows], present[rows] = pairs_with_name[earliest], True
    taken = pairs.field("value").take(pa.array(places, mask=~present))
    return pc.if_else(pa.array(present), taken, otherwise.cast(pa.string()))


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over some messages.

    Attributes:
        first, last: the first and last sequence; None if there are no messages.
        bytes: the size of the payloads.
        digest: the digest, which includes the number of rows.
        narrow: that of the columns in `NARROW`; empty of rows that lack one.
    """

    first: int | None = None
    last: int | None = None
    bytes: int = 0
    digest: Digest = field(default_factory=Digest)
    narrow: Digest = field(default_factory=Digest)

    @classmethod
    def of(cls, rows: pa.RecordBatch, columns: Sequence[str] | None = None) -> Total:
        """The sums over some rows; with columns that are given, only the digest of these."""
        bounds = pc.min_max(rows.column("seq")).as_py()
        payloads = rows.column("data") if "data" in rows.schema.names else pa.array([], pa.binary())
        size = pc.sum(pc.binary_length(payloads)).as_py() or 0
        digest = digest_batch(rows, columns)
        narrow = Digest()
        if columns is None and set(NARROW) <= set(rows.schema.names):
            narrow = digest_batch(rows, NARROW)
        return cls(bounds["min"], bounds["max"], size, digest, narrow)

    def __add__(self, other: Total) -> Total:
        return Total(
            min((seq for seq in (self.first, other.first) if seq is not None), default=None),
            max((seq for seq in (self.last, other.last) if seq is not None), default=None),
            self.bytes + other.bytes,
            self.digest + other.digest,
            self.narrow + other.narrow,
        )
