"""Narrow tables: outcomes beside `messages`, used as if they had times, headers and payloads."""

from __future__ import annotations

import json
import random
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from jobs.audit.run import run as audit
from jobs.compare import compare
from jobs.errors import AccountingError, ArchiveError, JobError
from jobs.export import export
from jobs.files.narrow import is_narrow, joined
from jobs.files.scan import Scan, digested
from jobs.files.selection import Selection
from jobs.jetstream.process import NatsServer
from jobs.replay import replay
from jobs.settings.audit import AuditSettings
from jobs.settings.branches import CompareSettings
from jobs.settings.connection import NatsSettings
from jobs.settings.export import ExportSettings
from jobs.settings.replay import ReplaySettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import TransformResult, transform
from jobs.warehouse.accounting import Archived
from jobs.warehouse.folder import place as path_of
from jobs.warehouse.specs import MESSAGES, TRANSFORMED
from jobs.warehouse.tables import PROPERTY, data_files, open_table, stream_and_day
from nats_transform.audit import Period
from nats_transform.config import mapping_version
from nats_transform.digest import Digest
from nats_transform.kernel.messages import NARROW, WIDE
from nats_transform.kernel.messages import TRANSFORMED as COLUMNS
from nats_transform.spark import with_messages
from tests.support.jobs import (
    HERE,
    archived,
    dumped,
    erased,
    ingested,
    on,
    promoted,
    transformed,
    verified,
)
from tests.support.refused import refused
from tests.support.rules import mappings
from tests.support.streams import Stream

Columns = Literal["all", "outcomes"]
MAPPINGS = mappings({"a.*": [("new.$1", 60), ("other.$1", 30)], "p.*": "p.{{partition(3,1)}}.$1"})
COUNT, DAYS = 400, 2
BRANCH = "narrow"


def run(warehouse: Warehouse, columns: Columns, branch: str | None = None) -> TransformResult:
    return transformed(warehouse, MAPPINGS, branch, columns=columns, tolerance=20)


NAMES = tuple(COLUMNS)


def add(warehouse: Warehouse, first: int, count: int) -> None:
    """Ingests messages with headers and payloads, in no order."""
    chance = random.Random(first)
    rows: list[dict[str, Any]] = [
        {
            "seq": first + n,
            "ts": (datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=DAYS * n / count)).isoformat(),
            "subject": chance.choice(("a.1", "a.\udcff", "p.x", "else")),
            "headers": {"Nats-Msg-Id": [f"{n}"]} if n % 2 else {},
            "data": b64encode(chance.randbytes(chance.randrange(2000))).decode(),
        }
        for n in range(count)
    ]
    chance.shuffle(rows)
    ingested(warehouse, dumped(warehouse.folder.parent / f"{first}.jsonl", rows))


