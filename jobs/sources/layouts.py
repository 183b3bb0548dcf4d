"""Lines of JSON that are written alike, read by Arrow as columns.

Python reads any line, but takes several times as long as Arrow. Arrow keeps neither the order of
headers nor repeated ones, and reads some lines that are not JSON. So a `Layout` is made of a line
that Python has read: it fits lines with the same names in the same order, and with values that
both read alike. `jobs.sources.line` reads all others, and says what is wrong with them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from jobs.settings.ingest import DumpColumns
from jobs.sources.line import LARGE_LINE, JsonObject, decode_line
from jobs.warehouse.rows import header_lists, no_headers
from nats_transform.kernel.messages import HEADERS

READ = pa.schema(
    {
        "seq": pa.int64(),
        "ts_ns": pa.int64(),
        "subject": pa.string(),
        "cluster": pa.string(),
        "headers": HEADERS,
        "data": pa.binary(),
    }
)
"""The columns of lines that were read. Text may hold any bytes."""
Part = tuple[np.ndarray, pa.RecordBatch]
"""The places of some lines among others, and their columns."""

_MOST = 8  # layouts that a block is tried with: each costs a search in the lines it does not fit
_FEW = 8  # a layout for fewer lines than one in so many would cost more than it saves
_SOME = 500  # lines of which that is judged
_LONGEST = 2**16  # characters of an expression: Arrow refuses those of much longer ones

_HEX = "[0-9a-fA-F]"


def _text(escapes: str, low: str) -> str:
    # A surrogate alone stands for a byte that is not UTF-8, which Arrow refuses.
    pair = rf"[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
    code = rf"(?:{low}|[1-9a-ce-fA-CE-F]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}}|{pair})"
    return rf'"(?:[^"\\\x00-\x1f]|\\[{escapes}]|\\u{code})*"'


_TEXT = _text(r'"\\/bfnrt', f"0{_HEX}{{3}}")
_HEADER = _text(r'"\\/bft', f"0(?:[1-9a-fA-F]{_HEX}|0[1-9a-fA-F]){_HEX}")  # without line breaks
_INTEGER = r"-?(?:0|[1-9]\d{0,17})"
# Of years whose nanoseconds 64 bits hold.
_TIME = r"(?:1[7-9]|2[01])\d\d-[01]\d-[0-3]\d[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?"
_ZONE = r"(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"


@dataclass(frozen=True)
class Layout:
    """The way in which some lines are written.

    Attributes:
        pattern: an expression for the bytes of such a line.
        fields: what Arrow reads of it.
        names: the field with each column of a message, as `DumpColumns.find` has it.
        zone: the time zone of texts with a time; None if they name none.
        is_base64: whether payloads are written as base64.
    """

    pattern: str
    fields: pa.Schema
    names: dict[str, str]
    zone: str | None
    is_base64: bool

    @classmethod
    def of(cls, line: bytes, columns: DumpColumns) -> Layout | None:
        """The layout of a line; None if Arrow can't read it, or not as Python does."""
        try:
            pairs = decode_line(line.decode())
            document = dict(pairs) if isinstance(pairs, JsonObject) else {}
            names = columns.find([*document], lacks=columns.optional)
        except (ValueError, RecursionError):
            return None
        if "ts_ns" in names:
            names.pop("ts", None)
        for raw in ("subject_raw", "cluster_raw", "headers_raw"):
            names.pop(raw, None)
        roles = {name: column for column, name in names.items()}
        values = {name: _value(roles.get(name), value) for name, value in document.items()}
        has_time = not names.keys().isdisjoint({"ts", "ts_ns"})
        is_known = _are_plain(pairs) and None not in values.values()
        if not (has_time and is_known) or len(roles) < len(names):
            return None
        known = {name: value for name, value in values.items() if value is not None}
        fields = {name: kind for name, (_, kind) in known.items() if kind is not None}
        pattern = _object({name: pattern for name, (pattern, _) in known.items()})
        if len(pattern) > _LONGEST:
            return None
        return cls(
            f"^ *{pattern}[ \r]*\n?$",
            pa.schema(fields),
            {column: name for column, name in names.items() if name in fields},
            "UTC" if _names_zone(str(document.get(names.get("ts", "")))) else None,
            columns.data_encoding == "base64",
        )

    def fits(self, lines: pa.Array) -> np.ndarray:
        """Which lines are written like this."""
        fits = pc.match_substring_regex(lines, self.pattern)
        is_small = pc.less(pc.binary_length(lines), LARGE_LINE)
        mask: np.ndarray = pc.and_(fits, is_small).to_numpy(zero_copy_only=False)
        return mask

    def read(self, lines: pa.Array, seq: np.ndarray) -> pa.RecordBatch:
        """The columns of lines that it fits.

        Args:
            seq: the sequence of each message, for lines that name none.

        Raises:
            ValueError: a line is not UTF-8, or has a day that no month has, or no base64.
        """
        lines.view(pa.string()).validate(full=True)
        _, ends, text = lines.buffers()
        offsets = np.frombuffer(ends, np.int32)[lines.offset :]
        start, end = int(offsets[0]), int(offsets[len(lines)])
        table = pj.read_json(
            pa.BufferReader(text.slice(start, end - start)),
            pj.ReadOptions(use_threads=False, block_size=end - start + 1),
            pj.ParseOptions(explicit_schema=self.fields, unexpected_field_behavior="ignore"),
        ).combine_chunks()
        have = {column: table.column(name).chunk(0) for column, name in self.names.items()}
        missing = pa.nulls(len(lines), pa.string())
        times = have.get("ts_ns")
        if times is None:
            times = have["ts"].cast(pa.timestamp("ns", self.zone)).cast(pa.int64())
        data = have.get("data", missing).cast(pa.binary()).fill_null(b"")
        if self.is_base64:
            texts = data.to_pylist()
            data = pa.array([base64.b64decode(t, validate=True) for t in texts], pa.binary())
        headers = _headers(have["headers"]) if "headers" in have else no_headers(len(lines))
        columns = [have.get("seq", pa.array(seq)), times, have["subject"]]
        columns += [have.get("cluster", missing), headers, data]
        return pa.RecordBatch.from_arrays(columns, schema=READ)


