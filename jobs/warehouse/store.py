"""The files of object stores, opened by PyArrow."""

from __future__ import annotations

from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties


class StoreIO(PyArrowFileIO):
    """File systems that end with their last user.

    PyIceberg's own refers to itself through its cache. So its connections, with threads and
    descriptors of their own, would stay until the garbage collector comes by.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        del self.fs_by_scheme  # the cache
        self._systems: dict[tuple[str, str | None], Any] = {}

    def fs_by_scheme(self, scheme: str, netloc: str | None = None) -> Any:
        """The file system of a place, made once."""
        key = scheme, netloc
        if key not in self._systems:
            self._systems[key] = self._initialize_fs(scheme, netloc)
        return self._systems[key]
