"""The rows of the files that a manifest lists, for whoever has no table at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from jobs.files.commit import arrow_schema
from jobs.files.read import Piece, batches
from jobs.files.storage import Storage
from jobs.files.text import restored_rows
from jobs.files.transform import WORDS
from jobs.warehouse.specs import MESSAGES, TRANSFORMED


def read_files(table: str, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of some files of `messages` or `transformed_messages`.

    Raises:
        WarehouseError: a file cannot be read.
    """
    (spec,) = (spec for spec in (MESSAGES, TRANSFORMED) if spec.name == table)
    schema = arrow_schema(spec.schema, WORDS | {"stream", "cluster"})
    for path in paths:
        for batch in batches(Storage(), Piece(path), schema):
            yield restored_rows(batch, spec.rows.names)
