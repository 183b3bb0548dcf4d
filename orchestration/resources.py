"""Resources: the tables, the Spark session and the nats-server of an archive.

Each `SubjectArchive` adds its own to the definitions, as `NAME_warehouse`, `NAME_spark` and, if a
server is among its sources, `NAME_nats`, so assets of a project use what the archive uses.
"""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import dagster as dg
from nats.aio.client import Client
from pydantic import Field, create_model
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from jobs.jetstream.connection import connection
from jobs.session import SessionOnDemand
from jobs.settings.base import Settings
from jobs.settings.connection import NatsSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.paths import NAMESPACE
from jobs.warehouse.specs import QUARANTINED, TRANSFORMED
from jobs.warehouse.tables import open_catalog, open_table, warehouse_errors


def _as_in(model: type[Settings], name: str, default: Any = None) -> Any:
    """A field with the description that the setting has."""
    return Field(default=default, description=model.model_fields[name].description)


class WarehouseResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The tables of archives."""

    dir: str | None = _as_in(Warehouse, "dir")
    catalog: str | None = _as_in(Warehouse, "catalog")
    branch: str | None = _as_in(Warehouse, "branch")

    @property
    def settings(self) -> Warehouse:
        """Where the tables are, as jobs take it."""
        folder = None if self.dir is None else Path(self.dir)
        return Warehouse(dir=folder, catalog=self.catalog, branch=self.branch)

    def load_table(self, name: str) -> Table:
        """The Iceberg table of this name, such as `transformed_messages`, or its branch.

        Raises:
            WarehouseError: the catalog or the table isn't there, or cannot be read.
        """
        for spec in (TRANSFORMED, QUARANTINED):
            if self.branch is not None and spec.name == name:
                return open_table(self.settings, spec)
        with warehouse_errors(self.settings):
            return open_catalog(self.settings).load_table((NAMESPACE, name))


class SparkResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The Spark session of a process: it's started when somebody asks for it."""

    master: str | None = Field(
        default=None,
        description="The master of a Spark cluster. The default is NATS_TRANSFORM_SPARK_MASTER.",
    )
    remote: str | None = Field(
        default=None,
        description="A Spark Connect server. The default is NATS_TRANSFORM_SPARK_REMOTE.",
    )
    driver_memory: str = _as_in(SparkSettings, "driver_memory", "2g")
    config: dict[str, str] = _as_in(SparkSettings, "config", {})

    @property
    def on_demand(self) -> SessionOnDemand:
        """Gives the session. A process has one, so the first who asks decides its settings."""
        environment = {} if self.master or self.remote else os.environ
        return SessionOnDemand(
            SparkSettings(
                master=self.master or environment.get("NATS_TRANSFORM_SPARK_MASTER") or None,
                remote=self.remote or environment.get("NATS_TRANSFORM_SPARK_REMOTE") or None,
                driver_memory=self.driver_memory,
                config=self.config,
            )
        )

    @property
    def session(self) -> SparkSession:
        """The session, started now.

        Raises:
            SparkUnavailable: there's no Java 17 to 23, or Spark does not start or answer.
        """
        return self.on_demand()


# Dagster takes texts for files and secrets.
_CONNECTION: dict[str, Any] = {
    "server" if name == "servers" else name: (
        type(field.default) if isinstance(field.default, bool | float) else str | None,
        _as_in(NatsSettings, name, None if field.is_required() else field.default),
    )
    for name, field in NatsSettings.model_fields.items()
}
_Connection: Any = create_model("_Connection", __base__=dg.ConfigurableResource, **_CONNECTION)


class NatsResource(_Connection):  # type: ignore[misc]
    """A nats-server. Give secrets as `dg.EnvVar(...)`: the UI shows the values of fields."""

    @property
    def settings(self) -> NatsSettings:
        """How to reach the server, as jobs take it."""
        # A default that counted as given would replace what a context says.
        given = self.model_dump(exclude_unset=True, exclude_none=True, exclude={"server"})
        return NatsSettings.model_validate(
            given if self.server is None else given | {"servers": self.server}
        )

    def connect(self) -> AbstractAsyncContextManager[Client]:
        """A connection, in `async with`; it's closed at the end.

        Raises:
            ArchiveError: there's no server, or it refuses the connection.
        """
        return connection(self.settings)
