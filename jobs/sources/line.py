"""One line of a dump as a message, or what is wrong with it.

Lines are read by Python's own JSON: it keeps the order of headers, and bytes that are not UTF-8 as
surrogate escapes (`"\\udcff"`).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

from jobs.errors import ArchiveError
from jobs.settings.ingest import DumpColumns
from jobs.sources.blocks import NO_TIME
from jobs.sources.times import epoch_ns, exact_ns
from nats_transform.collector import no_search_for_cycles
from nats_transform.errors import InvalidValue
from nats_transform.untrusted import few_values

LARGE_LINE = 2**16  # bytes; the values of a smaller one need no count

# seq, ts_ns, subject, cluster, headers, data
Message = tuple[int, int, bytes, bytes | None, list[tuple[bytes, bytes]], bytes]


class JsonObject(list[tuple[str, Any]]):
    """A JSON object as the pairs it was written with: a list, but not a JSON array."""


decode_line: Callable[[str], Any] = json.JSONDecoder(object_pairs_hook=JsonObject).decode


def parse_line(line: bytes, seq: int, place: str, parser: Parser) -> Message:
    """The message of one line.

    Args:
        line: the bytes of the line.
        seq: the sequence of the message, if the line names none.
        place: the file and the number of the message in it, for errors.

    Raises:
        ArchiveError: it is not a message; the error has the place and the start of the line.
    """
    try:
        return parser(line, seq)
    except UnicodeDecodeError as error:
        raise ArchiveError(
            "line-not-utf8", place=place, position=error.start + 1, byte=line[error.start]
        ) from error
    except RecursionError as error:
        fault = "is nested too deeply"
        raise ArchiveError("line-fault", place=place, start=_start(line), fault=fault) from error
    except json.JSONDecodeError as error:
        raise ArchiveError(
            "line-not-json", place=place, start=_start(line), reason=error
        ) from error
    except (ValueError, TypeError, OverflowError) as error:
        raise ArchiveError("line-invalid", place=place, start=_start(line), reason=error) from error


def _start(line: bytes) -> str:
    return repr(line[:240].decode(errors="ignore").rstrip("\r\n")[:60])


class Parser:
    """Reads lines; most of a dump have the same fields, which are looked up once."""

    def __init__(self, columns: DumpColumns) -> None:
        self._columns = columns
        self._found: dict[tuple[str, ...], dict[str, str]] = {}

    def __call__(self, line: bytes, seq: int) -> Message:
        pairs = decode(line)
        if not isinstance(pairs, JsonObject):
            raise InvalidValue("line-not-an-object")
        row = dict(pairs)
        names = tuple(row)
        if len(names) != len(pairs):
            twice = next(
                repeated for repeated in names if sum(name == repeated for name, _ in pairs) > 1
            )
            raise InvalidValue("line-column-twice", name=twice)
        columns = self._found.get(names)
        if columns is None:
            columns = self._columns.find(names, lacks=self._columns.optional)
            if len(self._found) < 1000:
                self._found[names] = columns
        subject = _text_in(row, columns["subject"])
        number = row[columns["seq"]] if "seq" in columns else seq
        if not isinstance(number, int) or isinstance(number, bool):
            raise InvalidValue("line-not-an-integer", name=columns["seq"], value=number)
        if not -(2**63) <= number < 2**63:
            raise InvalidValue("line-sequence-over-64-bits", number=number)
        has_cluster = "cluster" in columns and row[columns["cluster"]] is not None
        cluster = _text_in(row, columns["cluster"]) if has_cluster else None
        if "ts_ns" in columns:
            time = exact_ns(row[columns["ts_ns"]])
        elif "ts" in columns:
            time = epoch_ns(row[columns["ts"]])
        else:
            raise InvalidValue("line-without-time", cure=NO_TIME)
        return (
            number,
            time,
            subject,
            cluster,
            _headers(row[columns["headers"]]) if "headers" in columns else [],
            _payload(row[columns["data"]], self._columns) if "data" in columns else b"",
        )


def decode(line: bytes) -> Any:
    """The JSON of a line; raises ValueError if it is none, or would take too much memory."""
    if len(line) < LARGE_LINE:
        return decode_line(line.decode())
    few_values(line)
    with no_search_for_cycles():
        return decode_line(line.decode())


def _text_in(row: dict[str, Any], name: str) -> bytes:
    value = row[name]
    if not isinstance(value, str):
        shown = "an object" if isinstance(value, JsonObject) else repr(value)
        raise InvalidValue("line-column-not-text", name=name, shown=shown)
    return _bytes(value)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _headers(value: Any) -> list[tuple[bytes, bytes]]:
    if value is None:
        return []
    if not isinstance(value, JsonObject):
        raise InvalidValue("line-headers-not-an-object")
    pairs = []
    for name, given in value:
        texts = given if type(given) is list else [given]
        if not all(isinstance(text, str) for text in texts):
            raise InvalidValue("line-header-not-text", name=name)
        for text in texts:
            if "\r" in text or "\n" in text or "\r" in name or "\n" in name:
                raise InvalidValue("line-header-break", name=name)
            pairs.append((_bytes(name), _bytes(text)))
    return pairs


def _payload(value: Any, columns: DumpColumns) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise InvalidValue("line-data-not-text")
    if columns.data_encoding == "text":
        return _bytes(value)
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise InvalidValue("line-data-not-base64", reason=error) from error
