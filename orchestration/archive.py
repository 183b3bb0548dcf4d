"""One archive of messages as its YAML describes it: what its assets, checks and jobs need."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import available_timezones

import dagster as dg
from pydantic import Field, SecretStr, model_validator

from jobs.ingest import IngestSettings
from jobs.jetstream.connection import NatsSettings
from jobs.sources.dumps import DumpColumns
from jobs.warehouse.tables import Warehouse


def _resolve_date(context: dg.ResolutionContext, value: str) -> date:
    return date.fromisoformat(value)


def _resolve_path(context: dg.ResolutionContext, value: str | None) -> Path | None:
    return None if value is None else context.resolve_source_relative_path(value)


Day = Annotated[date, dg.Resolver(_resolve_date, model_field_type=str)]
# Relative paths are relative to the folder of the YAML file.
FilePath = Annotated[Path, dg.Resolver(_resolve_path, model_field_type=str)]
OptionalPath = Annotated[Path | None, dg.Resolver(_resolve_path, model_field_type=str | None)]


class ArchiveSource(dg.Model, dg.Resolvable):
    """Where messages of the archive come from: one of `server`, `backup`, `parquet`, `jsonl`."""

    server: str | None = Field(None, description="NATS URL, or several with commas.")
    backup: OptionalPath = Field(None, description="Folder that `nats stream backup` wrote.")
    parquet: OptionalPath = Field(None, description="Parquet file or folder.")
    jsonl: OptionalPath = Field(None, description="File or folder of JSON lines.")
    from_stream: str | None = Field(None, description="The stream there, if named differently.")
    subject: str | None = Field(None, description="Take only subjects of this filter.")
    cluster: str | None = Field(None, description="Cluster label for every message.")
    cluster_header: str | None = Field(None, description="Header that names the cluster.")
    creds: OptionalPath = Field(None, description="Credentials file.")
    nkey: OptionalPath = Field(None, description="File with an NKey seed.")
    user: str | None = None
    password: str | None = Field(None, description="Better from the environment: env('NAME').")
    token: str | None = Field(None, description="Better from the environment: env('NAME').")
    tls_ca: OptionalPath = None
    tls_cert: OptionalPath = None
    tls_key: OptionalPath = None
    domain: str | None = Field(None, description="JetStream domain.")
    subject_column: str | None = Field(None, description="Of a dump, if not `subject`.")
    seq_column: str | None = None
    time_column: str | None = None
    cluster_column: str | None = None
    headers_column: str | None = None
    data_column: str | None = None
    data_encoding: Literal["text", "base64"] = "text"
    first_seq: int = Field(1, description="Of a dump without sequences.")

    @model_validator(mode="after")
    def _one_source(self) -> ArchiveSource:
        given = [self.server, self.backup, self.parquet, self.jsonl]
        if sum(source is not None for source in given) != 1:
            raise ValueError("a source has one of server, backup, parquet, jsonl")
        return self

    def ingest_settings(
        self, stream: str, warehouse: Warehouse, days: tuple[date, date], run_id: str
    ) -> IngestSettings:
        """What to ingest of this source for a range of days, both inclusive."""
        server = None
        if self.server is not None:
            server = NatsSettings(
                servers=self.server,
                creds=self.creds,
                nkey=self.nkey,
                user=self.user,
                password=None if self.password is None else SecretStr(self.password),
                token=None if self.token is None else SecretStr(self.token),
                tls_ca=self.tls_ca,
                tls_cert=self.tls_cert,
                tls_key=self.tls_key,
                domain=self.domain,
            )
        first, last = days
        return IngestSettings(
            stream=stream,
            from_stream=self.from_stream,
            server=server,
            backup=self.backup,
            parquet=None if self.parquet is None else str(self.parquet),
            jsonl=None if self.jsonl is None else str(self.jsonl),
            columns=DumpColumns(
                subject=self.subject_column,
                seq=self.seq_column,
                time=self.time_column,
                cluster=self.cluster_column,
                headers=self.headers_column,
                data=self.data_column,
                data_encoding=self.data_encoding,
                first_seq=self.first_seq,
            ),
            since=datetime.combine(first, time(), UTC),
            until=datetime.combine(last + timedelta(days=1), time(), UTC),
            subject=self.subject,
            cluster=self.cluster,
            cluster_header=self.cluster_header,
            warehouse=warehouse,
            run_id=run_id,
        )


class Schedule(dg.Model, dg.Resolvable):
    """When something is done by itself, and for how many days."""

    cron: str = Field(description="Minute, hour, day, month and weekday, as cron has them.")
    timezone: str = Field("UTC", description="Of the cron expression: a name as Europe/Berlin.")
    days: int = Field(1, ge=1, description="How many days: the last ones that are over (in UTC).")
    running: bool = Field(True, description="False: it waits until it is switched on in the UI.")

    @model_validator(mode="after")
    def _known_zone(self) -> Schedule:
        if self.timezone not in available_timezones():
            raise ValueError(f"there is no time zone {self.timezone!r}; write one as Europe/Berlin")
        return self


class MappingSensor(dg.Model, dg.Resolvable):
    """What happens when the mapping file comes to mean something else."""

    interval_seconds: int = Field(60, ge=1, description="How often the file is read.")
    reprocess: Literal["nothing", "stale_days"] = Field(
        "nothing",
        description="stale_days: every day that has been transformed under another version.",
    )
    running: bool = Field(True, description="False: it waits until it is switched on in the UI.")


class Archive(dg.Model, dg.Resolvable):
    """One archive of messages, its mapping, and when it is worked on."""

    name: str = Field(pattern="^[A-Za-z0-9_]+$", description="Prefix of the asset keys.")
    stream: str = Field(description="Name of the stream in the tables.")
    start_date: Day = Field(description="First day of the archive, YYYY-MM-DD.")
    include_today: bool = Field(False, description="Have a partition for the day that goes on.")
    sources: list[ArchiveSource] = Field(min_length=1, description="Read in this order.")
    mapping: FilePath = Field(description="File with the mappings, as `nats-transform` loads it.")
    account: str = Field("$G", description="Whose mappings in the file.")
    seed: int = Field(0, description="Decides every draw.")
    warehouse: OptionalPath = Field(None, description="Folder of the tables.")
    catalog: str | None = Field(None, description="PyIceberg catalog, instead of a folder.")
    reports: OptionalPath = Field(
        None, description="Folder of check results and pages; `reports` beside the tables' folder."
    )
    reports_url: str | None = Field(
        None, description="Where a web server shows that folder: assets link there."
    )
    tolerance: float = Field(1.0, description="Percentage points a share may be off its weight.")
    confidence: float = Field(0.99, description="Of the audit's intervals, together.")
    backfill: Literal["one_run", "day_by_day"] = Field(
        "one_run",
        description="one_run: one Spark application for a range of days; day_by_day: one for each.",
    )
    nightly: Schedule | None = Field(
        None, description="Ingest and transform the last days, under the mapping as it is then."
    )
    weekly_audit: Schedule | None = Field(
        None, description="Hold the split of the last days against the weights, in one report."
    )
    mapping_sensor: MappingSensor | None = Field(
        None, description="Record a new mapping version by itself, and reprocess if asked to."
    )
    automation: Literal["off", "stale_days"] = Field(
        "off",
        description="stale_days: Dagster's automation sensor reprocesses days that became stale.",
    )

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

    def key(self, asset: str) -> dg.AssetKey:
        """The key of one of the archive's assets."""
        return dg.AssetKey([self.name, asset])
