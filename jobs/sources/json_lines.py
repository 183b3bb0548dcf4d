"""Dumps with one JSON object a line.

Lines are read by Python's own JSON: it keeps the order of headers, and bytes that are not UTF-8 as
surrogate escapes (`"\\udcff"`). Empty lines are skipped.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jobs.errors import ArchiveError
from jobs.files.engine import run
from jobs.files.storage import Storage
from jobs.settings.ingest import DumpColumns, IngestSettings
from jobs.sources.dumps import BLOCK_BYTES, NO_TIME, Block, chosen, numbered
from jobs.sources.files import DumpFile, DumpFiles, located, unreadable
from jobs.sources.times import epoch_ns, exact_ns
from jobs.warehouse.rows import header_lists, rows_of
from nats_transform.collector import no_search_for_cycles
from nats_transform.untrusted import few_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
_BATCH_ROWS, _BATCH_BYTES = 20_000, 8 * 2**20
_HEADER_BYTES = 128  # what a header takes beside its text
_BUFFER = 2**20
LARGEST_LINE = 96 * 2**20
"""The most bytes of a line: the largest payload of nats-server in base64, and some more."""
_LARGE_LINE = 2**16  # bytes; the values of a smaller one need no count

# seq, ts_ns, subject, cluster, headers, data
Message = tuple[int, int, bytes, bytes | None, list[tuple[bytes, bytes]], bytes]


def open_json_lines(
    storage: Storage, files: DumpFiles, settings: IngestSettings, spark: SparkSession | None
) -> tuple[JsonLines, list[Block]]:
    """What reads a dump of JSON lines, and its blocks; see `jobs.sources.parquet.open_parquet`.

    Raises:
        ArchiveError: a file cannot be read.
    """
    columns = settings.columns
    cut = [block for file in files.read for block in _cut(file)]
    counts = run(partial(_count, storage, columns.optional), cut, spark)
    # A column counts if any line has it.
    if missing := set(columns.optional).difference(*(count.seen for count in counts)):
        have = next((count.first for count in counts if count.first), ())
        raise ArchiveError(
            f"{files.path}: no line has a column {min(missing)}; the first has {', '.join(have)}"
        )
    pairs = zip(cut, counts, strict=True)
    blocks = [replace(block, messages=count.lines) for block, count in pairs]
    return JsonLines(storage, settings), numbered(blocks, columns.first_seq)


@dataclass(frozen=True)
class JsonLines:
    """Reads blocks of such a dump, in tasks.

    Attributes:
        storage: the file systems of the dump.
        settings: the names of the fields, and which messages are wanted.
    """

    storage: Storage
    settings: IngestSettings

    def __call__(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The messages of a block.

        Raises:
            ArchiveError: the file cannot be read, or a line is no message.
        """
        with no_search_for_cycles():
            yield from self._batches(block)

    def _batches(self, block: Block) -> Iterator[pa.RecordBatch]:
        parser, size = _Parser(self.settings.columns), 0
        messages: list[Message] = []
        for place, line in enumerate(_lines(self.storage, block)):
            try:
                messages.append(parser(line, block.seq + place))
            except Exception:  # once more, for an error that names the place
                where = f"{block.file.path}: message {block.number + place}"
                parse_line(line, block.seq + place, where, self.settings.columns)
                raise
            size += len(line) + _HEADER_BYTES * len(messages[-1][4])
            if len(messages) == _BATCH_ROWS or size >= _BATCH_BYTES:
                yield self._rows(messages)
                messages, size = [], 0
        if messages:
            yield self._rows(messages)

    def _rows(self, messages: list[Message]) -> pa.RecordBatch:
        seq, ts_ns, subject, cluster, headers, data = zip(*messages, strict=True)
        pairs = [pair for of_message in headers for pair in of_message]
        names, values = (_text([pair[n] for pair in pairs]) for n in (0, 1))
        offsets = [0, *accumulate(map(len, headers))]
        rows = rows_of(
            self.settings.stream,
            pa.array(seq, pa.int64()),
            pa.array(ts_ns, pa.int64()),
            _text(subject),
            _text(cluster),
            header_lists(offsets, names, values),
            pa.nulls(len(messages), pa.binary()),
            pa.array(data, pa.binary()),
        )
        return chosen(rows, self.settings)


def _text(values: Sequence[bytes | None]) -> pa.Array:
    """Bytes as a column of text that nobody checks."""
    return pa.array(values, pa.binary()).view(pa.string())


def _cut(file: DumpFile) -> list[Block]:
    if file.path.lower().endswith(_COMPRESSED) or file.size <= BLOCK_BYTES:
        return [Block(file)]
    return [
        Block(file, start, min(start + BLOCK_BYTES, file.size))
        for start in range(0, file.size, BLOCK_BYTES)
    ]


@dataclass(frozen=True)
class _Counted:
    """What a block has.

    Attributes:
        lines: the number of lines that are not empty.
        first: the names in its first line.
        seen: which of the wanted names are in some line.
    """

    lines: int
    first: tuple[str, ...]
    seen: frozenset[str]


def _count(storage: Storage, wanted: Sequence[str], block: Block) -> _Counted:
    """Counts the lines of a block, and looks for names that some line should have."""
    lines, first, left = 0, tuple[str, ...](), set(wanted)
    texts = [name.encode() for name in wanted]
    for line in _lines(storage, block):
        lines += 1
        # Any character of a name may be written as an escape.
        if left and (lines == 1 or b"\\u" in line or any(text in line for text in texts)):
            names = _names(line)
            first = first or names
            left.difference_update(names)
    return _Counted(lines, first, frozenset(wanted) - left)


