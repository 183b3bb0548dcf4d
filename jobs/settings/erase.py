"""The settings of an erasure."""

from __future__ import annotations

import getpass
from typing import Self

from pydantic import model_validator

from jobs.settings.base import Name, Settings, setting
from jobs.settings.days import Stream
from jobs.settings.ingest import LARGEST_SEQUENCE
from jobs.settings.warehouse import Warehouse
from nats_transform.errors import InvalidValue, printable
from nats_transform.mappings.subject import encode, is_valid_filter

_BY_HAND = "because its author would choose what you erase: give it as an option"


def _user() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container whose user has no name
        return "unknown"


class EraseSettings(Settings):
    """Which messages to erase."""

    alternatives = (("subject", "seq", "header"),)

    stream: Stream = setting(..., "The stream whose messages are erased.", min_length=1)
    subject: str | None = setting(
        None,
        "Erase the messages whose subject matches this filter.",
        metavar="FILTER",
        cure=_BY_HAND,
    )
    seq: str | None = setting(
        None,
        "Erase these sequences. An ingest never archives them, even if the archive lacks them now.",
        metavar="A[..B]",
        pattern=r"^[0-9]{1,19}(\.\.[0-9]{1,19})?$",
        cure=_BY_HAND,
    )
    header: str | None = setting(
        None,
        "Erase the messages that have this header with exactly this value.",
        metavar="NAME=VALUE",
        cure=_BY_HAND,
    )
    reason: str = setting(
        "",
        "Why, kept in the tombstone. Don't name the person.",
        metavar="TEXT",
        max_length=500,
        otherwise="none; --yes needs it",
    )
    by: Name = setting(
        "",
        "Who erases, kept in the tombstone.",
        default_factory=_user,
        max_length=100,
        otherwise="the name of the user",
    )
    yes: bool = setting(False, "Erase. Without it, only show what would be erased.", cure=_BY_HAND)
    no_other_jobs: bool = setting(
        False,
        "No other job uses the warehouse: also delete the unfinished files of jobs that were "
        "stopped less than a day ago.",
        cure=_BY_HAND,
    )
    warehouse: Warehouse = Warehouse()

    @model_validator(mode="after")
    def _can_be_meant(self) -> Self:
        if self.subject is not None and not is_valid_filter(self.subject):
            raise InvalidValue("not-a-filter", filter=printable(self.subject))
        if self.header is not None and self.header.find("=") < 1:
            raise InvalidValue("erase-not-a-header", header=printable(self.header))
        if self.range is not None and not 1 <= self.range[0] <= self.range[1] <= LARGEST_SEQUENCE:
            raise InvalidValue("erase-not-a-range", seq=self.seq)
        if self.yes and self.has_filter and not self.reason:
            raise InvalidValue("erase-without-reason")
        return self

    @property
    def has_filter(self) -> bool:
        """Whether it says which messages; else an erasure that was stopped is finished."""
        return not (self.subject is self.seq is self.header is None)

    @property
    def range(self) -> tuple[int, int] | None:
        """The first and the last sequence of `seq`; None if it is not given."""
        if self.seq is None:
            return None
        first, _, last = self.seq.partition("..")
        return int(first), int(last or first)

    @property
    def pair(self) -> tuple[bytes, bytes] | None:
        """The name and the value of `header`."""
        if self.header is None:
            return None
        name, _, value = self.header.partition("=")
        return encode(name), encode(value)
