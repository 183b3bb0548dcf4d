"""Finds the files of a warehouse folder, and makes sure that they are in it.

Iceberg keeps absolute paths. So that a folder can be moved and copied, a file is found by the part
of its path that is inside the folder, `nats/<table>/data/...` or `nats/<table>/metadata/...`,
whatever folder the path was written for. A path without this form, or one that a symbolic link
leads out of the folder, is refused before anything is read, written or deleted.

This module is separate from `folder`, because Spark's Python workers need only this part.
"""

from __future__ import annotations

import os
import re

from jobs.errors import WarehouseError

NAMESPACE = "nats"
FOLDER = "nats-transform.folder"
"""The setting of a table's files that names the folder."""

# The last place that looks so: the folder itself may be within such a path of another warehouse.
_INSIDE = re.compile(rf".*/({NAMESPACE}/[^/]+/(?:data|metadata)(?:/.*)?)", re.DOTALL)


def path_in(folder: str, location: str) -> str:
    """The path of a file in a folder, of whatever folder its location was written for.

    Raises:
        WarehouseError: it is not a file of a warehouse, or not inside of the folder.
    """
    inside = _INSIDE.fullmatch(location)
    if inside is None:
        raise WarehouseError("not-in-warehouse", location=location, folder=folder)
    path = os.path.join(folder, inside[1])
    real, root = os.path.realpath(path), os.path.realpath(folder)
    if os.path.commonpath([real, root]) != root or ".." in inside[1].split("/"):
        raise WarehouseError("leads-out-of-warehouse", path=path, real=real)
    return path
