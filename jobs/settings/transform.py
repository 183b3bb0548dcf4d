"""The settings of a transform, and of a check of what transforms have published."""

from __future__ import annotations

from jobs.settings.base import Points, Probability, setting
from jobs.settings.days import Stream, StreamDays
from jobs.settings.gate import Gated
from jobs.settings.mappings import MappedDays


class Checked(StreamDays):
    """Some days of a stream, and how strictly the shares of destinations are checked."""

    tolerance: Points = setting(
        1.0, "How many percentage points a share may differ from its weight."
    )
    confidence: Probability = setting(
        0.99, "The probability, from 0 to 1, that all intervals of shares are right together."
    )


class TransformSettings(Checked, MappedDays, Gated):
    """The mappings and the messages to transform."""

    stream: Stream = setting(..., "The stream whose messages are transformed.")


class VerifyTableSettings(Checked):
    """The stream and the days whose published rows are checked."""

    stream: Stream = setting(..., "The stream whose published rows are checked.")