def _names(line: bytes) -> tuple[str, ...]:
    """The names in a line; none if it is no object, which its reader says."""
    with contextlib.suppress(ValueError, RecursionError):
        document = _decode(line.decode())
        return tuple(name for name, _ in document) if isinstance(document, _Object) else ()
    return ()


def _lines(storage: Storage, block: Block) -> Iterator[bytes]:
    """The lines that begin in a block and are not empty."""
    path = block.file.path
    try:
        filesystem, place = located(storage, path)
        opened = (
            filesystem.open_input_stream(place, compression="detect")
            if block.end is None
            else filesystem.open_input_file(place)
        )
        with closing(opened), io.BufferedReader(opened, _BUFFER) as file:
            at = block.start
            if at:
                file.seek(at - 1)
                at += len(file.readline(LARGEST_LINE)) - 1  # what began before
            while block.end is None or at < block.end:
                line = file.readline(LARGEST_LINE)
                if not line:
                    return
                if len(line) == LARGEST_LINE and not line.endswith(b"\n"):
                    raise ArchiveError(
                        f"{path}: the line at byte {at} is larger than {LARGEST_LINE >> 20} MiB, "
                        "more than any message needs: write each message on a line of its own"
                    )
                at += len(line)
                if not line.isspace():
                    yield line
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error


class _Object(list[tuple[str, Any]]):
    """A JSON object as the pairs it was written with: a list, but not a JSON array."""


_decode: Callable[[str], Any] = json.JSONDecoder(object_pairs_hook=_Object).decode


def parse_line(line: bytes, seq: int, place: str, columns: DumpColumns) -> Message:
    """The message of one line.

    Args:
        line: the bytes of the line.
        seq: the sequence of the message, if the line names none.
        place: the file and the number of the message in it, for errors.
        columns: the names of the fields.

    Raises:
        ArchiveError: it is not a message; the error has the place and the start of the line.
    """
    try:
        return _Parser(columns)(line, seq)
    except UnicodeDecodeError as error:
        raise ArchiveError(
            f"{place}: byte {error.start + 1} of the line is not UTF-8; "
            f'write it as "\\udc{line[error.start]:02x}"'
        ) from error
    except RecursionError as error:
        fault = "is nested too deeply"
        raise ArchiveError(f"{place}, line {_start(line)} {fault}") from error
    except json.JSONDecodeError as error:
        raise ArchiveError(f"{place}, line {_start(line)} is not JSON: {error}") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise ArchiveError(f"{place}, line {_start(line)}: {error}") from error


def _start(line: bytes) -> str:
    return repr(line[:240].decode(errors="ignore").rstrip("\r\n")[:60])


class _Parser:
    """Reads lines; most of a dump have the same fields, which are looked up once."""

    def __init__(self, columns: DumpColumns) -> None:
        self._columns = columns
        self._found: dict[tuple[str, ...], dict[str, str]] = {}

    def __call__(self, line: bytes, seq: int) -> Message:
        pairs = _decode(line.decode()) if len(line) < _LARGE_LINE else _decode_large(line)
        if not isinstance(pairs, _Object):
            raise ValueError("it is not a JSON object")
        row = dict(pairs)
        names = tuple(row)
        if len(names) != len(pairs):
            twice = next(
                repeated for repeated in names if sum(name == repeated for name, _ in pairs) > 1
            )
            raise ValueError(f"column {twice} is there twice; keep one of them")
        columns = self._found.get(names)
        if columns is None:
            columns = self._columns.find(names, lacks=self._columns.optional)
            if len(self._found) < 1000:
                self._found[names] = columns
        subject = _text_in(row, columns["subject"])
        number = row[columns["seq"]] if "seq" in columns else seq
        if not isinstance(number, int) or isinstance(number, bool):
            raise ValueError(f"column {columns['seq']} is not an integer: {number!r}")
        if not -(2**63) <= number < 2**63:
            raise ValueError(f"sequence {number} does not fit into 64 bits")
        has_cluster = "cluster" in columns and row[columns["cluster"]] is not None
        cluster = _text_in(row, columns["cluster"]) if has_cluster else None
        if "ts_ns" in columns:
            time = exact_ns(row[columns["ts_ns"]])
        elif "ts" in columns:
            time = epoch_ns(row[columns["ts"]])
        else:
            raise ValueError(f"it has no time: {NO_TIME}")
        return (
            number,
            time,
            subject,
            cluster,
            _headers(row[columns["headers"]]) if "headers" in columns else [],
            _payload(row[columns["data"]], self._columns) if "data" in columns else b"",
        )


def _decode_large(line: bytes) -> Any:
    few_values(line)
    with no_search_for_cycles():
        return _decode(line.decode())


def _text_in(row: dict[str, Any], name: str) -> bytes:
    value = row[name]
    if not isinstance(value, str):
        shown = "an object" if isinstance(value, _Object) else repr(value)
        raise ValueError(f"column {name} is not text: {shown}; write it as JSON text")
    return _bytes(value)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _headers(value: Any) -> list[tuple[bytes, bytes]]:
    if value is None:
        return []
    if not isinstance(value, _Object):
        raise ValueError("headers are not a JSON object")
    pairs = []
    for name, given in value:
        texts = given if type(given) is list else [given]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"header {name} is neither text nor a list of texts")
        for text in texts:
            if "\r" in text or "\n" in text or "\r" in name or "\n" in name:
                raise ValueError(f"header {name!r} has a line break, which NATS headers can't have")
            pairs.append((_bytes(name), _bytes(text)))
    return pairs


def _payload(value: Any, columns: DumpColumns) -> bytes:
    if value is None:
        return b""
    if not isinstance(value, str):
        raise ValueError("data is not text; write it as JSON text or base64")
    if columns.data_encoding == "text":
        return _bytes(value)
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"data is not base64: {error}") from error
