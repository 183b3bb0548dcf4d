"""A folder for a new backup, which becomes visible only when it is complete and was checked.

A local folder is made under another name beside its place, and then renamed. An object store cannot
rename, so the files are made on this machine. `backup.json`, without which there is no backup, is
uploaded last.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from jobs.ending import is_full
from jobs.errors import JobError, text_of
from jobs.files.storage import Storage
from jobs.sources.backup import CONTENTS, INFO
from jobs.sources.files import located
from jobs.warehouse.paths import FOLDER


class NewBackup:
    """The folder while it is made; it is deleted if it is left without `publish`.

    Args:
        place: a path, or the URI of a folder in an object store.
        storage: has the keys of the object store.

    Attributes:
        content: the file for the archive, on this machine.
        size: its bytes, once it was published.

    Raises:
        JobError: the place is taken, or cannot be written.
    """

    def __init__(self, place: str, storage: Storage) -> None:
        self._place, self._is_local = place, "://" not in place
        self.size = 0
        try:
            if FOLDER in storage.settings:  # a warehouse that has no keys
                storage = Storage()
            there = str(Path(place).absolute()) if self._is_local else place.rstrip("/")
            self._filesystem, self._path = located(storage, there)
            # In a store also what is in folders of it: PyArrow does not list those of Google's.
            listed = pafs.FileSelector(
                self._path, allow_not_found=True, recursive=not self._is_local
            )
            is_file = self._filesystem.get_file_info(self._path).is_file
            if is_file or self._filesystem.get_file_info(listed):
                raise JobError("new-backup-exists", place=place)
            self._work = self._make_folder()
        except (OSError, pa.ArrowException, ImportError, ValueError) as error:
            raise JobError("new-backup-unwritable", place=place, reason=text_of(error)) from error
        self.content = self._work / CONTENTS[0]

    def _make_folder(self) -> Path:
        if not self._is_local:
            return Path(tempfile.mkdtemp(prefix="nats-transform-"))
        folder = Path(self._path)
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
        work.mkdir()
        return work

    def publish(self, described: Mapping[str, Any]) -> None:
        """Puts the backup in its place, with what `backup.json` says of it."""
        try:
            self.size = self.content.stat().st_size
            (self._work / INFO).write_text(json.dumps(described, indent=2) + "\n")
            if self._is_local:
                # Into an empty folder too, as people make them for a backup.
                self._work.replace(self._path)
                return
            for name in (CONTENTS[0], INFO):
                pafs.copy_files(
                    str(self._work / name),
                    f"{self._path}/{name}",
                    pafs.LocalFileSystem(),
                    self._filesystem,
                )
        except (OSError, pa.ArrowException) as error:
            raise JobError(
                "new-backup-unwritable", place=self._place, reason=text_of(error)
            ) from error

    def __enter__(self) -> NewBackup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        if is_full(error):
            raise JobError(
                "new-backup-no-room", place=self._place, folder=self._work.parent
            ) from error
