"""Which mappings are meant, of which file and account, and how their shares are judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from jobs.settings.base import Name, Points, Probability, Seed, setting
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
    seed: Seed = setting(0, "The seed for all draws. The same seed gives the same rows.")


class JudgedDays(StreamDays):
    """Some days of a stream, and how strictly the shares of destinations are judged."""

    tolerance: Points = setting(
        1.0,
        "How many percentage points a share may differ from its weight, at most half of a small "
        "weight.",
    )
    confidence: Probability = setting(
        0.99, "The probability, from 0 to 1, that all confidence intervals are right together."
    )