class Layouts:
    """The layouts of a block, which are found as its lines are read."""

    def __init__(self, columns: DumpColumns) -> None:
        self._columns = columns
        self._layouts: list[Layout] = []
        self._tries = _MOST

    def read(self, lines: pa.Array, seq: int) -> tuple[list[Part], np.ndarray]:
        """The lines that are written alike, and the places of the others.

        Args:
            lines: the bytes of lines of JSON.
            seq: the sequence of the first message, if lines name none.
        """
        parts: list[Part] = []
        others = np.arange(len(lines))
        for layout in self._layouts:
            others = _take(layout, lines, others, seq, parts)
        while len(others) * _FEW > len(lines) and self._tries:
            self._tries -= 1
            some = lines.take(pa.array(others[:: len(others) // _SOME + 1]))
            new = Layout.of(some[len(some) // 2].as_py(), self._columns)
            if new is not None and np.mean(new.fits(some)) * _FEW > 1:
                self._layouts.append(new)
                others = _take(new, lines, others, seq, parts)
        return parts, others


def _take(
    layout: Layout, lines: pa.Array, places: np.ndarray, seq: int, parts: list[Part]
) -> np.ndarray:
    """Adds the lines at some places that a layout fits to the parts, and gives the other places."""
    if not len(places):
        return places
    fits = layout.fits(lines if len(places) == len(lines) else lines.take(pa.array(places)))
    taken = places[fits]
    if not len(taken):
        return places
    try:
        alike = lines if len(taken) == len(lines) else lines.take(pa.array(taken))
        rows = layout.read(alike, taken + seq)
    except ValueError:  # a line of these is wrong: Python says which
        return places
    parts.append((taken, rows))
    others: np.ndarray = places[~fits]
    return others


def _value(column: str | None, value: Any) -> tuple[str, pa.DataType | None] | None:
    """An expression for values like this one, and as what Arrow reads them, if it has to.

    Args:
        column: the column of a message that it stands for; None if it stands for none.
        value: as Python has read it.

    Returns:
        None if there is no such expression.
    """
    match column, value:
        case "subject", str():
            return _TEXT, pa.string()
        case "cluster" | "data", str() | None:
            return f"(?:{_TEXT}|null)", pa.string()
        case "ts", str():
            return f'"{_TIME}{_ZONE if _names_zone(value) else ""}"', pa.string()
        case "seq" | "ts_ns", int() if not isinstance(value, bool):
            return _INTEGER, pa.int64()
        case "headers", JsonObject() if value:
            headers = {name: _header(given) for name, given in value}
            if not _are_plain(value) or None in headers.values():
                return None
            known = {name: header for name, header in headers.items() if header is not None}
            kinds = [(name, kind) for name, (_, kind) in known.items()]
            return _object({name: text for name, (text, _) in known.items()}), pa.struct(kinds)
        case "headers", JsonObject():
            return r"\{ *\}", None
        case None | "headers", None:
            return "null", None
        case None, str():
            return _TEXT, None
        case None, int():
            return f"(?:true|false|{_INTEGER})", None
    return None


def _header(value: Any) -> tuple[str, pa.DataType] | None:
    if isinstance(value, str):
        return _HEADER, pa.string()
    if type(value) is list:
        return rf"\[ *(?:{_HEADER} *(?:, *{_HEADER} *)*)?\]", pa.list_(pa.string())
    return None


def _object(patterns: dict[str, str]) -> str:
    """An expression for an object with these names, and values that these expressions are for."""
    pairs = (f"{re.escape(json.dumps(name))} *: *{text} *" for name, text in patterns.items())
    return r"\{ *" + ", *".join(pairs) + r"\}"


def _are_plain(pairs: Sequence[tuple[str, Any]]) -> bool:
    """Whether the names of an object are all different, and written in one way only."""
    names = [name for name, _ in pairs]
    return len({*names}) == len(names) and all(n.isascii() and n.isprintable() for n in names)


def _names_zone(time: str) -> bool:
    return re.search(_ZONE + "$", time) is not None


def _headers(values: pa.StructArray) -> pa.ListArray:
    """The headers of lines that all have the same names, each with a text or a list of texts."""
    count, texts, sizes = len(values), [], []
    for column in values.flatten():
        is_list = pa.types.is_list(column.type)
        texts.append(column.flatten() if is_list else column)
        sizes.append(pc.list_value_length(column).to_numpy() if is_list else np.ones(count, int))
    rows = np.concatenate([np.repeat(np.arange(count), size) for size in sizes])
    order = pa.array(np.argsort(rows, kind="stable"))
    names = pa.array([field.name for field in values.type])
    of_each = pa.array(np.repeat(np.arange(len(texts)), [len(column) for column in texts]))
    offsets = np.concatenate([[0], np.cumsum(np.sum(sizes, axis=0))])
    return header_lists(
        offsets, names.take(of_each).take(order), pa.concat_arrays(texts).take(order)
    )
