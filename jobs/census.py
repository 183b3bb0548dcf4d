"""The census job: which subjects a stream had on each day, into `subject_census`.

One row for each (stream, day, subject, cluster, carries). Tasks on files count them in one pass
over `messages` (`jobs.files.census`): in this process or, of large archives, in Spark's workers.
Dry runs look at the census first, because subjects are far fewer than messages.
"""

from __future__ import annotations

import uuid
from functools import partial
from operator import attrgetter
from typing import Any

import pyarrow as pa

from expectations.census import census_suite
from jobs import gate
from jobs.files.census import COLUMNS, GROUPING, read_counts, write_counts
from jobs.files.commit import arrow_schema, staged
from jobs.files.engine import engine_of
from jobs.files.grouped import grouped
from jobs.files.intact import check_files
from jobs.files.scan import Scan
from jobs.files.storage import Storage
from jobs.progress import step
from jobs.session import Spark
from jobs.settings.census import CensusSettings
from jobs.warehouse import specs, staging, tables
from jobs.warehouse.accounting import Archived
from nats_transform.digest import Digest

CENSUS = specs.table_spec(
    "subject_census",
    {
        "stream": pa.string(),
        "day": pa.date32(),
        "subject": pa.string(),
        "cluster": pa.string(),
        "messages": pa.int64(),
        "bytes": pa.int64(),
        "first_ts": pa.timestamp("us", "UTC"),
        "last_ts": pa.timestamp("us", "UTC"),
        "carries": pa.string(),
    },
    raw=("subject", "cluster"),
    about={
        "messages": "How many messages there are.",
        "bytes": "The size of their payloads, without headers.",
        "first_ts": "When the first of them was stored (UTC).",
        "last_ts": "When the last of them was stored (UTC).",
        "carries": "What their headers hold on to: of `batch`, `condition`, `counter`, `id` and "
        "`schedule` those that these messages have, with blanks between them. Null if an older "
        "release counted.",
    },
)


class CensusResult(gate.GatedResult):
    """What a census found.

    Attributes:
        rows: the number of rows: one for each subject, cluster, day and what headers hold on to.
        messages: the number of messages that were counted.
        bytes: the size of their payloads.
        input_snapshot: the snapshot of `messages` that was read.
        run_id: the id of the run, which is also kept with the snapshot.
    """

    rows: int
    messages: int
    bytes: int
    input_snapshot: int | None
    run_id: str


def census(spark: Spark, settings: CensusSettings) -> CensusResult:
    """Count the subjects of some days, and replace the rows of these days in one commit.

    Rows that the checks refuse are not published; the result says why.

    Raises:
        ArchiveError: the stream has no messages at all.
        WarehouseError: tables that cannot be read or written, or a file that was changed after
            being published.
    """
    source = tables.open_table(settings.warehouse, specs.MESSAGES)
    target = tables.open_table(settings.warehouse, CENSUS, create=True)
    if not tables.data_files(source, settings.stream):
        raise Archived.none(source, settings.stream)
    files = tables.data_files(source, settings.stream, settings.days)
    check_files(spark, source, files)
    scan = Scan.of(source, specs.MESSAGES, files, COLUMNS)
    session = scan.session(spark)
    storage = Storage.of(target)
    rows = arrow_schema(target.schema(), frozenset({"stream"}))
    with (
        staging.new_files(target) as folder,
        step(f"counting {settings.stream}", scan.count),
    ):
        counted = grouped(
            scan.tasks,
            partial(read_counts, scan.reader.names_of_headers),
            GROUPING,
            partial(write_counts, storage, folder, rows, settings.stream),
            storage=storage,
            folder=staging.new_folder(target),
            spark=session,
            apart=attrgetter("day"),
        )
        new = staged(target, folder, (file.written for file in counted))
    input_snapshot = tables.snapshot_id(source)
    run_id = settings.run_id or str(uuid.uuid4())
    sums: dict[str, Any] = {
        "rows": sum(file.written.rows for file in counted),
        "messages": sum(file.messages for file in counted),
        "bytes": sum(file.bytes for file in counted),
    }
    digest = sum((file.digest for file in counted), Digest())
    suite = census_suite(scan.count, sums["messages"], sums["bytes"], digest)
    passage = gate.publish(
        spark,
        target,
        new,
        settings.stream,
        settings.days,
        check=None if settings.no_checks else gate.Check(CENSUS, suite),
        replace=True,
        properties={
            "job": "census",
            "stream": settings.stream,
            "input-snapshot": "" if input_snapshot is None else str(input_snapshot),
            "run-id": run_id,
            **{name: str(value) for name, value in sums.items()},
        },
        source=(source, files),
    )
    return CensusResult(
        stream=settings.stream,
        **sums,
        engine=engine_of(session),
        input_snapshot=input_snapshot,
        run_id=run_id,
        **passage._asdict(),
    )
