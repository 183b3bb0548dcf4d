"""The settings of a transform, and of a check of what transforms have published."""

from __future__ import annotations

from typing import Literal

from jobs.settings.base import setting
from jobs.settings.days import Stream
from jobs.settings.mappings import JudgedDays, MappedDays
from jobs.settings.warehouse import Gated


class TransformSettings(JudgedDays, MappedDays, Gated):
    """The mappings and the messages to transform."""

    stream: Stream = setting(..., "The stream whose messages are transformed.")
    columns: Literal["all", "outcomes"] = setting(
        "all",
        "What the new rows have. `outcomes` leaves times, headers and payloads to `messages`.",
    )


class VerifyTableSettings(JudgedDays):
    """The stream and the days whose published rows are checked."""

    stream: Stream = setting(..., "The stream whose published rows are checked.")
