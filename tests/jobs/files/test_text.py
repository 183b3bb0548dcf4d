"""Bytes that are not UTF-8 are stored as text and come back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.files.text import restored_rows, stored
from jobs.jetstream.headers import format_headers

HOSTILE = [None, b"", b"a.b", "é.ü".encode(), b"a.\xff", b"\\x\xc3", b"\xed\xa0\x80", b"%C2\x80"]
PAIRS = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
NAMES = ("subject", "cluster", "headers", "headers_raw")
STORED = ("subject", "subject_raw", "cluster", "cluster_raw", "headers", "headers_raw")

Row = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes]] | None, bytes | None]


def text(values: list[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def columns(rows: list[Row]) -> dict[str, pa.Array]:
    pairs = [row[2] and [{"name": n, "value": v} for n, v in row[2]] for row in rows]
    return {
        "subject": text([row[0] for row in rows]),
        "cluster": text([row[1] for row in rows]),
        "headers": pa.array(pairs, PAIRS).view(HEADERS),
        "headers_raw": pa.array([row[3] for row in rows], pa.binary()),
    }


def plain(found: dict[str, pa.Array]) -> dict[str, list[Any]]:
    """All texts as bytes."""
    return {
        name: column.cast(PAIRS if pa.types.is_list(column.type) else pa.binary()).to_pylist()
        for name, column in found.items()
    }


VALUES = st.none() | st.sampled_from(HOSTILE) | st.binary(max_size=4)
WORDS = st.binary(max_size=4).filter(lambda v: not set(v) & set(b":\r\n "))


@given(
    st.lists(
        st.tuples(
            VALUES,
            VALUES,
            st.none() | st.lists(st.tuples(WORDS.filter(bool), WORDS), min_size=1, max_size=3),
            st.none(),
        ),
        max_size=8,
    )
)
def test_nothing_is_lost(rows: list[Row]) -> None:
    before = columns(rows)
    after = pa.RecordBatch.from_pydict(dict(zip(STORED, stored(before, STORED), strict=True)))
    after.validate(full=True)
    restored = restored_rows(after, NAMES)
    assert plain(dict(zip(NAMES, restored.columns, strict=True))) == plain(before)


@pytest.mark.parametrize("values", [[b"a", b"b"], [b"\xff", b"b"], [None, b"\\\xff"]])
def test_dictionaries(values: list[bytes | None]) -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1], pa.int32()), text(values))
    shown, kept = stored({"subject": words}, ("subject", "subject_raw"))
    assert pa.types.is_dictionary(shown.type)
    repeated = text([values[1], values[0], None, values[1]])
    wanted = stored({"subject": repeated}, ("subject", "subject_raw"))
    assert [shown.to_pylist(), kept.to_pylist()] == [column.to_pylist() for column in wanted]


def test_headers_of_the_usual_form_need_no_block() -> None:
    rows: list[Row] = [(b"a", None, [(b"A", b"\xff"), (b"B", b"")], None)]
    kept = dict(zip(STORED, stored(columns(rows), STORED), strict=True))
    assert kept["headers_raw"].to_pylist() == [format_headers(rows[0][2] or [])]
    assert kept["headers"].to_pylist() == [
        [{"name": "A", "value": "\\xFF"}, {"name": "B", "value": ""}]
    ]
