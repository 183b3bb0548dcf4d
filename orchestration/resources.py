"""The resources that Dagster gives to assets."""

from __future__ import annotations

import dagster as dg
from pydantic import Field
from pyspark.sql import SparkSession

from jobs.session import SparkSettings, spark_session


class SparkResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The Spark session: local, on a cluster's master, or through Spark Connect."""

    master: str | None = Field(None, description="The URL of a Spark master; local[*] by default.")
    remote: str | None = Field(
        None, description="The URL of a Spark Connect server, instead of a master."
    )
    driver_memory: str = Field(default="2g", description="The heap of a local Spark.")
    config: dict[str, str] = Field(default_factory=dict, description="Further Spark settings.")

    def session(self) -> SparkSession:
        """The session; one process has one."""
        return spark_session(
            SparkSettings(
                master=self.master or None,
                remote=self.remote or None,
                driver_memory=self.driver_memory,
                config=self.config,
            )
        )
