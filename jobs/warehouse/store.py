"""Object stores: where they are, and their files, which PyArrow opens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties


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
