"""The place of a warehouse. It is not in `tables`, so settings need neither Iceberg nor Spark."""

from __future__ import annotations

from pathlib import Path

from jobs.settings.base import Folder, Name, Settings, setting

VARIABLE = "NATS_TRANSFORM_WAREHOUSE"


class Warehouse(Settings):
    """Where the tables are: a folder with its own SQLite catalog, or a PyIceberg catalog."""

    alternatives = (("dir", "catalog"),)

    dir: Folder | None = setting(
        None, "The folder of the tables.", key="warehouse", env=VARIABLE, otherwise="./warehouse"
    )
    catalog: Name | None = setting(
        None, "A catalog of the PyIceberg configuration, instead of a folder."
    )

    @property
    def folder(self) -> Path:
        """The folder, absolute; the default is `warehouse` in the current folder."""
        return (self.dir or Path("warehouse")).absolute()

    def __str__(self) -> str:
        return f"catalog {self.catalog}" if self.catalog else str(self.folder)
