"""Dumps in Parquet: each column that can be taken for one of ours, as rows of the table."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.errors import ArchiveError, text_of
from jobs.files.engine import run
from jobs.files.read import rows_of_batch
from jobs.files.storage import Storage
from jobs.jetstream.headers import header_columns
from jobs.settings.ingest import IngestSettings
from jobs.sources.blocks import BLOCK_BYTES, NO_TIME, Block, chosen, numbered
from jobs.sources.files import DumpFile, DumpFiles, located, unreadable
from jobs.sources.times import EPOCH_UNITS, epoch_ns
from jobs.warehouse.raw import RAW
from jobs.warehouse.rows import DAY_NS, header_lists, no_headers, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST = 2**63 - 1
# A value of a dictionary may stand in every row, so batches are sized by what rows have if it does.
# Headers have many values a row: the largest row is looked for, which takes longer, only if they
# could take more than MOST_HEADERS together.
_BATCH_BYTES, _LARGEST_ROW, MOST_HEADERS = 16 * 2**20, 128 * 2**20, 256 * 2**20
MOST_VALUES = 16 * 2**20  # of a column in a row group; even nulls take memory
_VALUE_BYTES = 24  # what a value takes beside its text
_PACKED = 1000  # a column of many bytes is not packed to less than one in so many
# What a block may unpack to, in bytes: so much, and so much for each byte of its file.
UNPACKED, UNPACKED_A_BYTE = 2**30, 10_000
_TEXT = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())
_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


@dataclass(frozen=True)
class Footer:
    """What a file says of itself.

    Attributes:
        groups: the rows and the bytes of each row group.
    """

    columns: tuple[str, ...]
    groups: tuple[tuple[int, int], ...]


def _read_footer(storage: Storage, file: DumpFile) -> Footer:
    with _opened(storage, file) as parquet:
        meta = parquet.metadata
        filesystem, place = located(storage, file.path)
        with filesystem.open_input_file(place) as opened:
            opened.seek(file.size - 8)
            # Longer by a signature: a column is encrypted, and pyarrow aborts if asked for it.
            if int.from_bytes(opened.read(4), "little") != meta.serialized_size:
                raise OSError("a column is encrypted")
        groups = [meta.row_group(n) for n in range(meta.num_row_groups)]
        names = tuple(parquet.schema_arrow.names)
        return Footer(names, tuple((g.num_rows, g.total_byte_size) for g in groups))


@contextmanager
def _opened(
    storage: Storage, file: DumpFile, dictionaries: Sequence[str] = ()
) -> Iterator[pq.ParquetFile]:
    """A file, whose errors name it and say what to do.

    Args:
        dictionaries: the paths of columns that are read as dictionaries.
    """
    try:
        filesystem, place = located(storage, file.path)
        with (
            filesystem.open_input_file(place) as opened,
            pq.ParquetFile(
                opened,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit="us",  # what Spark writes there
                pre_buffer=filesystem.type_name != "local",
                read_dictionary=list(dictionaries),
            ) as parquet,
        ):
            yield parquet
    except (OSError, pa.ArrowException) as error:
        raise unreadable(file.path, error) from error


def open_parquet(
    storage: Storage, files: DumpFiles, settings: IngestSettings, spark: SparkSession | None
) -> tuple[Parquet, list[Block]]:
    """What reads a dump in Parquet, and its blocks: row groups, gathered.

    Raises:
        ArchiveError: a file is no Parquet, or a column is missing.
    """
    footers = run(partial(_read_footer, storage), files.read, spark)
    # A column counts if any file has it.
    names = dict.fromkeys(name for footer in footers for name in footer.columns)
    names |= dict.fromkeys(name for file in files.read for name, _ in file.columns)
    try:
        columns = settings.columns.find(tuple(names))
    except ValueError as error:
        raise ArchiveError("parquet-invalid", path=files.path, reason=error) from error
    if not columns.keys() & {"ts", "ts_ns"}:
        raise ArchiveError(
            "parquet-without-time", path=files.path, cure=NO_TIME, names=", ".join(names)
        )
    pairs = [*zip(files.read, footers, strict=True)]
    for file, footer in pairs:
        if twice := next((n for n in columns.values() if footer.columns.count(n) > 1), None):
            raise ArchiveError("parquet-column-twice", path=file.path, name=twice)
    blocks = [block for file, footer in pairs for block in _gathered(file, footer)]
    return Parquet(storage, settings, columns), numbered(blocks, settings.columns.first_seq)


@dataclass(frozen=True)
class Parquet:
    """Reads blocks of such a dump, in tasks.

    Attributes:
        settings: the encoding of payloads that are text, and which messages are wanted.
        columns: the columns of the dump that stand for ours.
    """

    storage: Storage
    settings: IngestSettings
    columns: dict[str, str]

    def __call__(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The messages of a block.

        Raises:
            ArchiveError: the file is damaged, or a column cannot be taken for what it should be.
        """
        seq, path = block.seq, block.file.path
        left = UNPACKED + UNPACKED_A_BYTE * block.file.size
        with (
            _opened(self.storage, block.file) as file,
            _opened(self.storage, block.file, _texts(file)) as encoded,
        ):
            there = set(file.schema_arrow.names)
            wanted = [name for name in self.columns.values() if name in there]
            for group in range(block.start, block.end or 0):
                for batch in file.iter_batches(
                    batch_size=self._rows_of_batch(path, encoded, group, wanted),
                    row_groups=[group],
                    columns=wanted,
                    use_threads=False,
                ):
                    left -= batch.nbytes
                    if left < 0:
                        raise ArchiveError("parquet-bomb", path=path, most=UNPACKED_A_BYTE)
                    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                    for name, value in block.file.columns:
                        columns[name] = pa.repeat(pa.scalar(value, pa.string()), len(batch))
                    # pandas knows no type for a column without values.
                    taken = {
                        ours: _Column(columns[name], name, path)
                        for ours, name in self.columns.items()
                        if name in columns and not pa.types.is_null(columns[name].type)
                    }
                    yield chosen(self._rows(taken, seq, len(batch)), self.settings)
                    seq += len(batch)

    def _rows_of_batch(
        self, path: str, encoded: pq.ParquetFile, group: int, wanted: Sequence[str]
    ) -> int:
        """How many rows of a row group make a batch, however often their values repeat.

        Args:
            encoded: the file, with its texts as dictionaries.

        Raises:
            ArchiveError: a row is larger than any message, or there are too many values.
        """
        metadata = encoded.metadata.row_group(group)
        leaves = [
            (encoded.schema.column(number), metadata.column(number))
            for number in range(metadata.num_columns)
        ]
        leaves = [pair for pair in leaves if pair[0].path.partition(".")[0] in wanted]
        largest: int = metadata.total_byte_size // max(1, metadata.num_rows)
        for leaf, column in leaves:
            if column.num_values > max(MOST_VALUES, metadata.num_rows):
                raise ArchiveError(
                    "parquet-too-many-values",
                    path=path,
                    column=leaf.path,
                    values=column.num_values,
                    group=group,
                    most=MOST_VALUES,
                )
            size = column.total_uncompressed_size
            if size > max(_LARGEST_ROW, _PACKED * column.total_compressed_size):
                raise ArchiveError(
                    "parquet-unpacks-too-large",
                    path=path,
                    column=leaf.path,
                    size=size >> 20,
                    group=group,
                    most=_LARGEST_ROW >> 20,
                )
            if column.physical_type == "BYTE_ARRAY" and column.has_dictionary_page:
                largest += _largest_row(encoded, group, leaf, column.num_values)
        if largest > _LARGEST_ROW:
            raise ArchiveError(
                "parquet-row-too-large", path=path, group=group, largest=largest >> 20
            )
        return max(1, min(rows_of_batch(metadata), _BATCH_BYTES // max(1, largest)))

    def _rows(self, taken: dict[str, _Column], first: int, count: int) -> pa.RecordBatch:
        def column(name: str, take: Callable[[_Column], pa.Array], kind: pa.DataType) -> pa.Array:
            return take(taken[name]) if name in taken else pa.nulls(count, kind)

        def exact_text(name: str, take: Callable[[_Column], pa.Array]) -> pa.Array:
            text = column(name, take, pa.string())
            if name + RAW not in taken:
                return text
            raw = taken[name + RAW].exact()
            return pc.coalesce(raw, text.view(pa.binary())).view(pa.string())

        times = "ts_ns" if "ts_ns" in taken else "ts"
        data = taken.get("data")
        headers = taken["headers"].headers() if "headers" in taken else no_headers(count)
        if "headers_raw" in taken:
            headers, blocks = _with_blocks(headers, taken["headers_raw"].exact())
        else:
            blocks = pa.nulls(count, pa.binary())
        return rows_of(
            self.settings.stream,
            # Without a name for it, the place in the dump; not where other files have one.
            column("seq", _Column.integers, pa.int64())
            if "seq" in self.columns
            else pa.array(first + np.arange(count)),
            column(times, _Column.integers if times == "ts_ns" else _Column.times, pa.int64()),
            exact_text("subject", _Column.text),
            exact_text("cluster", _Column.words),
            headers,
            blocks,
            data.payload(self.settings.columns.data_encoding) if data else pa.repeat(b"", count),
        )


def _texts(file: pq.ParquetFile) -> list[str]:
    """The paths of the columns that can be read as dictionaries."""
    columns = [file.schema.column(number) for number in range(len(file.schema))]
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _largest_row(file: pq.ParquetFile, group: int, leaf: Any, count: int) -> int:
    """The most bytes that the values of a dictionary can take in one row; 0 if few altogether."""
    largest = 0
    for batch in file.iter_batches(1024, [group], [leaf.path], use_threads=False):
        values, offsets = batch.column(0), np.arange(len(batch) + 1)
        while not pa.types.is_dictionary(values.type):
            if pa.types.is_struct(values.type):
                (values,) = values.flatten()
            else:
                inner, values = _entries(values)
                offsets = inner[offsets]
        sizes = pc.fill_null(pc.binary_length(values.dictionary), 0).to_numpy()
        most = int(sizes.max(initial=0))
        if not len(sizes):
            continue
        if leaf.max_repetition_level == 0:
            return most
        if count * (most + _VALUE_BYTES) <= MOST_HEADERS:
            return 0
        places = values.indices.fill_null(0).to_numpy()
        ends = np.concatenate([[0], np.cumsum(sizes[places] + _VALUE_BYTES)])
        largest = max(largest, int(np.diff(ends[offsets]).max(initial=0)))
    return largest


def _gathered(file: DumpFile, footer: Footer) -> Iterator[Block]:
    start = rows = size = 0
    for number, (group_rows, group_bytes) in enumerate(footer.groups):
        if rows and size + group_bytes > BLOCK_BYTES:
            yield Block(file, start, number, rows)
            start, rows, size = number, 0, 0
        rows, size = rows + group_rows, size + group_bytes
    if rows:
        yield Block(file, start, len(footer.groups), rows)


class _Column:
    """A column of a file, and how it is taken for one of ours."""

    def __init__(self, values: pa.Array, name: str, path: str) -> None:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        self.values, self._name, self._path = values, name, path

    def _wrong(self, wanted: str) -> ArchiveError:
        return ArchiveError(
            "parquet-column-type",
            path=self._path,
            name=self._name,
            type=self.values.type,
            wanted=wanted,
        )

    def _fault(self, error: Exception) -> ArchiveError:
        return ArchiveError(
            "parquet-column-invalid", path=self._path, name=self._name, reason=text_of(error)
        )

    def integers(self) -> pa.Array:
        """Whole numbers, as they are."""
        if not pa.types.is_integer(self.values.type):
            raise self._wrong("an integer")
        try:
            return self.values.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise self._fault(error) from error

    def text(self) -> pa.Array:
        """Text of any bytes, of text or bytes."""
        if self.values.type not in _TEXT and not _is_bytes(self.values.type):
            raise self._wrong("text or bytes")
        return _as_text(self.values)

    def exact(self) -> pa.Array:
        """The bytes that a table keeps beside its text, where the text does not have them."""
        if self.values.null_count == len(self.values):
            return pa.nulls(len(self.values), pa.binary())
        if not _is_bytes(self.values.type):
            raise self._wrong("bytes")
        return self.values.cast(pa.binary())

    def words(self) -> pa.Array:
        """Text, of anything."""
        try:
            return _as_text(self.values)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._wrong("text") from error

    def payload(self, encoding: str) -> pa.Array:
        """Bytes, of bytes or text; null where it is no base64, which the ingest refuses."""
        is_text = self.values.type in _TEXT
        if not is_text and not _is_bytes(self.values.type):
            raise self._wrong("bytes or text")
        payloads = self.values.cast(pa.binary()).fill_null(b"")
        if encoding == "text" or not is_text:
            return payloads
        return pa.array(map(_of_base64, payloads.to_pylist()), pa.binary())

    def times(self) -> pa.Array:
        """Nanoseconds since 1970; null where 64 bits do not hold them, which the ingest refuses."""
        kind = self.values.type
        if pa.types.is_timestamp(kind):  # UTC, if it names no zone
            return _scaled(self.values.cast(pa.int64()), _UNIT_NS[kind.unit])
        if pa.types.is_date32(kind):
            return _scaled(self.values.cast(pa.int32()).cast(pa.int64()), DAY_NS)
        if pa.types.is_integer(kind):
            return self._epochs()
        if kind not in _TEXT:
            raise self._wrong("a timestamp, ISO 8601 text or an epoch")
        try:
            return pa.array(
                [None if text is None else epoch_ns(text) for text in self.values.to_pylist()],
                pa.int64(),
            )
        except ValueError as error:
            raise self._fault(error) from error

    def _epochs(self) -> pa.Array:
        values = self.integers()
        numbers = np.abs(values.fill_null(0).to_numpy())
        times = values
        for below, unit in reversed(EPOCH_UNITS):
            times = pc.if_else(pa.array(numbers < below), _scaled(values, unit), times)
        return times

    def headers(self) -> pa.Array:
        """Lists of pairs; an empty one where there is nothing."""
        kind = self.values.type
        if pa.types.is_struct(kind) and all(field.type in _TEXT for field in kind):
            return self._headers_of_fields()
        if pa.types.is_map(kind) and kind.key_type in _TEXT:
            offsets, entries = _entries(self.values)
            names, values = _as_text(entries.field(0)), entries.field(1)
            if kind.item_type in _TEXT:
                return header_lists(offsets, names, _as_text(values))
            if pa.types.is_list(kind.item_type) and kind.item_type.value_type in _TEXT:
                # Where there is no list, a header without a value: it is refused later.
                lists = [
                    [None] if of_header is None else of_header for of_header in values.to_pylist()
                ]
                sizes = np.cumsum([0, *map(len, lists)])
                flat = pa.array([value for of_header in lists for value in of_header], pa.string())
                repeated = names.take(pa.array(np.repeat(np.arange(len(lists)), np.diff(sizes))))
                return header_lists(sizes[offsets], repeated, flat)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            pair = kind.value_type
            if pa.types.is_struct(pair) and [field.name for field in pair] == ["name", "value"]:
                offsets, entries = _entries(self.values)
                return header_lists(offsets, *map(_as_text, entries.flatten()))
        raise self._wrong("a map or a list of (name, value)")

    def _headers_of_fields(self) -> pa.Array:
        fields = [_as_text(field) for field in self.values.flatten()]
        present = np.array([field.is_valid().to_numpy(zero_copy_only=False) for field in fields]).T
        rows, places = np.nonzero(present)
        flat = pa.concat_arrays(fields).take(pa.array(places * len(self.values) + rows))
        names = pa.array([field.name for field in self.values.type]).take(pa.array(places))
        return header_lists(np.cumsum([0, *present.sum(axis=1)]), names, flat)


def _with_blocks(headers: pa.Array, blocks: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The headers, and the blocks that they do not reproduce; where there is a block, of it."""
    (rows,) = np.nonzero(blocks.is_valid().to_numpy(zero_copy_only=False))
    if not len(rows):
        return headers, blocks
    places = np.arange(len(headers))
    places[rows] = len(headers) + np.arange(len(rows))
    read, kept = header_columns(blocks.drop_null().to_pylist())
    missing = pa.nulls(len(headers), pa.binary())
    return (
        pa.concat_arrays([headers, read]).take(pa.array(places)),
        pa.concat_arrays([missing, kept]).take(pa.array(places)),
    )


def _of_base64(text: bytes) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in _BYTES or pa.types.is_fixed_size_binary(kind)


def _as_text(values: pa.Array) -> pa.Array:
    """A column of text that nobody checks."""
    kind = values.type
    if kind not in _TEXT and not _is_bytes(kind):
        return values.cast(pa.string())
    return values.cast(pa.binary()).view(pa.string())


def _scaled(values: pa.Array, unit: int) -> pa.Array:
    """The product where 64 bits hold it; it is formed only there."""
    numbers = values.fill_null(_MOST).to_numpy() if values.null_count else values.to_numpy()
    fits = (numbers <= _MOST // unit) & (numbers >= -(_MOST // unit))
    known = fits & values.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(np.where(known, numbers, 0) * unit, mask=~known)


def _entries(lists: Any) -> tuple[np.ndarray, Any]:
    """Where the entries of each list begin, from 0, and the entries; null is an empty list."""
    if pa.types.is_fixed_size_list(lists.type):  # which has no offsets
        lists = lists.cast(pa.list_(lists.type.value_type))
    offsets = lists.offsets.to_numpy()
    values = lists.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return offsets - offsets[0], values
