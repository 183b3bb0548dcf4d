"""The addresses of the buffers of Arrow arrays, which are all that the kernel gets.

So an array must live as long as its `Column` is in use; `Columns` holds both.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pyarrow as pa

from nats_transform.errors import NatsTransformError
from nats_transform.mappings.subject import encode


class Column(ctypes.Structure):
    """`column` of column.h."""

    _fields_ = (
        ("layout", ctypes.c_int32),
        ("is_wide", ctypes.c_int32),
        ("first", ctypes.c_int64),
        ("length", ctypes.c_int64),
        ("valid", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("bytes", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("child_count", ctypes.c_int64),
    )


# The layouts; keep in step with column.h.
NULLS, INT32, INT64, DOUBLE, BYTES, LIST, STRUCT, DICTIONARY = range(8)

_FIXED = {pa.int32(): INT32, pa.int64(): INT64, pa.float64(): DOUBLE, pa.date32(): INT32}
_NARROW = (pa.bool_(), pa.int8(), pa.int16())
"""Spark hashes them as it does int32."""
_TEXT = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
_WIDE = (pa.large_string(), pa.large_binary())
_NOTHING = ctypes.create_string_buffer(16)
"""The address of a buffer that an array does not have, because it has no values."""


class Columns:
    """Arrays for the kernel, with everything that must live as long as the kernel uses them."""

    def __init__(self, arrays: Sequence[pa.Array]) -> None:
        self._kept: list[object] = []
        self.columns = self._columns(arrays)

    def _columns(self, arrays: Sequence[pa.Array]) -> ctypes.Array[Column]:
        columns = (Column * max(len(arrays), 1))(*[self._column(array) for array in arrays])
        self._kept.append(columns)
        return columns

    def _column(self, array: pa.Array) -> Column:
        array = _readable(array)
        self._kept.append(array)
        kind, children = array.type, []
        column = Column(first=array.offset, length=len(array), size=0)
        buffers: list[pa.Buffer | None] = [*array.buffers(), None, None]
        valid, values, data = buffers[:3]
        # Readers of Parquet give bits also where nothing is missing; the kernel is faster without.
        column.valid = self._address(valid, 1) if valid is not None and array.null_count else None
        column.values, column.bytes = self._address(values), self._address(None)
        if pa.types.is_null(kind):
            column.layout = NULLS
        elif kind in _TEXT:
            column.layout, column.is_wide = BYTES, kind in _WIDE
            if data is not None:
                column.bytes, column.size = self._address(data, 1), data.size
        elif pa.types.is_dictionary(kind):
            column.layout, children = DICTIONARY, [array.indices, array.dictionary]
            column.valid = None  # the indexes have it
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            column.layout, column.is_wide = LIST, pa.types.is_large_list(kind)
            children = [array.values]
        elif pa.types.is_struct(kind):
            column.layout = STRUCT
            children = [array.field(number) for number in range(kind.num_fields)]
        elif pa.types.is_timestamp(kind):
            column.layout = INT64
        elif kind in _FIXED:
            column.layout = _FIXED[kind]
        else:
            raise NatsTransformError("column-type-unreadable", kind=kind)
        if children:
            column.children = ctypes.addressof(self._columns(children))
            column.child_count = len(children)
        return column

    def _address(self, buffer: pa.Buffer | None, alignment: int = 8) -> int:
        """The address of a buffer, or of a copy at an address that numbers can be read from."""
        if buffer is None or buffer.size == 0:
            return ctypes.addressof(_NOTHING)
        if buffer.address % alignment:
            aligned = pa.allocate_buffer(buffer.size)
            ctypes.memmove(aligned.address, buffer.address, buffer.size)
            self._kept.append(aligned)
            buffer = aligned
        return int(buffer.address)


def text_array(values: object, role: str) -> pa.Array:
    """An array of texts, or a single text as an array of one.

    Raises:
        NatsTransformError: neither is what was given.
    """
    if values is None or isinstance(values, str | bytes):
        raw = encode(values) if isinstance(values, str) else values
        return pa.array([raw], pa.binary())
    array = _array(values, role)
    inner = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if pa.types.is_null(inner):
        return pa.nulls(len(array), pa.binary())
    if inner not in _TEXT and not _is_other_text(inner):
        raise NatsTransformError("column-not-text", role=role, type=array.type)
    return array


def number_array(values: object, role: str) -> pa.Array:
    """An array of 64-bit numbers, or a single number as an array of one.

    Raises:
        NatsTransformError: neither is what was given, or a number needs more bits.
    """
    try:
        if values is None or isinstance(values, int):
            return pa.array([values], pa.int64())
        array = _array(values, role)
        if pa.types.is_integer(array.type) or pa.types.is_null(array.type):
            return array.cast(pa.int64())
    except (pa.ArrowInvalid, OverflowError):
        raise NatsTransformError("number-over-64-bits-in", role=role) from None
    raise NatsTransformError("column-not-whole-numbers", role=role, type=array.type)


def _array(values: object, role: str) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        raise NatsTransformError("column-not-an-array", role=role, type=type(values).__name__)
    return values


def _is_other_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def _readable(array: pa.Array) -> pa.Array:
    """The array in one of the layouts that the kernel reads.

    Raises:
        NatsTransformError: there is no digest of its type, or the array is broken.
    """
    try:
        array.validate()
        kind = array.type
        if pa.types.is_dictionary(kind):
            # A narrow or unsigned index is rare in what engines write, and small to copy.
            if kind.index_type != pa.int32() or _is_other_text(kind.value_type):
                return pa.DictionaryArray.from_arrays(
                    array.indices.cast(pa.int32()), _readable(array.dictionary)
                )
            return array
        if _is_other_text(kind):
            return array.cast(pa.large_binary())
        if kind in _NARROW:
            return array.cast(pa.int32())
        if pa.types.is_timestamp(kind) and kind.unit != "us":
            return array.cast(pa.timestamp("us", kind.tz))
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        reason = str(error).partition("\n")[0]
        raise NatsTransformError("array-broken", reason=reason) from None
    return array
