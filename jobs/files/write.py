"""The Parquet files that tasks write.

The encodings are those that measured best (`docs/measurements.md`): zstd level 1, DELTA encodings
for numbers and payloads, and for subjects a dictionary that ends where they stop repeating. Spark,
DuckDB, Polars and PyIceberg can read the files. Row groups are cut by bytes.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64

from jobs.errors import WarehouseError, text_of
from jobs.files.storage import Storage

GROUP_BYTES = 48 * 2**20
"""The size of a row group in memory. A writer holds one, and so may a reader."""

_NUMBERS = ("seq", "ts", "ts_ns")
_PAYLOADS = ("data",)
_SAMPLE = 4096  # the first bytes of a payload, with which compression is tried
_WORTH = 0.95  # payloads are compressed if the sample shrinks below this part of its size
_LARGE = 256  # bytes of a payload: beside them, the four of its length are nothing
_DICTIONARY = 2**18  # bytes of values; what comes after them is PLAIN
_NO_LIMIT = 2**31 - 1
_WITHOUT_STATISTICS = ("subject", "mapped_subject", "data", "headers", "headers_raw")


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is complete.

    Attributes:
        path: the path of the file, as a table takes it.
        size: the size of the file, in bytes.
        footer: the metadata of the file, from which a commit takes the statistics.
        digest: the hash of all bytes of the file, see `jobs.files.intact`.
    """

    path: str
    size: int
    rows: int
    footer: bytes
    digest: str


class Writer:
    """Writes one file. Its name is unique, also among several attempts at the same task.

    If the context is left by an exception, the file is deleted. A process that is killed leaves an
    incomplete file that belongs to no table; `maintain` deletes it.

    Attributes:
        pending: the bytes of the rows in memory that wait for their row group.
        is_open: whether the file exists; it is made with the first row group.
    """

    def __init__(self, storage: Storage, folder: str, name: str, schema: pa.Schema) -> None:
        self.pending = 0
        self.is_open = False
        self._schema = schema
        self._path = f"{folder}/{name}-{uuid.uuid4().hex}.parquet"
        self._filesystem, self._place = storage.find(self._path)
        self._waiting: list[pa.RecordBatch] = []

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        self._waiting, self.pending = [], 0
        if not self.is_open:
            return
        for close in (self._writer.close, self._sink.close):
            with contextlib.suppress(OSError, pa.ArrowException):
                close()
        with contextlib.suppress(OSError):
            self._filesystem.delete_file(self._place)

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds rows.

        Raises:
            WarehouseError: the file cannot be written.
        """
        self._waiting.append(batch)
        self.pending += batch.nbytes
        if self.pending >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Writes the waiting rows as a row group.

        Raises:
            WarehouseError: the file cannot be written.
        """
        table = pa.Table.from_batches(self._waiting, self._schema)
        # A column whose batches have different dictionaries would be written without one.
        table = table.unify_dictionaries()
        self._waiting, self.pending = [], 0
        try:
            if not self.is_open:
                self._open(table)
            if len(table):
                self._writer.write_table(table, row_group_size=len(table))
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> Written:
        """Completes the file.

        Raises:
            WarehouseError: the file cannot be written.
        """
        self.flush()
        try:
            self._writer.close()
            size = self._sink.tell()
            self._sink.close()
        except OSError as error:
            raise self._failed(error) from error
        # With `metadata_collector`, a writer whose close failed once could never be closed.
        metadata: pq.FileMetaData = self._writer.writer.metadata
        footer = pa.BufferOutputStream()
        metadata.write_metadata_file(footer)
        footer_bytes = footer.getvalue().to_pybytes()
        return Written(self._path, size, metadata.num_rows, footer_bytes, self._sink.digest())

    def _open(self, first: pa.Table) -> None:
        if self._filesystem.type_name == "local":
            self._filesystem.create_dir(self._place.rpartition("/")[0])
        self._sink = _HashedSink(self._filesystem.open_output_stream(self._place))
        self._writer = pq.ParquetWriter(self._sink, self._schema, **_options(first))
        self.is_open = True

    def _failed(self, error: OSError) -> WarehouseError:
        return WarehouseError("write-failed", path=self._path, reason=text_of(error))


class _HashedSink:
    """A file to write that hashes what is written."""

    def __init__(self, sink: Any) -> None:
        self._sink, self._hash = sink, xxh3_64()

    @property
    def closed(self) -> bool:
        return bool(self._sink.closed)

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return int(self._sink.write(data))

    def tell(self) -> int:
        return int(self._sink.tell())

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        self._sink.close()

    def digest(self) -> str:
        """The hash of all that was written."""
        return self._hash.hexdigest()


def _options(rows: pa.Table) -> dict[str, object]:
    """The options of `ParquetWriter` for a file that begins with some rows."""
    columns = [path for field in rows.schema for path in _paths(field.name, field.type)]
    packed = [path for path in columns if path not in _PAYLOADS or _is_smaller(rows[path])]
    encodings = dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED")
    encodings |= dict.fromkeys(_PAYLOADS, "DELTA_LENGTH_BYTE_ARRAY")
    # One copy less. Payloads that are compressed need their lengths apart.
    large = [path for path in _PAYLOADS if path in columns and path not in packed]
    large = [path for path in large if rows[path].nbytes >= _LARGE * len(rows)]
    encodings |= dict.fromkeys(large, "PLAIN")
    encodings = {name: kind for name, kind in encodings.items() if name in columns}
    return {
        "compression": dict.fromkeys(columns, "none") | dict.fromkeys(packed, "zstd"),
        "compression_level": dict.fromkeys(packed, 1),
        "use_dictionary": [path for path in columns if path not in encodings],
        "dictionary_pagesize_limit": _DICTIONARY,
        "max_rows_per_page": _NO_LIMIT,  # pages end by their bytes
        "column_encoding": encodings,
        "write_statistics": [
            path for path in columns if path.partition(".")[0] not in _WITHOUT_STATISTICS
        ],
        "write_page_checksum": True,
        # Without Arrow's schema, readers take the types from Parquet's: text, not dictionaries.
        "store_schema": False,
    }


def _is_smaller(payloads: pa.ChunkedArray) -> bool:
    """Whether zstd makes a sample of payloads smaller. Many are already compressed or encrypted."""
    sample = b"".join(
        value.as_py()[:_SAMPLE] or b""
        for chunk in payloads.chunks
        for value in chunk[:: max(1, len(chunk) // 16)]
        if value.is_valid
    )
    return len(pa.Codec("zstd", 1).compress(sample)) < _WORTH * len(sample)


def _paths(name: str, kind: pa.DataType) -> list[str]:
    """The names in the file of a column, or of those inside of a list or a struct."""
    if pa.types.is_list(kind):
        return _paths(f"{name}.list.element", kind.value_type)
    if pa.types.is_struct(kind):
        return [path for field in kind for path in _paths(f"{name}.{field.name}", field.type)]
    return [name]
