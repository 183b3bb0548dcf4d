"""Object stores: where they are, and their files, which PyArrow opens."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from datetime import timedelta
from hashlib import blake2b
from types import SimpleNamespace
from typing import Any

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import ADLS_ACCOUNT_NAME, InputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.serializers import FromByteStream
from pyiceberg.typedef import EMPTY_DICT, Properties, Record

from jobs.errors import WarehouseError
from jobs.warehouse.avro import is_whole

_PATIENCE = timedelta(seconds=20)
"""How long PyArrow asks Google's store again if it doesn't answer; else a quarter of an hour."""


def with_endpoint(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of PyIceberg with the endpoint of S3 that the environment names, if they name none.

    PyArrow takes keys from the environment, but calls AWS. A store that is not AWS's has no region
    to ask for, though requests are signed for one.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint or "s3.endpoint" in settings:
        return dict(settings)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    named = {"s3.endpoint": endpoint, "s3.region": settings.get("client.region", region)}
    return named | dict(settings)


class StoreIO(PyArrowFileIO):
    """File systems that end with their last user.

    PyIceberg's own refers to itself through its cache. So its connections, with threads and
    descriptors of their own, would stay until the garbage collector comes by.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(with_endpoint(properties))
        del self.fs_by_scheme  # the cache
        self._systems: dict[tuple[str, str | None], Any] = {}

    def fs_by_scheme(self, scheme: str, netloc: str | None = None) -> Any:
        """The file system of a place, made once."""
        key = scheme, netloc
        if key not in self._systems:
            self._systems[key] = self._initialize_fs(scheme, netloc)
        return self._systems[key]

    def _initialize_azure_fs(self) -> Any:
        if not self.properties.get(ADLS_ACCOUNT_NAME):
            raise WarehouseError("azure-without-account")
        return super()._initialize_azure_fs()

    def _initialize_gcs_fs(self) -> Any:
        # PyIceberg has no setting for it; what PyArrow would pickle are the settings it was given.
        make, (settings,) = super()._initialize_gcs_fs().__reduce__()
        return make(settings | {"retry_time_limit": _PATIENCE})

    def new_input(self, location: str) -> PyArrowFile:
        """A file to read."""
        file = super().new_input(location)
        return file_of(location, file._path, file._filesystem)


def file_of(location: str, path: str, filesystem: Any) -> PyArrowFile:
    """A file of a table; one that says which files there are is looked at before it is read."""
    is_list = location.endswith((".avro", ".metadata.json"))
    return (_List if is_list else PyArrowFile)(location, path, filesystem)


class _List(PyArrowFile):
    """A file that lists others. One that was damaged is refused: it would hide data files."""

    def open(self, seekable: bool = True) -> InputStream:
        try:
            with super().open(seekable) as stream:
                data = stream.read()
        except FileNotFoundError:
            raise damaged(self._path, "is missing") from None
        # A job reads the same lists several times, and to look at them takes as long as to read.
        is_avro = self.location.endswith(".avro")
        seen = is_avro, blake2b(data, digest_size=16).digest()
        if seen not in _whole:
            try:
                # PyIceberg's own errors name no file; and it reads on behind the end of a list.
                if not is_avro:
                    FromByteStream.table_metadata(io.BytesIO(data))
                elif not is_whole(data):
                    raise ValueError
                else:
                    file: Any = SimpleNamespace(open=lambda: io.BytesIO(data))
                    with AvroFile[Record](file) as entries:
                        for _ in entries:
                            pass
            except Exception:  # noqa: BLE001 - of whatever kind PyIceberg's readers raise
                raise damaged(self._path) from None
            if len(_whole) >= _MOST_LISTS:
                _whole.clear()
            _whole.add(seen)
        return io.BytesIO(data)


_whole: set[tuple[bool, bytes]] = set()  # the kinds and digests of lists that are not damaged
_MOST_LISTS = 10_000


def damaged(path: str, how: str = "was cut or damaged") -> WarehouseError:
    """The error about a file that lists others, and that lacks some of them."""
    return WarehouseError("catalog-damaged", path=path, how=how)
