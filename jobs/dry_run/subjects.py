"""Reads the subjects of a dry run, from the census or from messages with their draws.

One process does this, however many subjects there are. The rows are divided into files by the hash
of the subject, so that the rows of each file fit into memory easily. Each file is then added up and
given to `nats_transform.migration.tables`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from jobs.census import CENSUS, census
from jobs.dry_run.portable import COUNTS
from jobs.dry_run.scattered import parts_for, scattered
from jobs.dry_run.tried import tried
from jobs.errors import JobError
from jobs.files.census import carried, values, words
from jobs.files.intact import check_files
from jobs.files.scan import Scan
from jobs.progress import step
from jobs.scratch import temporary_folder
from jobs.session import Spark
from jobs.settings.census import CensusSettings
from jobs.settings.days import StreamDays, day_ranges
from jobs.settings.dry_run import DryRunSettings
from jobs.warehouse import specs, tables
from jobs.warehouse.accounting import Archived
from nats_transform.kernel import compile_mappings
from nats_transform.migration import DryRun, Question
from nats_transform.migration.tables.census import CensusPart, added_up
from nats_transform.streams.features import CARRIED, SCHEDULE_HEADERS


def archived_days(settings: StreamDays) -> tuple[Table, list[date]]:
    """The archive, and the days on which it has messages."""
    messages = tables.open_table(settings.warehouse, specs.MESSAGES)
    there = tables.days_of(messages, settings.stream)
    days = [day for day in there if settings.days is None or day in settings.days]
    if not days:
        raise Archived.none(messages, settings.stream)
    return messages, days


def try_archive(
    spark: Spark,
    settings: DryRunSettings,
    messages: Table,
    days: Sequence[date],
    question: Question,
) -> tuple[DryRun, Table | None]:
    """What a candidate would do to the subjects of the census, and the table of the census.

    Days whose census is missing, or counts other than `messages` has, are counted first. If the
    settings ask for exact results, every message draws its destinations, and no census is read.
    """
    table = messages if settings.exact else counted_census(spark, settings, messages, days)
    question = with_named(question, settings, messages, days)
    most = _rows(table, settings.stream, days)
    rows: Iterable[pa.RecordBatch]
    if settings.exact:
        # `with_named` has checked the files of the messages.
        rows = replayed(messages, settings.stream, days, question, settings.seed)
    else:
        files = tables.data_files(table, settings.stream, days)
        check_files(None, table, files)
        rows = Scan.of(table, CENSUS, files, ["subject", "cluster", "carries", *COUNTS])
    with temporary_folder() as folder:
        with step("reading the subjects", most, "rows"):
            parts = parts_of(rows, most, folder)
        return tried(parts, question, settings.out), None if settings.exact else table


def with_named(
    question: Question, settings: DryRunSettings, messages: Table, days: Sequence[date]
) -> Question:
    """The question with the subjects that headers of messages name.

    The headers of all messages are only read if the settings or the census ask for it.

    Raises:
        WarehouseError: a file cannot be read, or was changed after being published.
    """
    names = settings.subject_headers
    if settings.exact or _has_schedules(settings, days):
        names = (*SCHEDULE_HEADERS, *names)
    if not names:
        return question
    files = tables.data_files(messages, settings.stream, days)
    check_files(None, messages, files)
    scan = Scan.of(messages, specs.MESSAGES, files, ("headers",))
    batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in names}
    with step("reading the subjects that headers name", scan.count):
        for batch in scan:
            for name, parts in batches.items():
                subjects, counts = values(batch["headers"], name).flatten()
                if len(subjects):
                    columns = [subjects, pa.nulls(len(subjects), pa.binary()), counts, counts]
                    parts.append(pa.record_batch(columns, ["subject", "cluster", *COUNTS]))
    census = {name: pa.Table.from_batches(parts) for name, parts in batches.items() if parts}
    return replace(question, named={name: added_up(rows) for name, rows in census.items()})


def _has_schedules(settings: DryRunSettings, days: Sequence[date]) -> bool:
    """Whether the census has counted schedules."""
    table = tables.open_table(settings.warehouse, CENSUS)
    files = tables.data_files(table, settings.stream, days)
    return any(
        pc.any(pc.match_substring(batch["carries"], CARRIED["Nats-Schedule"])).as_py()
        for batch in Scan.of(table, CENSUS, files, ["carries"])
    )


def replayed(
    table: Table, stream: str, days: Sequence[date], question: Question, seed: int
) -> Iterator[pa.RecordBatch]:
    """A census of the messages with the destinations that they draw, in pieces that overlap."""
    files = tables.data_files(table, stream, days)
    columns = ("stream", "seq", "subject", "cluster", "headers", "data")
    sides = {"before": question.current, "after": question.candidate}
    draws = {name: compile_mappings(mappings, seed) for name, mappings in sides.items()}
    for batch in Scan.of(table, specs.MESSAGES, files, columns):
        rows = {"subject": batch["subject"], "cluster": batch["cluster"]}
        rows["carries"] = words(carried(batch["headers"]))
        for name, program in draws.items():
            outcomes = program.apply(
                batch["subject"],
                cluster=batch["cluster"],
                stream=batch["stream"],
                seq=batch["seq"],
            )
            rows[name] = outcomes["mapping_destination"]
        rows["messages"] = pa.array(np.ones(len(batch), np.int64))
        rows["bytes"] = pc.binary_length(batch["data"]).fill_null(0)
        # This way a subject with very many messages comes only a few times.
        yield added_up(pa.table(rows)).rows


def parts_of(rows: Iterable[pa.RecordBatch], most: int, folder: Path) -> Iterable[CensusPart]:
    """The rows of a census in parts, each with all rows of its subjects, added up.

    Args:
        most: the highest number of rows, which decides the number of parts.
    """
    count = parts_for(most)
    if count == 1:
        return [added_up(pa.Table.from_batches(rows))]
    return _parts(scattered(rows, "subject", count, folder))


def _parts(paths: Sequence[Path]) -> Iterator[CensusPart]:
    for path in paths:
        with pa.memory_map(str(path)) as file:
            part = added_up(pa.ipc.open_stream(file).read_all())
        path.unlink()
        yield part


def counted_census(
    spark: Spark,
    settings: StreamDays,
    messages: Table,
    days: Sequence[date],
) -> Table:
    """The census table, with all messages of these days counted."""
    table = tables.open_table(settings.warehouse, CENSUS, create=True)
    counted = _by_day(table, settings.stream, days)
    behind = [day for day in days if counted.get(day) != _rows(messages, settings.stream, [day])]
    for stretch in day_ranges(behind):
        counts = census(
            spark,
            CensusSettings(
                stream=settings.stream,
                warehouse=settings.warehouse,
                first_day=stretch.first,
                last_day=stretch.last,
                run_id=settings.run_id,
            ),
        )
        if counts.refused is not None:
            raise JobError("refused", reason=counts.refused)
    return tables.open_table(settings.warehouse, CENSUS) if behind else table


def _rows(table: Table, stream: str, days: Sequence[date]) -> int:
    return sum(file.record_count for file in tables.data_files(table, stream, days))


def _by_day(table: Table, stream: str, days: Sequence[date]) -> Counter[date]:
    """The messages that the census has counted on each day, with their headers."""
    counted: Counter[date] = Counter()
    files = tables.data_files(table, stream, days)
    for batch in Scan.of(table, CENSUS, files, ["day", "messages", "carries"]):
        # A file has rows of one day.
        counts = batch["messages"].filter(batch["carries"].is_valid())
        counted[batch["day"][0].as_py()] += pc.sum(counts).as_py() or 0
    return counted
