"""The digest of rows in Arrow columns, see `nats_transform.digest`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pyarrow as pa

from nats_transform.digest import Digest
from nats_transform.errors import NatsTransformError
from nats_transform.kernel.columns import Columns
from nats_transform.kernel.library import checked, library

_MOST = 64  # bits of the mask that says which columns are null


def digest_batch(batch: pa.RecordBatch | pa.Table, columns: Sequence[str] | None = None) -> Digest:
    """The digest of a batch.

    The digests of two batches add up to that of both: the order of rows and how they are cut into
    batches make no difference.

    Args:
        batch: of string, binary, whole numbers, float64, bool, date32, timestamp, struct and list
            columns, dictionaries among them. Timestamps are hashed as microseconds.
        columns: the columns that count, in this order; by default all.

    Raises:
        NatsTransformError: a column has another type, or an array is broken.
        KernelUnavailable: the kernel is not compiled.
    """
    if isinstance(batch, pa.Table):
        return sum((digest_batch(part, columns) for part in batch.to_batches()), Digest())
    arrays = [_short(batch.column(name)) for name in (columns or batch.schema.names)]
    if len(arrays) > _MOST:
        raise NatsTransformError("digest-too-wide", most=_MOST, columns=len(arrays))
    total = ctypes.c_uint64(0)
    given = Columns(arrays)
    checked(library().nats_digest(given.columns, len(arrays), batch.num_rows, ctypes.byref(total)))
    return Digest(batch.num_rows, total.value)


def _short(array: pa.Array) -> pa.Array:
    """The array, or one without a type if it has no value: there is nothing to look at then.

    A missing list has a hash of its own.
    """
    if array.null_count < len(array) or pa.types.is_nested(array.type):
        return array
    return pa.nulls(len(array))
