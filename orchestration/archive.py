"""One archive of messages as its YAML describes it: what its assets, checks and jobs need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal, Self
from zoneinfo import available_timezones

import dagster as dg
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from jobs.session import SessionOnDemand
from jobs.settings.audit import AuditSettings, InForce
from jobs.settings.export import ExportSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import BRANCH_VARIABLE, Warehouse
from nats_transform.errors import InvalidValue, first_fault
from nats_transform.untrusted import visible
from orchestration.archive_source import ArchiveSource
from orchestration.hooks import function_named
from orchestration.resources import SparkResource, WarehouseResource
from orchestration.settings import (
    Day,
    Entries,
    FilePath,
    OptionalPath,
    OptionalText,
    Text,
    YamlPart,
    plain_name,
    positive,
    yaml_of,
)

CHECKS = {
    "messages": {
        "every_message_once": "conservation",
        "no_unexplained_gaps": "completeness",
        "subjects_are_legal": "subjects",
    },
    "transformed_messages": {
        "every_message_once": "conservation",
        "same_result_twice": "determinism",
        "subjects_are_legal": "subjects",
        "weights_within_tolerance": "weights",
        "partitions_steady_and_even": "partitions",
    },
}
"""Our checks of each table, named as people name tests, and the topics of their expectations."""

_EXPORT = yaml_of(ExportSettings, {"original", "config", "gaps", "invalid", "rewrite_headers"})


class Export(_EXPORT):  # type: ignore[misc, valid-type]
    """A backup of the transformed messages, which `nats stream restore` loads."""

    to: FilePath = Field(description="Each run writes its backup into a new folder in this one.")

    @model_validator(mode="after")
    def _has_configuration(self) -> Export:
        if self.original is None and self.config is None:
            raise InvalidValue("archive-export-without-configuration")
        return self


def _cron(value: str) -> str:
    try:
        dg.AutomationCondition.cron_tick_passed(value)  # it takes what a schedule of Dagster takes
    except Exception:  # noqa: BLE001 - Dagster's error is not public
        raise InvalidValue("not-cron", value=value) from None
    return value


class Schedule(YamlPart):
    """When Dagster starts a job, and for how many days."""

    cron: Text = Field(description="Minute, hour, day, month and weekday, as in cron.")
    timezone: Text = Field("UTC", description="The time zone of `cron`, such as Europe/Berlin.")
    days: int = Field(1, description="How many days before today it covers (in UTC).")
    running: bool = Field(True, description="If false, it stays off until somebody switches it on.")

    _some_days = field_validator("days")(positive)
    _known_cron = field_validator("cron")(_cron)

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        if zone not in available_timezones():
            raise InvalidValue("no-such-time-zone", zone=zone)
        return zone


class Sensor(YamlPart):
    """What looks again and again."""

    interval_seconds: int = Field(60, description="How many seconds to wait between two looks.")
    running: bool = Field(True, description="If false, it stays off until somebody switches it on.")

    _some_seconds = field_validator("interval_seconds")(positive)


class LagSensor(Sensor):
    """What happens when the stream on the server is ahead of the archive."""

    limit: int = Field(
        10_000,
        description="Ingest when the archive lacks more than this number of the stream's last "
        "messages.",
    )

    @field_validator("limit")
    @classmethod
    def _is_count(cls, limit: int) -> int:
        if limit < 0:
            raise InvalidValue("not-a-limit", limit=limit)
        return limit


class MappingSensor(Sensor):
    """What happens when the meaning of the mapping file changes."""

    reprocess: Literal["nothing", "stale_days"] = Field(
        "nothing",
        description="stale_days: transform days again that have another mapping version.",
    )


class MappingFrom(yaml_of(InForce, {"since", "mapping"})):  # type: ignore[misc]
    """A mapping file that took over at some moment."""


class Watch(YamlPart):
    """Looks at a canary that runs: every look counts all messages since the canary started."""

    cron: Text = Field("5 * * * *", description="When to look, as in cron, in UTC.")
    hours: int = Field(168, description="How many hours a count covers before a new one starts.")
    running: bool = Field(True, description="If false, it stays off until somebody switches it on.")

    _some_hours = field_validator("hours")(positive)
    _known_cron = field_validator("cron")(_cron)


_OBSERVED = yaml_of(AuditSettings, {"source_stream", "captured", "publishers", "by"}, by="hour")


class Observed(_OBSERVED):  # type: ignore[misc, valid-type]
    """The archive holds messages that nats-server has mapped already."""

    counter: OptionalText = Field(
        None,
        description="Instead of a source stream: package.module:function. It gets the first and "
        "the last day, and returns what was published as a list of {source, messages, "
        "cluster}.",
    )
    in_force: list[MappingFrom] = Field(
        [],
        description="Files that replaced `mapping`, oldest first, each with its moment.",
    )
    in_force_from_git: bool = Field(
        False,
        description="Instead of in_force: each commit of `mapping` was in force from its time on, "
        "or from its merge on.",
    )
    severity: Literal["error", "warn"] = Field(
        "error", description="How severe a share outside its tolerance is. Undecided is a warning."
    )
    watch: Watch | None = Field(None, description="Look at the canary while it runs.")

    @model_validator(mode="after")
    def _one_of_each(self) -> Observed:
        if self.in_force and self.in_force_from_git:
            raise InvalidValue("in-force-twice")
        if self.source_stream and self.counter:
            raise InvalidValue("source-and-counter")
        if self.watch and self.counter:
            raise InvalidValue("watch-without-hours")
        return self

    def audit_settings(self, days: Sequence[date]) -> dict[str, Any]:
        """These settings for an audit. A counter is asked for the days, if there are any."""
        published = []
        if self.counter is not None and days:
            published = list(function_named(self.counter, "counter")(days[0], days[-1]))
        shared = {"source_stream", "captured", "publishers", "by", "in_force"}
        own: dict[str, Any] = self.model_dump(include=shared)
        if self.in_force_from_git:
            own["in_force"] = "git"
        return own | {"observed": True, "published": published}


class Spark(yaml_of(SparkSettings, {"driver_memory"})):  # type: ignore[misc]
    """The Spark session of a run. The environment says where it runs."""

    # Dagster reads "2" in YAML as a number, though it is in quotes.
    config: dict[str, str | bool | int | float] = Field(
        default={}, description=SparkSettings.model_fields["config"].description
    )

    @property
    def resource(self) -> SparkResource:
        """The session of these settings."""
        config = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.config.items()
        }
        return SparkResource(driver_memory=self.driver_memory, config=config)


class UserSuite(YamlPart):
    """Expectations of your own on the rows of a run's days: one more check of a table."""

    name: Text = Field(
        pattern="^[A-Za-z0-9_]{1,100}$", description="The name of the check and of the suite."
    )
    table: Literal["messages", "transformed_messages"] = Field(
        "transformed_messages", description="The table that it checks."
    )
    suite: OptionalPath = Field(
        None, description="A suite in JSON, as Great Expectations writes it."
    )
    expectations: Entries = Field(
        [],
        description="Instead of a suite: `type`, `kwargs` and `severity` of each expectation. A "
        "`critical` one blocks, a `warning` doesn't. The default is `critical`.",
    )
    quarantine: bool = Field(
        False,
        description="Rows that break one go to `quarantined_messages`. All others are published.",
    )

    @model_validator(mode="after")
    def _one_suite(self) -> Self:
        if (self.suite is None) == (not self.expectations):
            raise InvalidValue("suite-and-expectations")
        if any(not isinstance(entry.get("type"), str) for entry in self.expectations):
            raise InvalidValue("expectation-without-type")
        if self.quarantine and self.table != "transformed_messages":
            raise InvalidValue("quarantine-elsewhere")
        return self


