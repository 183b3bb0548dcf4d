"""The place of a warehouse. It is not in `tables`, so settings need neither Iceberg nor Spark."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, model_validator


class Warehouse(BaseModel):
    """Where the tables are: a folder with its own SQLite catalog, or a PyIceberg catalog.

    Attributes:
        dir: the folder; made on first use.
        catalog: the name of a catalog in PyIceberg's own configuration (`.pyiceberg.yaml` or
            `PYICEBERG_CATALOG__<NAME>__URI`); the folder is not used then.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    dir: Path | None = None
    catalog: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Warehouse:
        if self.dir is not None and self.catalog is not None:
            raise ValueError("give a warehouse folder or a catalog, not both")
        return self

    @property
    def folder(self) -> Path:
        """The folder, absolute; the default is `warehouse` in the current folder."""
        return (self.dir or Path("warehouse")).absolute()

    def __str__(self) -> str:
        return f"catalog {self.catalog}" if self.catalog else str(self.folder)
