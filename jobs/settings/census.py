"""The settings of a census, and of its export into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from jobs.settings.base import WithCommas, setting
from jobs.settings.days import Stream, StreamDays
from jobs.settings.warehouse import Gated


class CensusSettings(StreamDays, Gated):
    """The stream and the days whose subjects to count."""

    stream: Stream = setting(..., "The stream whose subjects are counted.")


class CensusExportSettings(StreamDays):
    """What to export."""

    stream: Stream = setting(..., "The stream whose subjects are exported.")
    out: Path = setting(
        ..., "The Parquet file to write. An existing file is replaced.", is_written=True
    )
    redact: Annotated[tuple[Annotated[int, Field(ge=1)], ...], WithCommas] = setting(
        (),
        "The numbers of the tokens to replace with hashes, such as 2,3. The first token is 1. "
        "Equal tokens stay equal, so collisions stay exact. The key is random and is thrown away.",
        metavar="TOKENS",
    )