class _Messages(YamlPart):
    """The messages of an archive."""

    name: Text = Field(
        pattern="^[A-Za-z0-9_]{1,100}$",
        description="The prefix of the asset keys: at most 100 letters, digits and underscores.",
    )
    stream: Text = Field(min_length=1, description="The name of the stream in the tables.")
    start_date: Day = Field(description="The first day of the archive in UTC, YYYY-MM-DD.")
    include_today: bool = Field(
        False, description="Whether today has a partition too, though it isn't over."
    )
    sources: list[ArchiveSource] = Field(
        min_length=1, description="Where the messages come from, read in this order."
    )


_JUDGED = {"mapping", "account", "seed", "warehouse", "catalog", "branch"}
_JUDGED |= {"tolerance", "confidence"}


_WORKED_ON = yaml_of(SparkSettings, {"engine"}, _Messages, engine="spark")
_TRANSFORMED = yaml_of(TransformSettings, {"columns"}, _WORKED_ON)


class Archive(yaml_of(AuditSettings, _JUDGED, _TRANSFORMED)):  # type: ignore[misc]
    """One archive of messages, its mapping, and when it is worked on."""

    reports: OptionalPath = Field(
        None,
        description="The folder for pages. The default is `reports` beside the tables' folder.",
    )
    reports_url: OptionalText = Field(
        None, description="The URL of that folder on a web server, for links from assets."
    )
    backfill: Literal["one_run", "day_by_day"] = Field(
        "one_run",
        description="`one_run` does a range of days in one run, `day_by_day` each day in its own.",
    )
    spark: Spark = Field(Spark(), description="The Spark session of runs on this archive.")
    owners: list[Text] = Field(
        [], description="The owners that Dagster shows: mail addresses, or team:NAME."
    )
    tags: dict[str, Text] = Field({}, description="Tags for all assets, such as domain: orders.")
    fresh_hours: float | None = Field(
        None, description="After this many hours without a run, Dagster shows assets as stale."
    )
    promote: Literal["at_once", "manual"] = Field(
        "at_once",
        description="manual: the days of a new mapping version wait on a branch until the job "
        "NAME_promote runs, or `nats-transform promote`.",
    )
    export: Export | None = Field(
        None, description="Write transformed messages as a stream backup, on demand."
    )
    nightly: Schedule | None = Field(
        None, description="When to ingest and transform the last days."
    )
    weekly_audit: Schedule | None = Field(
        None, description="When to audit the weights of the last days, in one report."
    )
    mapping_sensor: MappingSensor | None = Field(
        None, description="Watch the mapping file, and record each new version."
    )
    lag_sensor: LagSensor | None = Field(
        None, description="Watch the stream on its server, and ingest what is new."
    )
    observed: Observed | None = Field(
        None,
        description="Give this if nats-server has already mapped the messages. The audit then "
        "judges what the servers did, instead of rehearsing.",
    )
    expectations: list[UserSuite] = Field(
        [], description="Your own suites for Great Expectations. Each becomes a check of a table."
    )
    actions: Entries = Field(
        [],
        description="What else to do after a table's checks, as in the JSON of a Great "
        "Expectations checkpoint, such as {type: slack, slack_webhook: ...}. For an "
        "action of your own, give `class` instead of `type`: package.module:Class.",
    )
    # In YAML, off without quotes is false.
    automation: Literal["off", "stale_days", False] = Field(
        "off",
        description="stale_days: Dagster's automation sensor transforms stale days again.",
    )

    _some_hours = field_validator("fresh_hours")(positive)

    @field_validator("expectations")
    @classmethod
    def _have_names(cls, suites: list[UserSuite]) -> list[UserSuite]:
        checks = [(str(suite.table), suite.name) for suite in suites]
        checks += [(table, name) for table, ours in CHECKS.items() for name in ours]
        checks += [(table, topic) for table, ours in CHECKS.items() for topic in ours.values()]
        if len({*checks}) < len(checks):
            raise InvalidValue("check-twice")
        return suites

    @field_validator("actions")
    @classmethod
    def _have_types(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if any(len(action.keys() & {"type", "class"}) != 1 for action in value):
            raise InvalidValue("action-without-type")
        return value

    @field_validator("owners", "tags")
    @classmethod
    def _known_to_dagster(cls, value: Any, field: ValidationInfo) -> Any:
        try:
            dg.AssetSpec("asset", **{str(field.field_name): value})
        except dg.DagsterError as error:
            text = str(error).replace(" for asset 'AssetKey(['asset'])'", "")
            raise InvalidValue("refused", reason=visible(text)) from None
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.warehouse is not None and self.catalog is not None:
            raise InvalidValue("warehouse-and-catalog")
        try:
            assert self.tables  # noqa: S101 - made of what the environment says, too
        except ValidationError as error:
            where = "" if self.branch else f"the variable {BRANCH_VARIABLE}, "
            raise InvalidValue("setting-invalid", where=where, reason=first_fault(error)) from None
        if self.columns == "outcomes" and any(suite.quarantine for suite in self.expectations):
            raise InvalidValue("archive-quarantine-columns")
        if self.lag_sensor is not None and self.live is None:
            raise InvalidValue("lag-without-server")
        if self.export is not None and self.observed is not None:
            raise InvalidValue("observed-with-export")
        return self

    @property
    def tables(self) -> Warehouse:
        """Where the tables of the archive are."""
        branch = self.branch or os.environ.get(BRANCH_VARIABLE) or None
        return Warehouse(dir=self.warehouse, catalog=self.catalog, branch=branch)

    @property
    def reports_folder(self) -> Path:
        """Where check results, Data Docs and pages are kept."""
        return self.reports or self.tables.folder.parent / "reports"

    @property
    def partitions(self) -> dg.DailyPartitionsDefinition:
        """One Dagster partition for each day, in UTC as the tables have it."""
        return dg.DailyPartitionsDefinition(
            start_date=self.start_date.isoformat(), end_offset=int(self.include_today)
        )

    @property
    def backfill_policy(self) -> dg.BackfillPolicy:
        """How Dagster cuts a range of days into runs."""
        if self.backfill == "one_run":
            return dg.BackfillPolicy.single_run()
        return dg.BackfillPolicy.multi_run(max_partitions_per_run=1)

    @property
    def pool(self) -> str:
        """The concurrency pool that whatever writes days of the archive waits for."""
        return f"archive_{self.name}"

    @property
    def session(self) -> SessionOnDemand:
        """Gives the Spark session, and knows the engine that the archive asks for."""
        settings = self.spark.resource.on_demand.settings
        return SessionOnDemand(settings.model_copy(update={"engine": self.engine}))

    @property
    def resources(self) -> dict[str, Any]:
        """What assets of a project can use of the archive, by the keys of the resources."""
        tables = self.tables
        folder = None if tables.catalog else str(tables.folder)
        # Not by its fields, which the UI would show: the settings of Spark can be secrets.
        spark = dg.ResourceDefinition.hardcoded_resource(self.spark.resource)
        resources: dict[str, Any] = {
            f"{self.name}_warehouse": WarehouseResource(
                dir=folder, catalog=tables.catalog, branch=tables.branch
            ),
            f"{self.name}_spark": spark,
        }
        if self.live is not None:
            # Nor the connection, as it can have secrets.
            connection = dg.ResourceDefinition.hardcoded_resource(self.live.nats)
            resources[f"{self.name}_nats"] = connection
        return resources

    @property
    def live(self) -> ArchiveSource | None:
        """The first source that is a server, if there is one."""
        return next((source for source in self.sources if source.server or source.context), None)

    @property
    def stream_key(self) -> dg.AssetKey:
        """The key of the stream: `nats/STREAM`, with the archive's name if that is another one."""
        stream = plain_name(self.stream)
        is_its_name = stream.lower() == self.name.lower()
        return dg.AssetKey(["nats", *([] if is_its_name else [self.name]), stream])

    @property
    def mapping_key(self) -> dg.AssetKey:
        """The key of the mapping file: its folder and its name, so archives can have it in common.

        No archive defines this asset: two would have to agree, and a project may define its own.
        """
        return dg.AssetKey(Path(os.path.normpath(self.mapping)).parts[-2:])

    @property
    def origins(self) -> list[dg.AssetKey]:
        """What servers made the stream of: the mapping file, and another stream."""
        if self.observed is None:
            return []
        published = self.observed.source_stream
        streams = [dg.AssetKey(["nats", plain_name(published)])] if published else []
        return [self.mapping_key, *streams]

    def key(self, asset: str) -> dg.AssetKey:
        """The key of one of the archive's assets; a component may translate it."""
        return dg.AssetKey([self.name, asset])

    def op_name(self, asset: str) -> str:
        """The name of the op that makes an asset."""
        return f"{self.name}__{asset}"

    def job_settings(self, days: Sequence[date], run_id: str) -> dict[str, Any]:
        """The settings that all jobs over days of the archive share; the days are ascending."""
        return {
            "stream": self.stream,
            "warehouse": self.tables,
            "first_day": days[0] if days else None,
            "last_day": days[-1] if days else None,
            "run_id": run_id,
        }

    def mapped_settings(self, days: Sequence[date], run_id: str) -> dict[str, Any]:
        """The settings that all jobs which apply the archive's mapping share."""
        mapping = {"mapping": self.mapping, "account": self.account, "seed": self.seed}
        return self.job_settings(days, run_id) | mapping
