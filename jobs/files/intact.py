"""Whether published files are still those that were published: the hash of their bytes says it.

A writer hashes a file while it writes, and the commit that publishes the file keeps the hash in a
property of the table. Nobody changes a published file; so one whose hash is another was changed by
accident, and no job works with it. Files of older releases have no hash: `not_looked_at` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from xxhash import xxh3_64

from jobs.errors import WarehouseError, text_of
from jobs.files.engine import end_if_told, run, session_for
from jobs.files.storage import Storage
from jobs.progress import advance, step
from jobs.warehouse.tables import file_digests
from nats_transform.mappings.unseen import Unseen
from nats_transform.words import plural

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from jobs.session import Spark

_AT_ONCE = 2**20  # bytes
_CURES = {"transformed_messages": "transform its day again", "messages": "ingest its stream anew"}


def _cure(table: Table) -> str:
    return _CURES.get(table.name()[-1], "make the table again")


def _hash_of(storage: Storage, path: str) -> str:
    digest = xxh3_64()
    try:
        filesystem, place = storage.find(path)
        with filesystem.open_input_stream(place, compression=None) as file:
            while block := file.read_buffer(_AT_ONCE):
                end_if_told()
                digest.update(block)
    except OSError as error:
        raise WarehouseError(
            "file-unreadable-in-warehouse", path=storage.shown(path), reason=text_of(error)
        ) from error
    advance()
    return digest.hexdigest()


def changed_files(spark: Spark | None, table: Table, files: Iterable[DataFile]) -> list[str]:
    """The paths of those files that are not as they were published.

    Raises:
        WarehouseError: a file cannot be read.
    """
    sizes = {file.file_path: file.file_size_in_bytes for file in files}
    known = file_digests(table, sizes)
    paths = list(known)
    storage = Storage.of(table)
    session = None if spark is None else session_for(spark, sum(sizes.values()))
    with step(f"verifying {'.'.join(table.name())}", len(paths), "files"):
        digests = run(partial(_hash_of, storage), paths, session)
    found = zip(paths, digests, strict=True)
    return [storage.shown(path) for path, digest in found if digest != known[path]]


def check_files(spark: Spark | None, table: Table, files: Iterable[DataFile]) -> None:
    """Refuses files that were changed since they were published.

    Raises:
        WarehouseError: a file was, or cannot be read.
    """
    if changed := changed_files(spark, table, files):
        more = f" and {len(changed) - 1:,} more files" if len(changed) > 1 else ""
        raise WarehouseError("files-changed", file=changed[0], more=more, cure=_cure(table))


def not_looked_at(table: Table, files: Iterable[DataFile]) -> tuple[Unseen, ...]:
    """The files of which nobody can say whether they changed."""
    paths = [file.file_path for file in files]
    count = len(paths) - len(file_digests(table, paths))
    what = f"whether {plural(count, 'file')} of {table.name()[-1]} changed after being published"
    cure = f"a release without hashes published them: {_cure(table)}"
    return (Unseen(what, cure),) if count else ()
