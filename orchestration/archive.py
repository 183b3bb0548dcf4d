"""One archive of messages as its YAML describes it: what its assets, checks and jobs need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Literal, Self
from zoneinfo import available_timezones

import dagster as dg
from pydantic import Field, field_validator, model_validator

from jobs.session import SessionOnDemand
from jobs.settings.connection import NatsSettings
from jobs.settings.ingest import DumpColumns, IngestSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.warehouse import Warehouse
from orchestration.hooks import function_named
from orchestration.settings import (
    Day,
    FilePath,
    OptionalPath,
    OptionalText,
    Settings,
    Text,
    positive,
)

# What `NatsSettings` takes beside the servers, and the columns of a dump that can be named.
_LOGIN = (
    *("creds", "nkey", "user", "password", "token", "tls_ca", "tls_cert", "tls_key", "tls_first"),
    *("domain", "js_api_prefix", "inbox_prefix"),
)
_COLUMNS = ("subject", "seq", "time", "cluster", "headers", "data")


class ArchiveSource(Settings):
    """Where messages of the archive come from: a `server`, a `backup`, a `parquet` or a `jsonl`."""

    server: OptionalText = Field(
        None, description="The URL of a NATS server, or several with commas between them."
    )
    backup: OptionalPath = Field(None, description="A folder that `nats stream backup` wrote.")
    parquet: OptionalPath = Field(None, description="A Parquet file or a folder of such files.")
    jsonl: OptionalPath = Field(None, description="A file of JSON lines or a folder of such files.")
    from_stream: OptionalText = Field(
        None, description="The name of the stream there, if it is not that of the archive."
    )
    subject: OptionalText = Field(
        None, description="Only messages whose subject matches this filter are taken."
    )
    cluster: OptionalText = Field(
        None, description="The cluster that every message was published in."
    )
    cluster_header: OptionalText = Field(
        None, description="The header that names the cluster of a message."
    )
    creds: OptionalPath = Field(
        None, description="A file with credentials: a user JWT and its seed."
    )
    nkey: OptionalPath = Field(None, description="A file with an NKey seed.")
    user: OptionalText = Field(None, description="The name of a user.")
    password: OptionalText = Field(
        None, description="The password of the user; env('NAME') is a safer place for it."
    )
    token: OptionalText = Field(None, description="A token; env('NAME') is a safer place for it.")
    tls_ca: OptionalPath = Field(None, description="The certificate authority to trust (PEM).")
    tls_cert: OptionalPath = Field(None, description="The certificate of the client (PEM).")
    tls_key: OptionalPath = Field(None, description="The key of that certificate (PEM).")
    tls_first: bool = Field(
        False, description="Whether the server starts TLS before it says anything."
    )
    domain: OptionalText = Field(None, description="The JetStream domain.")
    js_api_prefix: OptionalText = Field(
        None, description="The start of the subjects of the JetStream API, instead of a domain."
    )
    inbox_prefix: OptionalText = Field(
        None, description="The start of the subjects of answers, if the user may not use _INBOX."
    )
    subject_column: OptionalText = Field(None, description="The column of a dump with the subject.")
    seq_column: OptionalText = Field(None, description="The column with the sequence.")
    time_column: OptionalText = Field(None, description="The column with the time.")
    cluster_column: OptionalText = Field(None, description="The column with the cluster.")
    headers_column: OptionalText = Field(None, description="The column with the headers.")
    data_column: OptionalText = Field(None, description="The column with the payload.")
    data_encoding: Literal["text", "base64"] = Field(
        "text", description="How a dump of JSON lines writes payloads."
    )
    first_seq: int = Field(1, description="The first sequence of a dump that has no sequences.")

    @model_validator(mode="after")
    def _one_source(self) -> ArchiveSource:
        given = [self.server, self.backup, self.parquet, self.jsonl]
        if sum(source is not None for source in given) != 1:
            raise ValueError("a source needs exactly one of server, backup, parquet and jsonl")
        return self

    def ingest_settings(
        self, stream: str, warehouse: Warehouse, days: tuple[date, date], run_id: str
    ) -> IngestSettings:
        """What to ingest of this source for a range of days, both inclusive."""
        server = None
        if self.server is not None:
            login = {name: getattr(self, name) for name in _LOGIN}
            server = NatsSettings.model_validate({"servers": self.server} | login)
        columns = {name: getattr(self, f"{name}_column") for name in _COLUMNS}
        first, last = days
        return IngestSettings(
            stream=stream,
            from_stream=self.from_stream,
            server=server,
            backup=self.backup,
            parquet=None if self.parquet is None else str(self.parquet),
            jsonl=None if self.jsonl is None else str(self.jsonl),
            columns=DumpColumns(
                **columns, data_encoding=self.data_encoding, first_seq=self.first_seq
            ),
            since=datetime.combine(first, time(), UTC),
            until=datetime.combine(last + timedelta(days=1), time(), UTC),
            subject=self.subject,
            cluster=self.cluster,
            cluster_header=self.cluster_header,
            warehouse=warehouse,
            run_id=run_id,
        )


class Export(Settings):
    """A backup of the transformed messages, which `nats stream restore` loads."""

    to: FilePath = Field(description="The folder in which each run makes a new folder, a backup.")
    original: OptionalPath = Field(
        None,
        description="A backup of the stream, whose consumers are exported too, or its "
        "configuration as JSON. Subjects and filters are adapted to the mappings.",
    )
    config: OptionalPath = Field(
        None, description="The configuration of the exported stream as JSON, taken as it is."
    )
    gaps: Literal["keep", "close"] = Field(
        "keep", description="close: messages get new sequences, and consumers are left out."
    )
    invalid: Literal["refuse", "keep", "gap"] = Field(
        "refuse", description="What to do if a message has no legal new subject."
    )

    @model_validator(mode="after")
    def _has_configuration(self) -> Export:
        if self.original is None and self.config is None:
            raise ValueError("an export needs an `original` or a `config`")
        return self


def _cron(value: str) -> str:
    try:
        dg.AutomationCondition.cron_tick_passed(value)  # it takes what a schedule of Dagster takes
    except Exception:  # noqa: BLE001 - Dagster's error is not public
        raise ValueError(
            f"{value!r} is not a cron expression; write minute, hour, day, month and weekday, "
            'such as "30 1 * * *" for half past one'
        ) from None
    return value


class Schedule(Settings):
    """When Dagster starts a job, and for how many days."""

    cron: Text = Field(description="Minute, hour, day, month and weekday, as in cron.")
    timezone: Text = Field("UTC", description="The time zone of `cron`, such as Europe/Berlin.")
    days: int = Field(1, description="How many days before today it covers (in UTC).")
    running: bool = Field(True, description="If false, it is off until somebody switches it on.")

    _some_days = field_validator("days")(positive)
    _known_cron = field_validator("cron")(_cron)

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        if zone not in available_timezones():
            raise ValueError(f"there is no time zone {zone!r}; write one such as Europe/Berlin")
        return zone


class MappingSensor(Settings):
    """What happens when the meaning of the mapping file changes."""

    interval_seconds: int = Field(
        60, description="How many seconds pass between two looks at the file."
    )
    reprocess: Literal["nothing", "stale_days"] = Field(
        "nothing",
        description="stale_days: transform the days of other mapping versions again.",
    )
    running: bool = Field(True, description="If false, it is off until somebody switches it on.")

    _some_seconds = field_validator("interval_seconds")(positive)


class MappingFrom(Settings):
    """A mapping file that took over at some moment."""

    since: Text = Field(description="The moment, such as 2026-10-01T12:00Z.")
    mapping: FilePath = Field(description="The file with the mappings from then on.")

    @field_validator("since")
    @classmethod
    def _moment(cls, since: str) -> str:
        with suppress(ValueError):
            if datetime.fromisoformat(since).tzinfo is not None:
                return since
        raise ValueError(f"{since!r} is not a moment; write one such as 2026-10-01T12:00Z")


class Watch(Settings):
    """Looks at a canary that runs: every look counts all messages since the canary started."""

    cron: Text = Field("5 * * * *", description="When to look, as in cron, in UTC.")
    hours: int = Field(168, description="The hours of a count; after them a new count starts.")
    running: bool = Field(True, description="If false, it is off until somebody switches it on.")

    _some_hours = field_validator("hours")(positive)
    _known_cron = field_validator("cron")(_cron)


class Observed(Settings):
    """The archive holds messages that nats-server has mapped already."""

    source_stream: OptionalText = Field(
        None,
        description="The stream, in the same tables, that holds the messages as they were "
        "published; another archive fills it.",
    )
    counter: OptionalText = Field(
        None,
        description="Instead of a source stream: package.module:function, which gets the first and "
        "the last day and returns a list of {source, messages, cluster} as they were published.",
    )
    captured: list[Text] = Field([], description="Subjects that the stream captures.")
    publishers: list[Text] = Field(
        [], description="Subjects to which others publish too, without the mapping."
    )
    in_force: list[MappingFrom] = Field(
        [], description="Files that took over from `mapping`, oldest first, each from its moment."
    )
    in_force_from_git: bool = Field(
        False, description="Instead of in_force: each commit of `mapping` took over at its time."
    )
    by: Literal["hour", "day"] = Field(
        "hour", description="Each hour, or each day, gets a verdict of its own."
    )
    severity: Literal["error", "warn"] = Field(
        "error", description="How bad a share outside its tolerance is; undecided is a warning."
    )
    watch: Watch | None = Field(None, description="Look at the canary while it runs.")

    @model_validator(mode="after")
    def _one_of_each(self) -> Observed:
        if self.in_force and self.in_force_from_git:
            raise ValueError("give in_force or in_force_from_git, not both")
        if self.source_stream and self.counter:
            raise ValueError("give source_stream or counter, not both")
        if self.watch and self.counter:
            raise ValueError(
                "a watch looks at hours and a counter is asked for days: give source_stream "
                "instead of counter, or no watch"
            )
        return self

    def audit_settings(self, days: Sequence[date] | None) -> dict[str, Any]:
        """These settings for an audit. A counter is asked for the days."""
        published = []
        if self.counter is not None and days:
            published = list(function_named(self.counter, "counter")(days[0], days[-1]))
        return {
            "observed": True,
            "source_stream": self.source_stream,
            "published": published,
            "captured": self.captured,
            "publishers": self.publishers,
            "by": self.by,
        }


class Spark(Settings):
    """The Spark session of a run. The environment says where it runs."""

    driver_memory: Text = Field(default="2g", description="The heap of a local Spark, such as 8g.")
    # Dagster reads "2" in YAML as a number, though it is in quotes.
    config: dict[str, str | bool | int | float] = Field(
        default={}, description="Further settings of Spark."
    )

    @property
    def settings(self) -> SparkSettings:
        """The settings of a session, which runs where the environment says."""
        return SparkSettings(
            master=os.environ.get("NATS_TRANSFORM_SPARK_MASTER") or None,
            remote=os.environ.get("NATS_TRANSFORM_SPARK_REMOTE") or None,
            driver_memory=self.driver_memory,
            config={
                name: str(value).lower() if isinstance(value, bool) else str(value)
                for name, value in self.config.items()
            },
        )


class Archive(Settings):
    """One archive of messages, its mapping, and when it is worked on."""

    name: Text = Field(
        pattern="^[A-Za-z0-9_]+$",
        description="The prefix of the asset keys: letters, digits and underscores.",
    )
    stream: Text = Field(description="The name of the stream in the tables.")
    start_date: Day = Field(description="The first day of the archive in UTC, YYYY-MM-DD.")
    include_today: bool = Field(
        False, description="Whether today, which is not over, has a partition too."
    )
    sources: list[ArchiveSource] = Field(
        min_length=1, description="Where the messages come from, read in this order."
    )
    mapping: FilePath = Field(
        description="The file with the mappings, as `nats-transform` reads it."
    )
    account: Text = Field("$G", description="The account whose mappings are used.")
    seed: int = Field(0, description="A number that decides every draw.")
    warehouse: OptionalPath = Field(
        None,
        description="The folder of the tables; by default `warehouse` in the folder in which "
        "Dagster runs.",
    )
    catalog: OptionalText = Field(None, description="A catalog of PyIceberg, instead of a folder.")
    reports: OptionalPath = Field(
        None,
        description="The folder for pages; by default `reports` beside the folder of the tables.",
    )
    reports_url: OptionalText = Field(
        None, description="The URL of that folder on a web server; assets link to it."
    )
    tolerance: float = Field(
        1.0, description="How many percentage points a share may differ from its weight."
    )
    confidence: float = Field(
        0.99,
        description="The probability, 0 to 1, that all intervals of an audit are right together.",
    )
    backfill: Literal["one_run", "day_by_day"] = Field(
        "one_run",
        description="one_run: one run for a range of days; day_by_day: one run for each day.",
    )
    spark: Spark = Field(
        Spark(), description="The Spark session of a run that works on this archive."
    )
    owners: list[Text] = Field(
        [], description="Whom Dagster shows as owners: mail addresses, or team:NAME."
    )
    tags: dict[str, Text] = Field({}, description="Tags of all the assets, such as domain: orders.")
    fresh_hours: float | None = Field(
        None, description="After this many hours without a run, assets are shown as stale."
    )
    export: Export | None = Field(
        None, description="Write transformed messages as a stream backup, whenever it is asked for."
    )
    nightly: Schedule | None = Field(
        None, description="When to ingest and transform the last days."
    )
    weekly_audit: Schedule | None = Field(
        None, description="When to audit the weights of the last days, in one report."
    )
    mapping_sensor: MappingSensor | None = Field(
        None, description="Look at the mapping file, and record each new version."
    )
    observed: Observed | None = Field(
        None,
        description="Give this if nats-server has mapped the messages already: the audit is then "
        "of what the servers did, and not a rehearsal.",
    )
    # In YAML, off without quotes is false.
    automation: Literal["off", "stale_days", False] = Field(
        "off",
        description="stale_days: Dagster's automation sensor transforms stale days again.",
    )

    _some_hours = field_validator("fresh_hours")(positive)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.warehouse is not None and self.catalog is not None:
            raise ValueError("give a warehouse folder or a catalog, not both")
        if self.export is not None and self.observed is not None:
            raise ValueError(
                "an observed archive is not transformed again, so there is nothing to export: "
                "leave out export or observed"
            )
        return self

    # As `nats_transform.audit.Criteria`, which takes long to import.
    @field_validator("tolerance")
    @classmethod
    def _tolerable(cls, value: float) -> float:
        if not 0 < value <= 100:
            raise ValueError(f"{value:g} is out of range; give points above 0, and at most 100")
        return value

    @field_validator("confidence")
    @classmethod
    def _certain(cls, value: float) -> float:
        if not 0 < value < 1:
            raise ValueError(f"{value:g} is out of range; give a number between 0 and 1")
        return value

    @property
    def tables(self) -> Warehouse:
        """Where the tables of the archive are."""
        return Warehouse(dir=self.warehouse, catalog=self.catalog)

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
        """Gives the Spark session. A process has one, so the first archive of a run decides.

        Small work needs none, unless the environment names where Spark runs: the executor of a
        project may start a process for each asset, and each would start a JVM.
        """
        return SessionOnDemand(self.spark.settings)

    def key(self, asset: str) -> dg.AssetKey:
        """The key of one of the archive's assets."""
        return dg.AssetKey([self.name, asset])

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
