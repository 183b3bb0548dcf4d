"""The place of a warehouse. It is not in `tables`, so settings need neither Iceberg nor Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import field_validator

from jobs.settings.base import Folder, Name, Option, Settings, setting

VARIABLE = "NATS_TRANSFORM_WAREHOUSE"
BRANCH_VARIABLE = "NATS_TRANSFORM_BRANCH"
MAIN = "main"
"""Iceberg's name for the branch that everybody reads."""
BRANCH = "^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$"
"""What a branch can be called."""


class Warehouse(Settings):
    """Where the tables are: a folder with its own SQLite catalog, or a PyIceberg catalog."""

    alternatives = (("dir", "catalog"),)

    dir: Folder | None = setting(
        None, "The folder of the tables.", key="warehouse", env=VARIABLE, otherwise="./warehouse"
    )
    catalog: Name | None = setting(
        None, "A catalog of the PyIceberg configuration, instead of a folder."
    )
    branch: Name | None = setting(
        None,
        "The branch of `transformed_messages` to work on. Only `transform` makes a new one.",
        pattern=BRANCH,
        env=BRANCH_VARIABLE,
        otherwise="main, which everybody reads",
        is_option=False,
    )

    @field_validator("branch")
    @classmethod
    def _main_is_none(cls, branch: str | None) -> str | None:
        return None if branch == MAIN else branch

    @property
    def main(self) -> Warehouse:
        """The same, as everybody reads it."""
        return self.model_copy(update={"branch": None})

    @property
    def folder(self) -> Path:
        """The folder, absolute; the default is `warehouse` in the current folder."""
        return (self.dir or Path("warehouse")).absolute()

    def __str__(self) -> str:
        return f"catalog {self.catalog}" if self.catalog else str(self.folder)


BranchedWarehouse = Annotated[Warehouse, Option(offers=("branch",))]
"""The same for jobs on transformed messages, of which there are branches."""


class Gated(Settings):
    """What the gate before a table is told."""

    no_checks: bool = setting(
        False,
        "Publish the rows unchecked. The result and the table say so.",
        cure="because the file's author would publish rows that nobody looked at: give it with "
        "--no-checks",
    )
