"""The settings of a dry run, and of a plan of the steps to the candidate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from jobs.settings.base import (
    Folder,
    Name,
    Probability,
    Seed,
    WithCommas,
    setting,
)
from jobs.settings.connection import ShownSettings
from jobs.settings.days import Stream, StreamDays
from jobs.settings.mappings import LeafNodeSettings
from nats_transform.errors import InvalidValue
from nats_transform.plan.stages import STAGES


class DryRunSettings(LeafNodeSettings, ShownSettings, StreamDays):
    """The mappings to try, and the archived subjects as they were before any mapping."""

    alternatives = (("live", "census"),)

    stream: Stream = setting(
        "", "The stream whose subjects are tried.", otherwise="the stream of the census"
    )
    census: Path | None = setting(
        None,
        "A file of `nats-transform census export` with the subjects. It needs neither a warehouse "
        "nor Spark.",
    )
    live: bool = setting(
        False,
        "Take the subjects that the server's streams have now, instead of an archive. Without a "
        "stream or a census this is the default, for all streams of the account.",
    )
    candidate: Path = setting(
        ..., "The mappings to try: a server configuration, an account JWT, JSON or YAML."
    )
    mapping: Path | None = setting(
        None, "The mappings that are in force today.", was="current", otherwise="there are none"
    )
    permissions: Path | None = setting(
        None,
        "A server configuration with users. Findings say what they may no longer publish or "
        "subscribe to.",
    )
    permissions_account: Name | None = setting(
        None, "The account of these users.", otherwise="the account that --account names"
    )
    clusters: tuple[Name, ...] = setting(
        (),
        "A cluster that you run.",
        name="cluster",
        otherwise="the clusters that the archive names",
    )
    subject_headers: tuple[Name, ...] = setting(
        (),
        "A header whose values are subjects, such as where to reply. Findings say which of them "
        "change. Schedule targets are always checked. It needs a warehouse.",
        name="subject-header",
    )
    exact: bool = setting(
        False,
        "Draw a destination for each message, as `transform` does, instead of counting shares.",
    )
    simulate: bool = setting(
        False,
        "Compute which messages the streams of --streams would hold, and write them "
        "into the table `simulated_streams`.",
    )
    seed: Seed = setting(0, "The seed for all draws of --exact and --simulate.")
    out: Folder | None = setting(
        None,
        "Keep the tables of the dry run in this folder, for your own queries with any SQL engine.",
        is_written=True,
    )

    @property
    def is_live(self) -> bool:
        """Whether the subjects come from a server."""
        return self.live or (self.census is None and not self.stream)

    @property
    def is_counted(self) -> bool:
        """Whether the subjects come without messages: from a server, or a census in a file."""
        return self.is_live or self.census is not None

    @model_validator(mode="after")
    def _with_streams(self) -> Self:
        if self.is_live and self.nats is None:
            raise InvalidValue("no-subjects")
        needs_messages = self.exact or self.simulate or self.subject_headers
        if self.is_counted and (needs_messages or self.first_day is not None):
            raise InvalidValue("needs-an-archive")
        if self.consumers is not None and self.streams is None:
            raise InvalidValue("consumers-without-streams")
        if self.simulate and self.streams is None and self.nats is None:
            raise InvalidValue("simulate-without-streams")
        if self.permissions_account is not None and self.permissions is None:
            raise InvalidValue("account-without-permissions-file")
        return self


class PlanSettings(DryRunSettings):
    """The change to plan, and the folder for the plan."""

    accept: Path | None = setting(
        None,
        "A file with the findings that you accept, in YAML or JSON: a list of {code, "
        "about, reason}. An entry without `about` accepts every finding with the code.",
    )
    certificate: Path | None = setting(
        None,
        "The output of `certify --json` for this candidate. The plan keeps the file and states "
        "its verdict. If the server differed from the prediction, there is no plan.",
    )
    stages: Annotated[tuple[Annotated[int, Field(ge=1, le=100)], ...], WithCommas] = setting(
        STAGES,
        "The percentage of messages that go the new way, stage by stage.",
        metavar="PERCENTS",
    )
    per_cluster: bool = setting(
        False, "Take one cluster after the other through all stages, in the order of --cluster."
    )
    tolerance: Annotated[float, Field(gt=0, lt=100)] = setting(
        1.0, "The tolerance of each stage's audit, in percentage points."
    )
    confidence: Probability = setting(0.99, "The confidence of these audits.", is_option=False)
    without_streams: bool = setting(
        False,
        "Plan without seeing streams or consumers. No step then makes room in them, and messages "
        "that they don't take are lost.",
    )
    exact: Literal[False] = setting(False, "A plan counts shares.", is_option=False)
    simulate: Literal[False] = setting(False, "A plan simulates nothing.", is_option=False)
    seed: Seed = setting(0, "A plan draws nothing.", is_option=False)
    out: Folder = setting(..., "A new folder for the plan.", is_written=True)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        is_shown = self.nats is not None or None not in (self.streams, self.consumers)
        if not is_shown and not self.without_streams:
            raise InvalidValue("plan-without-streams")
        if list(self.stages) != sorted(set(self.stages)) or self.stages[-1:] != (100,):
            raise InvalidValue("stages-do-not-rise")
        return self
