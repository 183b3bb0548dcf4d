"""Which mappings are meant, of which file and account."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from jobs.settings.base import Name, Seed, setting
from jobs.settings.days import StreamDays

Account = Annotated[
    Name,
    Field(description="The account whose mappings are used, if the file has several accounts."),
]


class MappedDays(StreamDays):
    """Some days of a stream, and the mappings that are applied to its messages."""

    mapping: Path = setting(
        ..., "The mappings: a server configuration, an account JWT, JSON or YAML."
    )
    account: Account = "$G"
    seed: Seed = setting(0, "A number that decides every draw: the same seed gives the same rows.")
