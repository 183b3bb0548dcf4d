"""The settings of a look whether a step of a plan is in force."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import model_validator

from jobs.settings.base import Address, Folder, Option, Settings, setting
from jobs.settings.connection import NatsSettings
from nats_transform.errors import InvalidValue


class VerifySettings(Settings):
    """The step to look for, and the places to look at."""

    plan: Folder = setting(..., "The folder that `nats-transform plan` wrote.")
    step: int = setting(..., "The last step that should be in force, or 0 for none.", metavar="N")
    undo: bool = setting(
        False,
        "Say whether this step can be undone, instead of whether the next can be taken. Consumers "
        "must have read what they lose.",
    )
    config: tuple[Path, ...] = setting(
        (), "The configuration of a server, for permissions, exports and imports."
    )
    monitor: tuple[Address, ...] = setting(
        (),
        "A server's monitoring port, such as http://localhost:8222, to read the mappings. Without "
        "it they come from --server, which shows them to the system account only.",
        metavar="URL",
        cure="because the file's author would choose what your host asks",
    )
    probe: str | None = setting(
        None,
        "Publish messages under this subject, through each --server, to find out which "
        "mappings are in force. Servers only trace them (from 2.11 on), and nobody gets them.",
        metavar="SUBJECT",
        cure="because the file's author would choose what you publish: give it with --probe",
    )
    nats: Annotated[NatsSettings | None, Option(unless=("config", "monitor"))] = None

    @model_validator(mode="after")
    def _can_look(self) -> Self:
        if self.nats is None and not self.config and not self.monitor:
            raise InvalidValue("verify-nothing")
        if self.probe is not None and self.nats is None:
            raise InvalidValue("probe-without-server")
        return self