@pytest.fixture
def both(warehouse: Warehouse) -> Warehouse:
    """The full table, and the narrow one on a branch; both of messages in several files."""
    add(warehouse, 1, COUNT // 2)
    add(warehouse, COUNT // 2 + 1, COUNT // 2)
    run(warehouse, "all")
    run(warehouse, "outcomes", BRANCH)
    return warehouse


def test_narrow_files_follow_those_of_messages(warehouse: Warehouse) -> None:
    add(warehouse, 1, COUNT)
    result = run(warehouse, "outcomes")
    messages, table = (open_table(warehouse, spec) for spec in (MESSAGES, TRANSFORMED))
    sizes = []
    for one in (messages, table):
        files = sorted(data_files(one), key=lambda file: str(file.partition))
        rows = one.scan(selected_fields=("day", "seq", "subject")).to_arrow()
        assert len(files) == DAYS
        sizes.append(sum(file.file_size_in_bytes for file in files))
        if one is messages:
            expected = rows
    assert rows == expected  # row by row
    assert sizes[1] < sizes[0] / 10
    assert is_narrow(table, data_files(table))
    assert result.messages == COUNT
    assert result.columns == "outcomes"
    again = run(warehouse, "outcomes")
    assert again.digest == result.digest
    full = run(warehouse, "all")
    assert full.fates == result.fates
    assert not is_narrow(table, data_files(open_table(warehouse, TRANSFORMED)))


@pytest.mark.parametrize("columns", ["all", "outcomes"])
def test_a_subject_that_changed_since_the_ingest(warehouse: Warehouse, columns: Columns) -> None:
    add(warehouse, 1, COUNT)
    path = data_files(open_table(warehouse, MESSAGES))[0].file_path.removeprefix("file://")
    rows = pq.read_table(path, partitioning=None)
    place = rows.schema.get_field_index("subject")
    subjects = rows["subject"].to_pylist()
    subjects[subjects.index("else")] = "other"
    pq.write_table(rows.set_column(place, rows.schema.field(place), [subjects]), path)
    settings = TransformSettings(
        stream="S", mapping=Path("-"), warehouse=warehouse, tolerance=20, columns=columns
    )
    assert "ExpectArchiveToBeAsIngested" in str(transform(HERE, settings, MAPPINGS).refused)
    with refused(AccountingError, "transform-differs"):
        transform(HERE, settings.model_copy(update={"no_checks": True}), MAPPINGS)


def test_the_accounts_have_the_digest_of_narrow_columns(warehouse: Warehouse) -> None:
    def in_files() -> dict[date, Digest]:
        table = open_table(warehouse, MESSAGES)
        day_of, found = stream_and_day(table), defaultdict[date, Digest](Digest)
        for file in data_files(table):
            found[day_of(file)[1]] += digested(Scan.of(table, MESSAGES, [file], NARROW))
        return found

    def known() -> dict[date, Digest | None]:
        archived = Archived.of(open_table(warehouse, MESSAGES), "S")
        return {day: archived.narrow_of([day]) for day in archived.days}

    add(warehouse, 1, 50)
    assert erased(warehouse, seq="10..20").refused is None
    add(warehouse, 51, 50)
    assert known() == in_files()
    assert erased(warehouse, seq="1..80").refused is None
    assert known() == in_files()
    assert len(known()) == 1
    # Older releases noted none: what they have of a day cannot be known from later ingests.
    table = open_table(warehouse, MESSAGES)
    key = PROPERTY + Archived.key("S")
    accounts = json.loads(table.properties[key])
    del accounts["narrow"]
    table.transaction().set_properties({key: json.dumps(accounts)}).commit_transaction()
    add(warehouse, 101, 50)
    later = {"seq": 151, "ts": "2026-03-05T00:00:00Z", "subject": "a.1"}
    ingested(warehouse, dumped(warehouse.folder.parent / "later.jsonl", [later]))
    _, second, _ = sorted(in_files())
    assert known() == in_files() | {second: None}
    run(warehouse, "outcomes")
    assert verified(warehouse, tolerance=20).holds


def exported(warehouse: Warehouse, branch: str | None, to: Path) -> dict[str, bytes]:
    config = warehouse.folder.parent / "config.json"
    config.write_text(json.dumps({"name": "NEW", "subjects": [">"], "no_ack": True}))
    settings = ExportSettings(
        stream="S", to_backup=str(to), config=config, warehouse=on(warehouse, branch)
    )
    export(settings)
    return {path.name: path.read_bytes() for path in sorted(to.iterdir())}


def test_exports_are_equal_byte_by_byte(both: Warehouse, tmp_path: Path) -> None:
    full, narrow = (exported(both, branch, tmp_path / str(branch)) for branch in (None, BRANCH))
    assert full == narrow
    assert sum(map(len, full.values())) > 100_000


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    """Rows as they are in the columns; texts may be any bytes."""
    columns = [
        column.cast(pa.binary()) if pa.types.is_string(column.type) else column
        for column in pa.Table.from_batches(batches).columns
    ]
    return [tuple(map(repr, row)) for row in zip(*(c.to_pylist() for c in columns), strict=True)]


@pytest.mark.parametrize("fates", [None, {"mapped", "unmatched"}, {"unmatched"}])
@pytest.mark.parametrize("columns", [("seq", "ts_ns", "data"), NAMES, ("seq", "mapped_subject")])
def test_what_is_read_by_sequence_is_equal(
    both: Warehouse, fates: set[str] | None, columns: tuple[str, ...]
) -> None:
    found = []
    for branch in (None, BRANCH):
        table = open_table(on(both, branch), TRANSFORMED)
        selection = Selection(table, "S", None, fates, columns)
        ordered = rows_of(selection.in_order())
        assert sorted(rows_of(selection.rows())) == sorted(ordered)
        found.append(ordered)
    assert found[0] == found[1]
    assert found[0]


@pytest.mark.server
def test_replays_are_equal_byte_by_byte(both: Warehouse, nats_server: NatsServer) -> None:
    server = NatsSettings(servers=nats_server.url)
    subjects = ["a.*", "new.*", "other.*", "p.*.*", "else"]
    stored = []
    for number, branch in enumerate((None, BRANCH)):
        stream = Stream(nats_server, "NARROW")
        if number:
            stream.run(lambda js: js.delete_stream("NARROW"))
        stream.run(lambda js: js.add_stream(name="NARROW", subjects=subjects))
        settings = ReplaySettings(
            stream="S", to="NARROW", server=server, warehouse=on(both, branch)
        )
        assert replay(settings).refusals == []
        own = f"REPLAYED{number}"
        archived(both, own, from_stream="NARROW", server=server)
        table = open_table(both, MESSAGES)
        names = ("seq", "subject", "headers", "headers_raw", "data")
        rows = rows_of(Selection(table, own, None, None, names, MESSAGES).in_order())
        # Each replay has a number of its own.
        run_id = re.compile(r"[0-9a-f]{16}(?=\.\d+')")
        stored.append([tuple(run_id.sub("RUN", cell) for cell in row) for row in rows])
    assert stored[0] == stored[1]
    assert len(stored[0]) > COUNT / 2


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # of Polars: slower, but right
def test_joined_reads_are_equal(both: Warehouse, spark: SparkSession) -> None:
    """As docs/catalogs.md shows it, in each engine."""
    full, narrow = (open_table(on(both, branch), TRANSFORMED) for branch in (None, BRANCH))
    messages = open_table(both, MESSAGES)
    paths = {
        name: [path_of(file.file_path, table) for file in data_files(table)]
        for name, table in (("whole", full), ("narrow", narrow), ("messages", messages))
    }
    wide, keys = ", ".join(WIDE), "stream, day, seq"
    with duckdb.connect() as database:
        for name, files in paths.items():
            database.read_parquet(files).create_view(name)
        names = [column for column in full.schema().column_names if "." not in column]
        query = f"SELECT {', '.join(names)} FROM {{}} ORDER BY seq"  # noqa: S608 - our names
        archived_columns = f"SELECT {keys}, {wide} FROM messages"  # noqa: S608 - as above
        joined_query = query.format(f"narrow JOIN ({archived_columns}) USING ({keys})")
        expected = database.sql(query.format("whole")).fetchall()
        assert database.sql(joined_query).fetchall() == expected

    outcomes = polars.scan_parquet([path.removeprefix("file://") for path in paths["narrow"]])
    archived = polars.scan_parquet([path.removeprefix("file://") for path in paths["messages"]])
    by = ["stream", "day", "seq"]
    lazy = outcomes.join(archived.select(*by, *WIDE), on=by).select(names).sort("seq")
    rows = polars.scan_parquet([path.removeprefix("file://") for path in paths["whole"]])
    assert lazy.collect().equals(rows.select(names).sort("seq").collect())

    frames = {name: spark.read.parquet(*files) for name, files in paths.items()}
    by_spark = with_messages(frames["narrow"], frames["messages"]).select(*names).orderBy("seq")
    assert by_spark.collect() == frames["whole"].select(*names).orderBy("seq").collect()
    # What an engine reads of the table itself has null in these columns.
    empty = narrow.scan(selected_fields=WIDE).to_arrow()
    assert all(column.null_count == COUNT for column in empty.columns)


def test_other_commands_take_a_narrow_table(both: Warehouse) -> None:
    narrow = on(both, BRANCH)
    result = verified(narrow, BRANCH, tolerance=20)
    assert result.holds, [str(table.report) for table in result.tables]
    assert [table.messages for table in result.tables] == [COUNT, COUNT]
    audited = AuditSettings(stream="S", mapping=Path("unused"), warehouse=narrow, tolerance=20)
    period = [Period(MAPPINGS, mapping_version(MAPPINGS))]
    verdicts = [
        audit(HERE, audited.model_copy(update={"warehouse": warehouse}), period)
        for warehouse in (both, narrow)
    ]
    assert verdicts[0].rules == verdicts[1].rules
    compared = compare(CompareSettings(before="main", after=BRANCH, warehouse=both))
    assert (compared.equal, compared.changed) == (COUNT, 0)
    promoted(both, BRANCH)
    assert is_narrow(open_table(both, TRANSFORMED), data_files(open_table(both, TRANSFORMED)))
    add(both, COUNT + 1, 10)
    with refused(JobError, "export-untransformed", cure="every day first"):
        exported(both, None, both.folder / "backup")


def test_an_erasure_leaves_both_equal(both: Warehouse, tmp_path: Path) -> None:
    assert erased(both, seq="150..250").refused is None
    full, narrow = (exported(both, branch, tmp_path / str(branch)) for branch in (None, BRANCH))
    assert full == narrow
    assert verified(both, BRANCH, tolerance=20).holds


def test_messages_that_are_gone_are_named() -> None:
    def batch(*sequences: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"seq": pa.array(sequences, pa.int64())})

    for rows, messages, missing in (
        ([batch(1, 2)], [batch(1)], 2),
        ([batch(1, 3)], [batch(1, 2), batch(4)], 3),
        ([batch(5)], [], 5),
        ([batch(0)], [batch(1)], 0),
    ):
        with refused(ArchiveError, "outcome-without-message", sequence=missing):
            list(joined(rows, messages))
    cut = [batch(2), batch(3, 5), batch(9)]
    messages = [batch(1, 2, 3), batch(4), batch(5, 6), batch(7, 9)]
    assert [seq for b in joined(cut, messages) for seq in b["seq"].to_pylist()] == [2, 3, 5, 9]
    assert list(joined([], messages)) == []
