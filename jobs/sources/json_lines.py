"""Dumps with one JSON object a line. Empty lines are skipped."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from jobs.errors import ArchiveError
from jobs.files.engine import run
from jobs.files.storage import Storage
from jobs.settings.ingest import DumpColumns, IngestSettings
from jobs.sources.blocks import BLOCK_BYTES, Block, chosen, numbered
from jobs.sources.files import DumpFile, DumpFiles, located, unreadable
from jobs.sources.layouts import READ, Layouts, Part
from jobs.sources.line import JsonObject, Message, Parser, decode, parse_line
from jobs.warehouse.rows import constant, header_lists, raw_text, rows_of
from nats_transform.collector import no_search_for_cycles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
_IS_INK = np.array([not bytes([byte]).isspace() for byte in range(256)])
_BATCH_ROWS = 50_000
_BUFFER = 4 * 2**20  # a header of 7 bytes takes 128 in Python
LARGEST_LINE = 96 * 2**20
"""The most bytes of a line: the largest payload of nats-server in base64, and some more."""


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
    seen = [*(count.seen for count in counts), *(dict(file.columns) for file in files.read)]
    if missing := set(columns.optional).difference(*seen):
        have = next((count.first for count in counts if count.first), ())
        raise ArchiveError(
            "lines-without-column", path=files.path, column=min(missing), have=", ".join(have)
        )
    _check_folders(files, columns)
    names = next((count.first for count in counts if count.lines), ())
    if columns.seq is None and "seq" in names:  # then each line needs one
        columns = columns.model_copy(update={"seq": "seq"})
        settings = settings.model_copy(update={"columns": columns})
    pairs = zip(cut, counts, strict=True)
    blocks = [replace(block, messages=count.lines) for block, count in pairs]
    return JsonLines(storage, settings), numbered(blocks, columns.first_seq)


def _check_folders(files: DumpFiles, columns: DumpColumns) -> None:
    """Raises ArchiveError if a folder names something of messages that only lines can."""
    ours = {"subject", "seq", "ts", "ts_ns", "time", "headers", "data"}
    declared = (columns.subject, columns.seq, columns.time, columns.headers, columns.data)
    ours.update(filter(None, declared))
    for file in files.read:
        if name := next((name for name, _ in file.columns if name in ours), None):
            raise ArchiveError("lines-folder-column", path=file.path, name=name)


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
        layouts, parser = Layouts(self.settings.columns), Parser(self.settings.columns)
        folders, cluster = dict(block.file.columns), self.settings.columns.cluster or "cluster"
        start = 0
        for all_lines in _lines(self.storage, block):
            for first in range(0, len(all_lines), _BATCH_ROWS):
                lines = all_lines.slice(first, _BATCH_ROWS)
                parts, others = layouts.read(lines, block.seq + start)
                if len(others):
                    messages = []
                    texts = lines.take(pa.array(others)).to_pylist()
                    for n, line in zip((others + start).tolist(), texts, strict=True):
                        place = f"{block.file.path}: message {block.number + n}"
                        messages.append(parse_line(line, block.seq + n, place, parser))
                    parts.append((others, _columns(messages)))
                rows = rows_of(self.settings.stream, *_in_order(parts))
                if self.settings.columns.seq is None:
                    _check_numbers(rows.column("seq").to_numpy(), block, start)
                if cluster in folders:
                    place = rows.schema.get_field_index("cluster")
                    column = constant(folders[cluster], len(rows))
                    rows = rows.set_column(place, "cluster", column)
                yield chosen(rows, self.settings)
                start += len(lines)


def _check_numbers(numbers: np.ndarray, block: Block, start: int) -> None:
    """Raises ArchiveError if a line names a sequence, and the first line of the dump none."""
    (named,) = np.nonzero(numbers != block.seq + start + np.arange(len(numbers)))
    if len(named):
        raise ArchiveError(
            "lines-some-sequences", path=block.file.path, number=block.number + start + named[0]
        )


def _columns(messages: list[Message]) -> pa.RecordBatch:
    seq, ts_ns, subject, cluster, headers, data = zip(*messages, strict=True)
    pairs = [pair for of_message in headers for pair in of_message]
    names, values = (raw_text([pair[n] for pair in pairs]) for n in (0, 1))
    columns = [pa.array(seq, pa.int64()), pa.array(ts_ns, pa.int64()), raw_text(subject)]
    columns += [raw_text(cluster), header_lists([0, *accumulate(map(len, headers))], names, values)]
    return pa.RecordBatch.from_arrays([*columns, pa.array(data, pa.binary())], schema=READ)


def _in_order(parts: Sequence[Part]) -> list[pa.Array]:
    """The columns of all lines, in the order of their places, as `rows_of` takes them."""
    rows = parts[0][1]
    if len(parts) > 1:
        order = np.argsort(np.concatenate([places for places, _ in parts]))
        rows = pa.Table.from_batches([part for _, part in parts]).combine_chunks().to_batches()[0]
        rows = rows.take(pa.array(order))
    *columns, data = rows.columns
    return [*columns, pa.nulls(len(rows), pa.binary()), data]


def _compression(path: str) -> str | None:
    return _COMPRESSED.get(os.path.splitext(path)[1].lower())


def _cut(file: DumpFile) -> list[Block]:
    if _compression(file.path) or file.size <= BLOCK_BYTES:
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
    count, first, left = 0, tuple[str, ...](), set(wanted)
    texts = [name.encode() for name in wanted]
    for lines in _lines(storage, block):
        if not count and len(lines):
            first = _names(lines[0].as_py())
        for line in lines.to_pylist() if left else ():
            # Any character of a name may be written as an escape.
            if b"\\u" in line or any(text in line for text in texts):
                left.difference_update(_names(line))
                if not left:
                    break
        count += len(lines)
    return _Counted(count, first, frozenset(wanted) - left)


def _names(line: bytes) -> tuple[str, ...]:
    """The names in a line; none if it is no object, which its reader says."""
    with contextlib.suppress(ValueError, RecursionError):
        document = decode(line)
        return tuple(name for name, _ in document) if isinstance(document, JsonObject) else ()
    return ()


def _lines(storage: Storage, block: Block) -> Iterator[pa.Array]:
    """The lines that begin in a block and are not empty, some MiB of bytes at a time."""
    path = block.file.path
    try:
        filesystem, place = located(storage, path)
        opened = (
            filesystem.open_input_stream(place, compression=_compression(path))
            if block.end is None
            else filesystem.open_input_file(place)
        )
        with closing(opened), io.BufferedReader(opened, _BUFFER) as file:
            at = block.start
            if at:
                file.seek(at - 1)
                at += len(file.readline(LARGEST_LINE)) - 1  # what began before
            while block.end is None or at < block.end:
                text = file.read(_BUFFER if block.end is None else min(_BUFFER, block.end - at))
                if not text:
                    return
                if not text.endswith(b"\n"):
                    text += file.readline(LARGEST_LINE)
                starts = _starts(text)
                sizes = np.diff(starts)
                if sizes.max() > LARGEST_LINE:
                    start = at + starts[np.argmax(sizes > LARGEST_LINE)]
                    raise ArchiveError(
                        "line-too-large", path=path, start=start, most=LARGEST_LINE >> 20
                    )
                at += len(text)
                yield _not_empty(text, starts)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error


def _starts(text: bytes) -> np.ndarray:
    """Where the lines of a text start, and last where it ends."""
    starts = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    return np.concatenate([[0], starts, [] if text.endswith(b"\n") else [len(text)]]).astype(
        np.int32
    )


def _not_empty(text: bytes, starts: np.ndarray) -> pa.Array:
    """The lines of a text that have more than white space."""
    count = len(starts) - 1
    lines = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(starts), pa.py_buffer(text)]
    )
    characters = np.frombuffer(text, np.uint8)
    if not (characters[starts[:-1]] <= ord(" ")).any():
        return lines
    return lines.filter(pa.array(np.logical_or.reduceat(_IS_INK[characters], starts[:-1])))
