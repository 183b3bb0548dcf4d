"""Lines that are written alike: Arrow reads of them what Python reads."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import ArchiveError
from jobs.settings.ingest import DumpColumns
from jobs.sources.json_lines import _columns, _in_order
from jobs.sources.layouts import Layout, Layouts
from jobs.sources.line import Parser, parse_line
from tests.cases import load
from tests.support.refused import refused

TIME = "2026-03-01T00:00:00.000000001Z"
Read = list[tuple[Any, ...]]


def by_python(lines: list[bytes], columns: DumpColumns) -> Read | None:
    """What Python reads; None if a line is no message."""
    parser = Parser(columns)
    try:
        return plain(_columns([parser(line, 7 + n) for n, line in enumerate(lines)]).columns)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def by_layout(lines: list[bytes], columns: DumpColumns) -> tuple[Read | None, int]:
    """What layouts and Python read together, and how many lines are left to Python."""
    array = pa.array(lines, pa.binary())
    parts, others = Layouts(columns).read(array, 7)
    parser = Parser(columns)
    try:
        messages = [parser(lines[n], 7 + n) for n in others.tolist()]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None, len(others)
    if messages:
        parts.append((others, _columns(messages)))
    *columns_of, _, data = _in_order(parts)
    return plain([*columns_of, data]), len(others)


def plain(columns: list[pa.Array]) -> Read:
    """Rows in which text is bytes, and headers are pairs."""
    seq, ts_ns, subject, cluster, headers, data = columns
    pairs = [
        [(name.as_py(), value.as_py()) for name, value in zip(*texts(of_row), strict=True)]
        for of_row in headers
    ]
    binary = [column.view(pa.binary()).to_pylist() for column in (subject, cluster)]
    rest = [seq.to_pylist(), ts_ns.to_pylist(), *binary, pairs, data.to_pylist()]
    return [*zip(*rest, strict=True)]


def texts(headers: pa.ListScalar) -> list[pa.Array]:
    return [column.view(pa.binary()) for column in headers.values.flatten()]


LINES = load("dumps.yaml")["lines for Arrow"]


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_arrow_reads_lines_that_are_alike(line: str) -> None:
    lines = [line.encode()] * 3 if line.endswith("\n") else [f"{line}\n".encode()] * 3
    read, left = by_layout(lines, DumpColumns())
    assert read == by_python(lines, DumpColumns())
    assert read is not None
    assert left == 0


OTHERS = load("dumps.yaml")["lines for Python"]


@pytest.mark.parametrize("line", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("among", [0, 10])
def test_python_reads_the_others(line: str, among: int) -> None:
    lines = [LINES["compact"].encode()] * among + [line.encode()]
    read, left = by_layout(lines, DumpColumns())
    assert read == by_python(lines, DumpColumns())
    assert left in (1, len(lines))


def test_bytes_that_are_not_utf8_are_left() -> None:
    line = LINES["compact"].encode()
    lines = [line, line.replace(b"a.1", b"a.\xe9"), line]
    assert by_layout(lines, DumpColumns()) == (None, 3)
    with refused(ArchiveError, "line-not-utf8", byte=233):
        parse_line(lines[1], 1, "a.jsonl", Parser(DumpColumns()))


@pytest.mark.parametrize(("count", "length"), [(20_000, 1), (1, 300_000)], ids=["many", "long"])
def test_python_reads_lines_with_names_without_end(count: int, length: int) -> None:
    document = {"subject": "a", "ts": TIME} | {f"{n:x>{length}}": "v" for n in range(count)}
    lines = [json.dumps(document).encode() + b"\n"] * 2
    read, left = by_layout(lines, DumpColumns())
    assert left == 2
    assert read == by_python(lines, DumpColumns())


def test_payloads_in_base64() -> None:
    columns = DumpColumns(data_encoding="base64")
    line = b'{"subject": "a", "ts": "2026-03-01T00:00:00Z", "data": "aGk="}'
    read, left = by_layout([line] * 2, columns)
    assert (left, [row[5] for row in read or []]) == (0, [b"hi", b"hi"])
    assert by_layout([line, line.replace(b"aGk=", b"aGk")], columns) == (None, 2)


def test_a_few_lines_more_are_not_worth_a_layout() -> None:
    """Lines that are all different are compared with a sample, and then left to Python."""
    lines = [f'{{"subject": "a", "ts": "{TIME}", "n{n}": 1}}\n'.encode() for n in range(1000)]
    assert by_layout(lines, DumpColumns())[1] == 1000
    mixed = [LINES[name].encode() for name in ("compact", "header", "zone") for _ in range(300)]
    assert by_layout([*mixed, *lines[:9]], DumpColumns())[1] == 9


text = st.one_of(st.text(max_size=5), st.sampled_from(["\udcff", "\r", "\n", '"', "\\", "é", "😀"]))
value = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=4,
)
moment = st.from_regex(
    r"(1[67]|2[0-3])\d\d-[01]\d-[0-3]\d[T ][0-2]\d:[0-5]\d:[0-6]\d(\.\d{1,9})?"
    r"(Z|[+-][0-2]\d:[0-6]\d)?",
    fullmatch=True,
)
document = st.fixed_dictionaries(
    {"subject": st.one_of(text, value)},
    optional={
        "ts": st.one_of(moment, value),
        "time": moment,
        "ts_ns": st.one_of(st.integers(-(2**64), 2**64), value),
        "seq": st.one_of(st.integers(-(2**64), 2**64), value),
        "cluster": st.one_of(st.none(), text),
        "headers": st.one_of(
            st.dictionaries(text, st.one_of(text, st.lists(text, max_size=3)), max_size=3), value
        ),
        "data": st.one_of(text, value),
        "other": value,
    },
)


@given(st.lists(document, min_size=1, max_size=4), st.booleans(), st.integers(1, 3))
def test_any_documents(documents: list[dict[str, Any]], ascii_only: bool, times: int) -> None:
    lines = [
        json.dumps(one, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") + b"\n"
        for one in documents
        for _ in range(times)
    ]
    assert by_layout(lines, DumpColumns())[0] == by_python(lines, DumpColumns())


@given(st.binary(max_size=3), st.integers(0, 200), st.integers(0, 5), st.sampled_from([*LINES]))
def test_any_change_of_a_line(change: bytes, at: int, length: int, name: str) -> None:
    """Where a layout fits the changed line, both read it alike; and Python can read it."""
    line = LINES[name].encode()
    layout = Layout.of(line, DumpColumns())
    assert layout is not None
    changed = pa.array([line[:at] + change + line[at + length :]], pa.binary())
    if layout.fits(changed).all():
        expected = by_python(changed.to_pylist(), DumpColumns())
        try:
            rows = layout.read(changed, np.array([7]))
        except ValueError:  # which leaves the line to Python
            return
        assert plain(rows.columns) == expected
