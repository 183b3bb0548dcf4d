"""Header blocks of messages, as they are stored, and the name-value pairs in them.

A block is `NATS/1.0`, a line `Name: value` for each header, and an empty line (ADR-4). Clients
write different spaces, and every header must come back byte for byte. So a message has its pairs,
read as nats-server reads them (blanks before the value are not part of it). If the pairs do not
reproduce the block, the message also has the block itself.

Source: nats-server `server/client.go` `sliceHeader`, `genHeader`.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.warehouse.rows import header_lists, no_headers, raw_text

Pair = tuple[bytes, bytes]

VERSION = b"NATS/1.0"
_CRLF = b"\r\n"
_START = VERSION + _CRLF
_END = _CRLF + _CRLF


def parse_headers(block: bytes) -> list[Pair]:
    """The pairs of a header block, in its order; a line without a colon is no header."""
    pairs = []
    for line in block.removesuffix(_CRLF).split(_CRLF)[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            pairs.append((name, value.lstrip(b" ")))
    return pairs


def format_headers(pairs: Iterable[Pair]) -> bytes:
    """The usual block of these pairs; empty if there are none."""
    lines = [name + b": " + value for name, value in pairs]
    return _CRLF.join([VERSION, *lines, _CRLF]) if lines else b""


def header_columns(blocks: list[bytes | None]) -> tuple[pa.Array, pa.Array]:
    """The columns `headers` and `headers_raw` of messages with these header blocks.

    `headers` is an empty list where there is no block. Names and values keep bytes that are not
    UTF-8. Usual blocks are cut by Arrow's kernels, all at once; the rest one by one.
    """
    if not any(blocks):
        return no_headers(len(blocks)), pa.nulls(len(blocks), pa.binary())
    return _cut(blocks) or _one_by_one(blocks)


def first_values(
    headers: pa.ListArray, names: Sequence[bytes]
) -> ItemsView[int, dict[bytes, bytes]]:
    """The rows that have some of the headers, and the first value of each, which the server reads.

    nats-server compares names letter by letter (`getHeaderKeyIndex`).
    """
    pairs = headers.flatten()
    is_named = pc.is_in(pairs.field("name").view(pa.binary()), pa.array(names, pa.binary()))
    values: dict[int, dict[bytes, bytes]] = {}
    if pc.any(is_named).as_py():
        rows = pc.list_parent_indices(headers).filter(is_named).to_pylist()
        fields = (pairs.field(n).view(pa.binary()).filter(is_named) for n in ("name", "value"))
        for row, name, value in zip(rows, *(field.to_pylist() for field in fields), strict=True):
            values.setdefault(row, {}).setdefault(name, value or b"")
    return values.items()


def pairs_of(headers: pa.ListArray) -> Iterator[list[Pair]]:
    """The pairs of each row, as bytes, which need not be UTF-8; a null is an empty text."""
    pairs = headers.flatten()
    names, values = (pairs.field(n).view(pa.binary()).to_pylist() for n in ("name", "value"))
    start = 0
    for count in pc.fill_null(headers.value_lengths(), 0).to_pylist():
        both = zip(names[start : start + count], values[start : start + count], strict=True)
        yield [(name or b"", value or b"") for name, value in both]
        start += count


def _cut(blocks: list[bytes | None]) -> tuple[pa.Array, pa.Array] | None:
    """The columns; None if some block is not as clients usually write it."""
    present = np.fromiter((bool(b) for b in blocks), bool, len(blocks))
    used = [b for b in blocks if b]
    if not all(b.startswith(_START) and b.endswith(_END) for b in used):
        return None
    bodies = raw_text(b[len(_START) : -len(_END)] for b in used)
    lines = pc.split_pattern(bodies, "\r\n")
    halves = pc.split_pattern(lines.values, ":", max_splits=1)
    sizes = np.diff(halves.offsets.to_numpy())
    if not (sizes == 2).all():
        return None
    names = halves.values.take(pa.array(np.arange(0, len(halves.values), 2)))
    rest = halves.values.take(pa.array(np.arange(1, len(halves.values), 2)))
    values = pc.ascii_ltrim(rest, characters=" ")
    blanks = pc.subtract(pc.binary_length(rest), pc.binary_length(values)).to_numpy()
    if not (blanks == 1).all():
        return None
    counts = np.zeros(len(blocks) + 1, np.int32)
    counts[1:][present] = np.diff(lines.offsets.to_numpy())
    headers = header_lists(np.cumsum(counts, dtype=np.int32), names, values)
    return headers, pa.nulls(len(blocks), pa.binary())


def _one_by_one(blocks: list[bytes | None]) -> tuple[pa.Array, pa.Array]:
    parsed = [parse_headers(block) if block else [] for block in blocks]
    raw = [
        block if block and format_headers(pairs) != block else None
        for block, pairs in zip(blocks, parsed, strict=True)
    ]
    names = raw_text(name for pairs in parsed for name, _ in pairs)
    values = raw_text(value for pairs in parsed for _, value in pairs)
    offsets = np.cumsum([0, *(len(pairs) for pairs in parsed)], dtype=np.int32)
    return header_lists(offsets, names, values), pa.array(raw, pa.binary())
