"""The only module that imports PyIceberg's catalogs, which are configured when they are imported.

PyIceberg takes its settings from the environment and from a file `.pyiceberg.yaml` in the folder
that `PYICEBERG_HOME` names, in the home folder, or else in the current folder. The last one may
have come with a repository, or be another user's in a shared folder such as /tmp. It could add
addresses of its author's to the credentials in the environment. So it is not read.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from pyiceberg.typedef import RecursiveDict
from pyiceberg.utils.config import PYICEBERG_HOME, PYICEBERG_YML, Config
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from jobs.errors import WarehouseError

_search = Config._from_configuration_files


def _of_the_user() -> RecursiveDict | None:
    """What PyIceberg finds where it need not go on to the current folder."""
    # "~" is what is left of it where nobody knows the home folder.
    homes = {os.environ.get(PYICEBERG_HOME, ""), os.path.expanduser("~")} - {"", "~"}
    return _search() if any(Path(home, PYICEBERG_YML).is_file() for home in homes) else None


Config._from_configuration_files = staticmethod(_of_the_user)  # type: ignore[method-assign]

from pyiceberg.catalog import Catalog as Catalog  # noqa: E402
from pyiceberg.catalog import load_catalog as load_catalog  # noqa: E402
from pyiceberg.catalog import sql  # noqa: E402
from pyiceberg.catalog.sql import SqlCatalog as SqlCatalog  # noqa: E402

# A pool would keep connections, and SQLite's locks with them, until the garbage collector comes by.
sql.create_engine = partial(create_engine, poolclass=NullPool)  # type: ignore[attr-defined]


def settings_of(catalog: str) -> RecursiveDict:
    """The settings that the user has given to a catalog.

    Raises:
        WarehouseError: there are none.
    """
    settings = Config().get_catalog_config(catalog)
    if not settings:
        here = f"; the one in the current folder is read only with {PYICEBERG_HOME}=."
        raise WarehouseError(
            f"catalog {catalog} is not configured: describe it in {PYICEBERG_YML} in your home "
            f"folder or the folder named by {PYICEBERG_HOME}"
            + (here if Path(PYICEBERG_YML).is_file() else "")
        )
    return settings
