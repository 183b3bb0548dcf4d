"""Resources: the tables, the Spark session and the nats-server of an archive.

Each `SubjectArchive` adds its own to the definitions, as `NAME_warehouse`, `NAME_spark` and, if a
server is among its sources, `NAME_nats`, so assets of a project use what the archive uses.
"""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from jobs.session import SessionOnDemand
from jobs.settings.connection import NatsSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.warehouse import Warehouse

if TYPE_CHECKING:  # Dagster reads the annotations of fields, not of methods
    from nats.aio.client import Client
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession


class WarehouseResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The tables of archives."""

    dir: str | None = Field(default=None, description="The folder of the tables.")
    catalog: str | None = Field(
        default=None, description="A catalog of PyIceberg, instead of a folder."
    )

    @property
    def settings(self) -> Warehouse:
        """Where the tables are, as jobs take it."""
        return Warehouse(dir=None if self.dir is None else Path(self.dir), catalog=self.catalog)

    def load_table(self, name: str) -> Table:
        """The Iceberg table of this name, such as `transformed_messages`.

        Raises:
            WarehouseError: the catalog or the table isn't there, or cannot be read.
        """
        from jobs.warehouse.paths import NAMESPACE
        from jobs.warehouse.tables import open_catalog, warehouse_errors

        with warehouse_errors(self.settings):
            return open_catalog(self.settings).load_table((NAMESPACE, name))


class SparkResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The Spark session of a process: it's started when somebody asks for it."""

    master: str | None = Field(
        default=None, description="The master of a cluster; by default NATS_TRANSFORM_SPARK_MASTER."
    )
    remote: str | None = Field(
        default=None, description="A Spark Connect server; by default NATS_TRANSFORM_SPARK_REMOTE."
    )
    driver_memory: str = Field(default="2g", description="The heap of a local Spark.")
    config: dict[str, str] = Field(default={}, description="Further settings of Spark.")

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


class NatsResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """A nats-server. Give secrets as `dg.EnvVar(...)`: the UI shows the values of fields."""

    server: str | None = Field(
        default=None, description="The URL of a server; commas between several."
    )
    context: str | None = Field(default=None, description="A context of the `nats` command.")
    creds: str | None = Field(default=None, description="A credentials file.")
    credentials: str | None = Field(default=None, description="The content of a credentials file.")
    nkey: str | None = Field(default=None, description="A file with an NKey seed.")
    user: str | None = Field(default=None, description="The name of a user.")
    password: str | None = Field(default=None, description="The password of the user.")
    token: str | None = Field(default=None, description="A token.")
    tls_ca: str | None = Field(
        default=None, description="The certificate authority to trust (PEM)."
    )
    tls_cert: str | None = Field(default=None, description="The certificate of the client (PEM).")
    tls_key: str | None = Field(default=None, description="The key of that certificate (PEM).")
    tls_first: bool = Field(
        default=False, description="The server starts TLS before it says anything."
    )

    @property
    def settings(self) -> NatsSettings:
        """How to reach the server, as jobs take it."""
        given = self.model_dump(exclude_none=True, exclude={"server"})
        return NatsSettings.model_validate(
            given if self.server is None else given | {"servers": self.server}
        )

    def connect(self) -> AbstractAsyncContextManager[Client]:
        """A connection, in `async with`; it's closed at the end.

        Raises:
            ArchiveError: there's no server, or it refuses the connection.
        """
        from jobs.jetstream.connection import connection

        return connection(self.settings)
