"""Header blocks: nothing of them is lost, and Arrow's way agrees with the plain one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.jetstream.headers import format_headers, header_columns, parse_headers
from nats_transform.mappings.subject import encode
from tests.cases import rows


@pytest.mark.parametrize(("block", "pairs", "exact"), rows("wire.yaml", "blocks"))
def test_pairs(block: str, pairs: list[list[str]], exact: bool) -> None:
    data, wanted = encode(block), [(encode(name), encode(value)) for name, value in pairs]
    assert parse_headers(data) == wanted
    assert (format_headers(wanted) == data) == exact
    headers, raw = header_columns([None, data])
    assert headers.values.field(0).view("binary").to_pylist() == [name for name, _ in wanted]
    assert headers.values.field(1).view("binary").to_pylist() == [value for _, value in wanted]
    assert raw.to_pylist() == [None, None if exact else data]


def restore(blocks: list[bytes | None]) -> list[bytes | None]:
    """The blocks again, from the two columns alone."""
    headers, raw = header_columns(blocks)
    names = headers.values.field(0).view("binary").to_pylist()
    values = headers.values.field(1).view("binary").to_pylist()
    offsets = headers.offsets.to_pylist()
    restored: list[bytes | None] = []
    for row, kept in enumerate(raw.to_pylist()):
        pairs = range(offsets[row], offsets[row + 1])
        formatted = format_headers((names[n], values[n]) for n in pairs)
        restored.append(kept if kept is not None else formatted or None)
    return restored


usual_names = st.binary(max_size=6).map(lambda b: b.translate(None, b":\r\n"))
usual_values = st.binary(max_size=6).map(lambda b: b.translate(None, b"\r\n").lstrip(b" "))
usual_blocks = st.lists(st.tuples(usual_names, usual_values), min_size=1, max_size=4).map(
    format_headers
)
odd_blocks = st.binary(max_size=20).map(lambda b: b"NATS/1.0" + b)


@given(st.lists(st.none() | usual_blocks, max_size=8))
@example([None, None])
@example([b"NATS/1.0\r\nA: \r\n\r\n", None])
def test_usual_blocks_are_restored_and_need_no_copy(blocks: list[bytes | None]) -> None:
    assert restore(blocks) == blocks
    assert header_columns(blocks)[1].null_count == len(blocks)


@given(st.lists(st.none() | usual_blocks | odd_blocks, max_size=8))
def test_any_block_is_restored(blocks: list[bytes | None]) -> None:
    assert restore(blocks) == blocks
