"""The settings of a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from jobs.settings.base import Folder, Name, Seed, setting
from jobs.settings.days import Stream, StreamDays
from jobs.settings.mappings import Account


class CertifySettings(StreamDays):
    """The mappings and streams to try, and how much of the archive is tried on them."""

    stream: Stream = setting(..., "The stream whose subjects are tried on the server.")
    candidate: Path = setting(
        ..., "The mappings to try: a server configuration, an account JWT, JSON or YAML."
    )
    account: Account = "$G"
    streams: Folder | None = setting(
        None,
        "A folder with one file per stream: the output of `nats stream info NAME --json`.",
        otherwise="what the mappings deliver is compared, and nothing is stored",
    )
    permissions: Path | None = setting(
        None,
        "A server configuration with users: what each of them may publish and get under the "
        "candidate is tried.",
    )
    permissions_account: Name | None = setting(
        None, "The account of these users.", otherwise="the account that --account names"
    )
    sample: Annotated[int, Field(ge=1)] = setting(
        200_000, "How many messages are tried at most, spread evenly over the archive."
    )
    seed: Seed = setting(0, "A number that decides our draws.")
