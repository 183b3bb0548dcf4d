"""The only module that imports PyIceberg's catalogs, which are configured when they are imported.

PyIceberg takes its settings from the environment and from a file `.pyiceberg.yaml` in the folder
that `PYICEBERG_HOME` names, in the home folder, or else in the current folder. The last one may
have come with a repository, or be another user's in a shared folder such as /tmp. It could add
addresses of its author's to the credentials in the environment. So it is not read.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pyiceberg.avro.reader import Reader
from pyiceberg.exceptions import ForbiddenError, NamespaceAlreadyExistsError
from pyiceberg.typedef import RecursiveDict
from pyiceberg.utils.config import PYICEBERG_HOME, PYICEBERG_YML, Config

from jobs.errors import WarehouseError

_search = Config._from_configuration_files


def _of_the_user() -> RecursiveDict | None:
    """What PyIceberg finds where it need not go on to the current folder."""
    # "~" is what is left of it where nobody knows the home folder.
    homes = {os.environ.get(PYICEBERG_HOME, ""), os.path.expanduser("~")} - {"", "~"}
    return _search() if any(Path(home, PYICEBERG_YML).is_file() for home in homes) else None


Config._from_configuration_files = staticmethod(_of_the_user)  # type: ignore[method-assign]

# PyIceberg (0.12) keeps the readers of every Avro file that it reads, for ever
# (https://github.com/apache/iceberg-python/issues/2325). They need not be the same objects.
Reader.__new__ = lambda cls, *_, **__: object.__new__(cls)  # type: ignore[method-assign]

from pyiceberg.catalog import Catalog as Catalog  # noqa: E402
from pyiceberg.catalog import MetastoreCatalog as MetastoreCatalog  # noqa: E402
from pyiceberg.catalog import load_catalog as _load_catalog  # noqa: E402
from pyiceberg.catalog.noop import NoopCatalog as NoopCatalog  # noqa: E402


def load_catalog(name: str, settings: Mapping[str, Any]) -> Catalog:
    """A catalog that the user has configured.

    Args:
        settings: what PyIceberg is told of it beside what is configured.
    """
    catalog: Any = _load_catalog(name, **settings)
    if engine := getattr(catalog, "engine", None):  # of SQL
        from sqlalchemy import create_engine
        from sqlalchemy.pool import NullPool

        # A pool would keep connections, and SQLite's locks with them, until the garbage collector
        # comes by.
        engine.dispose()
        catalog.engine = create_engine(engine.url, echo=engine.echo, poolclass=NullPool)
    if glue := getattr(catalog, "glue", None):  # AWS's library leaves its sockets open
        weakref.finalize(catalog, glue.close)
    return cast(Catalog, catalog)


def create_namespace(catalog: Catalog, name: str) -> None:
    """Makes a namespace. Who may not make it finds it made: if not, the next call says so."""
    try:
        catalog.create_namespace(name)
    except (NamespaceAlreadyExistsError, ForbiddenError):
        pass
    except Exception as error:
        # SQLAlchemy's, where another job makes it at the same moment.
        if type(error).__name__ != "IntegrityError":
            raise


def configuration_of(catalog: str) -> RecursiveDict:
    """The settings that the user has given to a catalog.

    Raises:
        WarehouseError: there are none.
    """
    settings = Config().get_catalog_config(catalog)
    if not settings:
        here = Path(PYICEBERG_YML).is_file()
        raise WarehouseError(
            "catalog-not-read-here" if here else "catalog-unknown",
            catalog=catalog,
            file=PYICEBERG_YML,
            home=PYICEBERG_HOME,
        )
    return settings
