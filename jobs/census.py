"""The census job: which subjects a stream had on each day, into `subject_census`.

One row for each (stream, day, subject, cluster), counted in one pass over `messages`. Dry runs look
at the census first, because subjects are far fewer than messages.
"""

from __future__ import annotations

import uuid

from pydantic import BaseModel
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.days import StreamDays
from jobs.errors import ArchiveError
from jobs.session import Spark, started
from jobs.warehouse import specs, staging, tables

CENSUS = specs.table_spec(
    "subject_census",
    {
        "stream": T.StringType(),
        "day": T.DateType(),
        "subject": T.StringType(),
        "cluster": T.StringType(),
        "messages": T.LongType(),
        # Of the payloads, without headers.
        "bytes": T.LongType(),
        "first_ts": T.TimestampType(),
        "last_ts": T.TimestampType(),
    },
    raw=("subject", "cluster"),
)


class CensusSettings(StreamDays):
    """The stream and the days whose subjects to count."""


class CensusResult(BaseModel):
    """What a census found.

    Attributes:
        stream: the name of the stream.
        rows: the number of rows: one for each subject, cluster and day.
        messages: the number of messages that were counted.
        bytes: the size of their payloads.
        input_snapshot: the snapshot of `messages` that was read.
        run_id: the id of the run, which is also kept with the snapshot.
        snapshot_id: the new snapshot of `subject_census`.
    """

    stream: str
    rows: int
    messages: int
    bytes: int
    input_snapshot: int | None
    run_id: str
    snapshot_id: int


def census(spark: Spark, settings: CensusSettings) -> CensusResult:
    """Count the subjects of some days, and replace the rows of these days in one commit.

    Raises:
        ArchiveError: the stream has no messages at all.
        WarehouseError: tables that cannot be read or written.
    """
    source = tables.open_table(settings.warehouse, specs.MESSAGES)
    target = tables.open_table(settings.warehouse, CENSUS, create=True)
    if not tables.data_files(source, settings.stream):
        raise ArchiveError(
            f"{'.'.join(source.name())} has no messages of stream {settings.stream!r}; "
            "ingest the stream, or check its name"
        )
    messages = tables.read(started(spark), source, specs.MESSAGES, settings.stream, settings.days)
    seen = Observation("census")
    rows = counted(messages).observe(
        seen,
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum("messages"), F.lit(0)).alias("messages"),
        F.coalesce(F.sum("bytes"), F.lit(0)).alias("bytes"),
    )
    staged = staging.stage(rows, target, CENSUS)
    totals = seen.get
    snapshot = source.current_snapshot()
    input_snapshot = None if snapshot is None else snapshot.snapshot_id
    run_id = settings.run_id or str(uuid.uuid4())
    found = {name: int(totals.get(name, 0)) for name in ("rows", "messages", "bytes")}
    snapshot_id = staging.publish(
        target,
        staged,
        settings.stream,
        settings.days,
        replace=True,
        properties={
            "job": "census",
            "stream": settings.stream,
            "input-snapshot": "" if input_snapshot is None else str(input_snapshot),
            "run-id": run_id,
            **{name: str(value) for name, value in found.items()},
        },
    )
    return CensusResult(
        stream=settings.stream,
        **found,
        input_snapshot=input_snapshot,
        run_id=run_id,
        snapshot_id=snapshot_id,
    )


def counted(messages: DataFrame) -> DataFrame:
    """The rows of `subject_census` for those of `messages`."""
    return messages.groupBy("stream", "day", "subject", "cluster").agg(
        F.count(F.lit(1)).alias("messages"),
        F.coalesce(F.sum(F.octet_length("data")), F.lit(0)).cast("long").alias("bytes"),
        F.min("ts").alias("first_ts"),
        F.max("ts").alias("last_ts"),
    )
