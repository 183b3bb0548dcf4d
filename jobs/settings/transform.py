"""The settings of a transform."""

from __future__ import annotations

from jobs.settings.base import setting
from jobs.settings.days import Stream
from jobs.settings.mappings import MappedDays


class TransformSettings(MappedDays):
    """The mappings and the messages to transform."""

    stream: Stream = setting(..., "The stream whose messages are transformed.")
