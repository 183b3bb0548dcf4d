"""The file systems of a table, in a form that can be sent to a task.

The pyarrow file system of an object store is made from PyIceberg's settings (endpoint, keys,
region), so it needs no other settings. A local file needs no PyIceberg, whose import would often
take longer than reading the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import pyarrow.fs as pafs

from jobs.warehouse.paths import FOLDER, path_in

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True)
class Storage:
    """The file systems of a table.

    Attributes:
        settings: the settings for PyIceberg; they may hold keys, so they are never shown.
    """

    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, table: Table) -> Storage:
        """The storage of a table, with the settings of its catalog."""
        return cls(dict(table.io.properties))

    def shown(self, uri: str) -> str:
        """What errors call a file: the path that is opened, or its address in a store.

        A table of a folder that was copied or moved has the paths of the other folder.

        Raises:
            WarehouseError: the file is not in the folder of the warehouse.
        """
        folder = self.settings.get(FOLDER)
        return path_in(folder, uri) if folder else uri

    def find(self, uri: str) -> tuple[Any, str]:
        """The pyarrow file system of a file, and the path in it.

        Raises:
            WarehouseError: the file is not in the folder of the warehouse.
        """
        if FOLDER in self.settings:
            return pafs.LocalFileSystem(), self.shown(uri)
        if uri.startswith(("file:", "/")):
            path = urlparse(uri).path if uri.startswith("file:") else uri
            return pafs.LocalFileSystem(), path
        from jobs.warehouse.store import StoreIO

        scheme, place, path = StoreIO.parse_location(uri, dict(self.settings))
        return StoreIO(dict(self.settings)).fs_by_scheme(scheme, place), path
