"""Header blocks: nothing of them is lost, and Arrow's way agrees with the plain one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.jetstream.headers import format_headers, header_columns, parse_headers

CASES = [
    pytest.param(b"NATS/1.0\r\nA: b\r\n\r\n", [(b"A", b"b")], True, id="usual"),
    pytest.param(
        b"NATS/1.0\r\nb: 1\r\nA: 2\r\nb: 3\r\nB: 4\r\n\r\n",
        [(b"b", b"1"), (b"A", b"2"), (b"b", b"3"), (b"B", b"4")],
        True,
        id="order-repeats-case",
    ),
    pytest.param(b"NATS/1.0\r\nA: \r\n\r\n", [(b"A", b"")], True, id="empty-value"),
    pytest.param(b"NATS/1.0\r\nA: b:c\r\n\r\n", [(b"A", b"b:c")], True, id="colon-in-value"),
    pytest.param(b"NATS/1.0\r\nA: b \r\n\r\n", [(b"A", b"b ")], True, id="blank-behind-value"),
    pytest.param(b"NATS/1.0\r\nA:b\r\n\r\n", [(b"A", b"b")], False, id="no-blank"),
    pytest.param(b"NATS/1.0\r\nA:\r\n\r\n", [(b"A", b"")], False, id="nothing-behind-colon"),
    pytest.param(b"NATS/1.0\r\nA:   b\r\n\r\n", [(b"A", b"b")], False, id="many-blanks"),
    pytest.param(b"NATS/1.0\r\nA : b\r\n\r\n", [(b"A ", b"b")], True, id="blank-before-colon"),
    pytest.param(b"NATS/1.0\r\n\r\n", [], False, id="no-headers"),
    pytest.param(b"NATS/1.0 503\r\nA: b\r\n\r\n", [(b"A", b"b")], False, id="with-status"),
    pytest.param(b"NATS/1.0\r\nno colon\r\n\r\n", [], False, id="no-colon"),
    pytest.param(b"NATS/1.0\r\n\xff: \xfe\r\n\r\n", [(b"\xff", b"\xfe")], True, id="not-utf-8"),
    pytest.param(b"NATS/1.0\r\nA: b\r\n", [(b"A", b"b")], False, id="no-empty-line"),
    pytest.param(b"nonsense", [], False, id="no-block-at-all"),
]


@pytest.mark.parametrize(("block", "pairs", "exact"), CASES)
def test_pairs(block: bytes, pairs: list[tuple[bytes, bytes]], exact: bool) -> None:
    assert parse_headers(block) == pairs
    assert (format_headers(pairs) == block) == exact
    headers, raw = header_columns([None, block])
    assert headers.values.field(0).view("binary").to_pylist() == [name for name, _ in pairs]
    assert headers.values.field(1).view("binary").to_pylist() == [value for _, value in pairs]
    assert raw.to_pylist() == [None, None if exact else block]


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
