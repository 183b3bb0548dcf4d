"""The settings of an export."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from jobs.settings.base import Address, Name, Seed, Settings, setting
from jobs.settings.days import Stream
from jobs.settings.mappings import Account
from jobs.settings.warehouse import BranchedWarehouse, Warehouse
from nats_transform.errors import InvalidValue


class ExportSettings(Settings):
    """What to export, and where to."""

    stream: Stream = setting(..., "The stream whose messages are exported.", min_length=1)
    to_backup: Address = setting(
        ...,
        "The new folder of the backup, or its URI in an object store.",
        min_length=1,
        metavar="DIR",
        is_path=True,
        is_written=True,
        in_project="(?!.*://).*",
        cure="to-backup must be a folder in a project file, because the file's author would get "
        "your archive: give a URI with --to-backup",
    )
    messages: Literal["transformed", "archived"] = setting(
        "transformed",
        "Export the messages under their archived subjects, to undo a migration.",
        name="untransformed",
        value="archived",
    )
    simulated: Name | None = setting(
        None,
        "Export what this stream would hold after the last dry-run --simulate. It needs --config.",
    )
    original: Path | None = setting(
        None,
        "The original stream: the folder of its backup, whose consumers are exported "
        "too, or its configuration (nats stream info --json). Subjects and filters are adapted.",
        metavar="PATH",
    )
    config: Path | None = setting(
        None, "The exported stream's configuration as JSON, used unchanged."
    )
    mapping: Path | None = setting(
        None,
        "The mappings that the messages were transformed with.",
        otherwise="as the warehouse records",
    )
    account: Account = "$G"
    seed: Seed = setting(0, "The seed of the transform.")
    gaps: Literal["keep", "close"] = setting(
        "keep",
        "Whether omitted messages leave gaps. `close` gives all messages new sequences and leaves "
        "out the consumers.",
    )
    invalid: Literal["refuse", "keep", "gap"] = setting(
        "refuse",
        "What to do if messages have no legal new subject: export nothing, keep their "
        "subjects, or leave them out.",
    )
    rewrite_headers: bool = setting(
        False,
        "Also rename the subjects in the headers of schedules (Nats-Schedule-Target, "
        "Nats-Schedule-Source). Without this option, headers don't change.",
    )
    warehouse: BranchedWarehouse = Warehouse()

    @model_validator(mode="after")
    def _has_configuration(self) -> ExportSettings:
        if self.original is None and self.config is None:
            raise InvalidValue("export-without-configuration")
        if self.simulated is not None and (self.config is None or self.original is not None):
            raise InvalidValue("export-simulated-original")
        if self.rewrite_headers and (self.simulated is not None or self.messages == "archived"):
            raise InvalidValue("export-headers-simulated")
        return self
