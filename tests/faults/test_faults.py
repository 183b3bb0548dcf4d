"""Faults that no test of a module injects: networks that break, disks, catalogs, clocks, files."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

import jobs.transform
from benchmarks.frames import read
from jobs.audit.run import audit
from jobs.dry_run.run import dry_run
from jobs.dry_run.simulate import SIMULATED
from jobs.errors import ArchiveError, JobError, NoTable, WarehouseError
from jobs.ingest import ingest
from jobs.settings.audit import AuditSettings
from jobs.settings.connection import NatsSettings
from jobs.settings.dry_run import DryRunSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import transform
from jobs.warehouse import staging
from jobs.warehouse.specs import MESSAGES, TRANSFORMED
from jobs.warehouse.tables import open_table
from nats_transform.config import load_mappings, mapping_version
from tests.faults import FAULTS
from tests.support.archive import sequences
from tests.support.command import nats_transform
from tests.support.disks import fill, small_disk
from tests.support.exporting import Exporting
from tests.support.files import written
from tests.support.jobs import HERE, dumped
from tests.support.network import network
from tests.support.postgres import postgres
from tests.support.refused import refused
from tests.support.saying import says
from tests.support.streams import Stream, column_of, new_stream

ROOT = Path(__file__).parents[2]
START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "test", [test for fault in FAULTS for test in fault.tests], ids=lambda test: test.split("::")[1]
)
def test_the_table_names_tests_that_exist(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"\ndef {name}(" in (ROOT / file).read_text()


# --- The network ----------------------------------------------------------------------------------


@pytest.fixture
def stream(nats_server: Any) -> Stream:
    return new_stream(nats_server)


@pytest.mark.slow
@pytest.mark.server
def test_connections_that_break_in_mid_message(stream: Stream) -> None:
    """Each breaks once it has carried a while, at any byte, until enough have."""
    stream.count(3000, 200)
    chance = random.Random(stream.name)
    room: dict[int, int] = {}
    broken: Counter[str] = Counter()

    def treat(number: int, data: bytes) -> tuple[bytes, float, bool]:
        left = room.setdefault(number, chance.randrange(3_000, 120_000))
        room[number] = left - len(data)
        if left - len(data) > 0 or broken["times"] >= 8:
            return data, 0.0, False
        broken["times"] += 1
        return data[:left], 0.0, True

    with network(stream.server.url, treat) as url:
        nats = NatsSettings(servers=url, patience=60)
        assert column_of(nats, stream.name, "seq", batch=200) == list(range(1, 3001))
    assert broken["times"] >= 4


@pytest.mark.server
def test_a_slow_network(stream: Stream) -> None:
    """Half a megabyte, a little at a time."""
    stream.count(1000, 500)
    with network(stream.server.url, lambda _, data: (data, 0.05, False)) as url:
        nats = NatsSettings(servers=url, patience=60)
        assert column_of(nats, stream.name, "seq", batch=200) == list(range(1, 1001))


async def purged(js: Any, stream: str) -> None:
    await js.purge_stream(stream, keep=100)


async def limited(js: Any, stream: str) -> None:
    await js.update_stream(name=stream, subjects=[f"{stream}.>"], max_msgs=100)


async def deleted(js: Any, stream: str) -> None:
    await js.delete_stream(stream)


async def made_anew(js: Any, stream: str) -> None:
    await js.delete_stream(stream)
    await js.add_stream(name=stream, subjects=[f"{stream}.>"])


@pytest.mark.server
@pytest.mark.parametrize(
    ("change", "code"),
    [(purged, ""), (limited, ""), (deleted, "read-deleted"), (made_anew, "read-recreated")],
)
def test_a_stream_that_changes_in_mid_ingest(
    stream: Stream, warehouse: Warehouse, change: Callable[..., Any], code: str
) -> None:
    """What was read before the change is archived as it was, and nothing else; or one line."""
    count = 10_000
    stream.count(count, 1000)
    seen = Counter[str]()

    def treat(_: int, data: bytes) -> tuple[bytes, float, bool]:
        seen["bytes"] += len(data)
        if seen["bytes"] > 1_000_000 and not seen["changes"]:
            seen["changes"] += 1
            stream.run(lambda js: change(js, stream.name))
        return data, 0.0, False

    with network(stream.server.url, treat) as url:
        nats = NatsSettings(servers=url, patience=20)
        given = IngestSettings(stream=stream.name, server=nats, warehouse=warehouse)
        if code:
            with refused(ArchiveError, code):
                ingest(HERE, given)
            assert list(warehouse.folder.rglob("*.parquet")) == []
            return
        result = ingest(HERE, given)
    assert seen["changes"] == 1
    rows = open_table(warehouse, MESSAGES).scan().to_arrow().sort_by("seq")
    held = rows["seq"].to_pylist()
    assert 100 < len(held) < count
    assert (result.messages, result.gaps) == (len(held), count - len(held))
    assert held == sorted({*held} | {*range(count - 99, count + 1)})
    assert rows["data"].to_pylist() == [b"%d " % (seq - 1) + b"x" * 1000 for seq in held]
    direct = given.model_copy(update={"server": NatsSettings(servers=stream.server.url)})
    assert ingest(HERE, direct).added == 0


# --- Disks and catalogs ---------------------------------------------------------------------------


def dump(folder: Path, times: list[datetime]) -> Path:
    """A dump with a message at each of these times."""
    return dumped(
        folder / "messages.jsonl",
        [
            {"seq": n + 1, "ts": moment.isoformat(), "subject": f"a.{n % 3}", "data": f"{n}"}
            for n, moment in enumerate(times)
        ],
    )


def settings(path: Path, warehouse: Warehouse) -> IngestSettings:
    return IngestSettings(stream="S", jsonl=str(path), warehouse=warehouse)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(dir=tmp_path / "warehouse")


def before_the_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """From now on a job does something when it has written its files."""
    publish = staging.publish

    def late(*given: Any, **more: Any) -> int:
        act()
        return publish(*given, **more)

    monkeypatch.setattr(staging, "publish", late)


MINUTES = [START + timedelta(minutes=n) for n in range(200)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "2m") as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.spark
def test_a_disk_that_is_full_at_the_commit(
    spark: SparkSession, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = Warehouse(dir=disk / "warehouse")
    assert ingest(spark, settings(dump(tmp_path, MINUTES[:100]), warehouse)).messages == 100
    longer = settings(dump(tmp_path, MINUTES), warehouse)
    before_the_commit(monkeypatch, lambda: fill(disk / "fill"))
    with refused(WarehouseError, "warehouse-unusable"):
        ingest(spark, longer)
    assert sequences(open_table(warehouse, MESSAGES)) == list(range(1, 101))
    monkeypatch.undo()
    (disk / "fill").unlink()
    assert ingest(spark, longer).messages == 200
    assert sequences(open_table(warehouse, MESSAGES)) == list(range(1, 201))


@pytest.mark.spark
def test_a_catalog_that_is_locked_at_the_commit(
    spark: SparkSession, tmp_path: Path, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(dump(tmp_path, MINUTES), warehouse)
    timers = []

    def lock() -> None:
        database = sqlite3.connect(warehouse.folder / "catalog.db", check_same_thread=False)
        database.execute("BEGIN EXCLUSIVE")

        def release() -> None:
            database.rollback()
            database.close()

        timers.append(threading.Timer(1, release))
        timers[-1].start()

    before_the_commit(monkeypatch, lock)
    assert ingest(spark, given).messages == 200
    (timer,) = timers
    timer.join()
    assert sequences(open_table(warehouse, MESSAGES)) == list(range(1, 201))


@pytest.mark.slow
@pytest.mark.spark
def test_postgres_that_is_gone_at_the_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = "s3cret/p@ss"  # noqa: S105 - planted, and looked for
    with postgres(password) as server:
        server.create("catalog")
        uri = server.uri("catalog").replace(password, quote(password, safe=""))
        place = f"file://{tmp_path}/warehouse"
        for name, value in (("TYPE", "sql"), ("URI", uri), ("WAREHOUSE", place)):
            monkeypatch.setenv(f"PYICEBERG_CATALOG__FAULTY__{name}", value)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it read them on import
        (tmp_path / "warehouse").mkdir()
        warehouse = Warehouse(catalog="faulty")
        first = settings(dump(tmp_path, MINUTES[:100]), warehouse)
        assert ingest(spark, first).messages == 100
        longer = settings(dump(tmp_path, MINUTES), warehouse)
        with monkeypatch.context() as patch:
            before_the_commit(patch, server.stop)
            with pytest.raises(WarehouseError) as told:
                ingest(spark, longer)
        assert password not in str(told.value)
        with refused(WarehouseError, "warehouse-unusable", where="catalog faulty"):
            ingest(spark, longer)
        server.start()
        assert sequences(open_table(warehouse, MESSAGES)) == list(range(1, 101))
        assert ingest(spark, longer).messages == 200
        assert sequences(open_table(warehouse, MESSAGES)) == list(range(1, 201))


@pytest.mark.spark
def test_a_temporary_folder_that_is_full(
    spark: SparkSession,
    disk: Path,
    tmp_path: Path,
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tables of a dry run are temporary files, if there is room."""
    ingest(spark, settings(dump(tmp_path, MINUTES), warehouse))
    new = written(tmp_path / "new.conf", 'mappings { "a.*": "b.$1" }')
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    wanted = DryRunSettings(stream="S", candidate=new, warehouse=warehouse, exact=True)
    assert dry_run(spark, wanted).dry_run.messages == 200
    fill(disk / "fill")
    with refused(JobError, "no-room-for-temporary-files", folder=disk):
        dry_run(spark, wanted)


def test_a_disk_that_is_full_for_a_file(disk: Path, tmp_path: Path) -> None:
    """What a command writes for people is whole or as it was, and a backup is not there."""
    made = Exporting(tmp_path)
    names = ("report.html", "census.parquet", "tables", "backup")
    page, census, tables, backup = (str(disk / name) for name in names)
    of = ("--stream", "S", "--warehouse", str(made.warehouse.folder))
    tried = ("dry-run", *of, "--candidate", str(made.mapping))
    commands = [
        ("census", "export", *of, "--out", census),
        (*tried, "--report", page),
        (*tried, "--out", tables),
        ("export", *of, "--original", str(made.backup), "--untransformed", "--to-backup", backup),
    ]

    def contents() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in disk.rglob("*") if p.is_file() and p.stem != "x"}

    assert [nats_transform(*command)[0] for command in commands[:3]] == [0, 0, 0]
    before = contents()
    fill(disk / "x")
    for command in commands:
        code, out, err = nats_transform(*command)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert "No space" in err or says(err, "new-backup-no-room"), err
        assert contents() == before
    (disk / "x").unlink()
    assert nats_transform(*commands[-1])[0] == 0


COUNT = """
import sys
from pathlib import Path
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import Warehouse, open_table
print(open_table(Warehouse(dir=Path(sys.argv[1])), MESSAGES).scan().to_arrow().num_rows)
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_warehouse_that_may_only_be_read(
    spark: SparkSession, nats_server: Any, tmp_path: Path, warehouse: Warehouse
) -> None:
    """By a user without the rights of root: reading works, and jobs say why they cannot write."""
    powerless: list[str] = []
    if os.getuid() == 0:
        if (setpriv := shutil.which("setpriv")) is None:
            pytest.skip("root may write everywhere, and no setpriv takes that right away")
        powerless = [setpriv, "--inh-caps=-all", "--bounding-set=-all"]
    mapping = written(tmp_path / "mapping.conf", MAPPING.format(version="v1"))
    ingest(spark, settings(dump(tmp_path, MINUTES[:100]), warehouse))
    transform(spark, transform_settings(tmp_path, warehouse))
    longer = str(dump(tmp_path, MINUTES))
    for path in (warehouse.folder, *warehouse.folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)

    def state() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in warehouse.folder.rglob("*")}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        command = (*powerless, sys.executable, *command)
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    before = state()
    seen = run("-c", COUNT, str(warehouse.folder))
    assert (seen.returncode, seen.stdout) == (0, "100\n"), seen.stderr
    target = new_stream(nats_server, subjects=["b.>"])
    weighted = written(tmp_path / "weighted.conf", WEIGHTED)
    one = ("--stream", "S", "--warehouse", str(warehouse.folder))
    server = ("--to", target.name, "--server", nats_server.url)
    for command in (
        ("maintain", *one[2:]),
        ("dry-run", *one, "--candidate", str(weighted), "--exact"),
        ("replay", *one, *server),
    ):
        done = run("-m", "nats_transform", *command)
        assert done.returncode == 0, done.stderr
    assert target.info().state.messages == 100
    for command in (
        ("ingest", *one, "--jsonl", longer),
        ("transform", *one, "--mapping", str(mapping)),
        ("audit", *one, "--mapping", str(weighted)),
        ("dry-run", *one, "--candidate", str(weighted)),  # the census is kept
        ("erase", *one, "--subject", "a.1", "--reason", "r", "--yes"),
    ):
        done = run("-m", "nats_transform", *command)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        last = done.stderr.splitlines()[-1]
        assert str(warehouse.folder) in last
        assert re.search("read-?only|ermission denied|failed to create", last), last
        assert "Traceback" not in done.stderr
    assert state() == before


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_simulation_that_is_killed(tmp_path: Path, warehouse: Warehouse) -> None:
    """Once its table is made, once messages are written, and once when they are published."""
    ingest(HERE, settings(dump(tmp_path, MINUTES), warehouse))
    (tmp_path / "new.conf").write_text('mappings { "a.0": "b.0" }')
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "B.json").write_text('{"config": {"name": "B", "subjects": ["b.*"]}}')
    command = (
        *(sys.executable, "-m", "nats_transform", "dry-run", "--stream", "S", "--simulate"),
        *("--candidate", "new.conf", "--streams", "streams", "--master", "local[1]"),
        *("--fail-on", "never"),
    )
    made = warehouse.folder / "nats" / SIMULATED.name

    def start() -> subprocess.Popen[str]:
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes)

    def held() -> list[int]:
        try:
            table = open_table(warehouse, SIMULATED)
        except NoTable:
            return []
        return sorted(table.scan().to_arrow()["archive_seq"].to_pylist())

    def files(pattern: str) -> set[Path]:
        return {*made.glob(pattern)}

    whole = [seq for seq in range(1, len(MINUTES) + 1) if (seq - 1) % 3 == 0]
    for pattern in ("metadata/*", "data/**/*.parquet", "metadata/snap-*"):
        before = files(pattern)
        process = start()
        while not files(pattern) - before:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert held() in ([], whole)
    process = start()
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, ""), errors
    assert f"stream B would hold {len(whole)} messages" in output
    assert held() == whole


# --- Clocks, files, mappings ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spark
def test_a_clock_that_jumps(spark: SparkSession, tmp_path: Path, warehouse: Warehouse) -> None:
    days = [0, 1, 0, 2, -1, 2]  # a block of messages on each, in the order of the stream
    times = [START + timedelta(days=day, seconds=n) for day in days for n in range(50)]
    result = ingest(spark, settings(dump(tmp_path, times), warehouse))
    assert (result.messages, result.gaps) == (len(times), 0)
    rows = read(spark, open_table(warehouse, MESSAGES), MESSAGES).orderBy("seq").collect()
    assert [row.day for row in rows] == [moment.date() for moment in times]
    assert ingest(spark, settings(dump(tmp_path, times), warehouse)).added == 0


MAPPING = 'mappings {{ "a.*": "b.{version}.$1" }}'
WEIGHTED = 'mappings { "a.*": [ { destination: "b.$1", weight: 50% } ] }'


def transform_settings(folder: Path, warehouse: Warehouse) -> TransformSettings:
    return TransformSettings(stream="S", mapping=folder / "mapping.conf", warehouse=warehouse)


@pytest.mark.slow
@pytest.mark.spark
def test_a_corrupt_data_file(spark: SparkSession, tmp_path: Path, warehouse: Warehouse) -> None:
    """A bit flips somewhere in the archive: a transform says so, or its rows are the same."""
    ingest(spark, settings(dump(tmp_path, MINUTES), warehouse))
    written(tmp_path / "mapping.conf", MAPPING.format(version="v1"))
    wanted = transform_settings(tmp_path, warehouse)
    good = transform(spark, wanted).digest
    before = [s.snapshot_id for s in open_table(warehouse, TRANSFORMED).metadata.snapshots]
    (task,) = open_table(warehouse, MESSAGES).scan().plan_files()
    path = Path(task.file.file_path.removeprefix("file://"))
    checksum = path.with_name(f".{path.name}.crc")
    whole = path.read_bytes()
    chance = random.Random(7)
    refused = 0
    for sums in (True, False):
        if not sums:
            # Object stores keep none of Hadoop's checksums: then the digests must see it.
            checksum.unlink(missing_ok=True)
        for position in (chance.randrange(4, len(whole)) for _ in range(6)):
            torn = bytearray(whole)
            torn[position] ^= 1 << chance.randrange(8)
            path.write_bytes(torn)
            try:
                result = transform(spark, wanted)
                if result.refused is not None:
                    raise JobError("refused", reason=result.refused)
                assert result.digest == good
            except JobError as error:
                refused += 1
                assert path.name in str(error) or "rows" in str(error)  # noqa: PT017 - either outcome is right
                now = open_table(warehouse, TRANSFORMED).metadata.snapshots
                assert [s.snapshot_id for s in now] == before
            before = [s.snapshot_id for s in open_table(warehouse, TRANSFORMED).metadata.snapshots]
    assert refused >= 6
    path.write_bytes(whole)
    assert transform(spark, wanted).digest == good


@pytest.mark.spark
def test_a_mapping_that_changes_in_mid_run(
    spark: SparkSession, tmp_path: Path, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(spark, settings(dump(tmp_path, MINUTES), warehouse))
    file = written(tmp_path / "mapping.conf", MAPPING.format(version="v1"))
    wanted = transform_settings(tmp_path, warehouse)
    version = mapping_version(load_mappings(file, "$G"), 0)
    run = jobs.transform.run

    def change_then_run(*given: Any) -> Any:
        file.write_text(MAPPING.format(version="v2"))
        return run(*given)

    monkeypatch.setattr(jobs.transform, "run", change_then_run)
    assert transform(spark, wanted).mapping_version == version
    rows = read(spark, open_table(warehouse, TRANSFORMED), TRANSFORMED).collect()
    assert {row.mapping_version for row in rows} == {version}
    assert {row.mapped_subject[:5] for row in rows} == {"b.v1."}


# --- Size -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spark
def test_many_long_subjects_in_a_heap_of_1_gib(
    spark: SparkSession, tmp_path: Path, warehouse: Warehouse
) -> None:
    """A million messages on 100,000 subjects of 200 tokens, through every job."""
    # Not the setting: another test of this process may have started the JVM, and changed it since.
    assert spark._jvm.java.lang.Runtime.getRuntime().maxMemory() <= 2**30  # type: ignore[union-attr]
    middle = ".".join(map(str, range(198)))
    subjects = pa.array([f"{n % 317}.{middle}.{n}" for n in range(100_000)])
    path = tmp_path / "messages.parquet"
    schema = pa.schema(
        [("seq", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("subject", pa.string())]
    )
    with pq.ParquetWriter(path, schema) as writer:
        for part in range(10):
            sequences = range(part * 100_000 + 1, (part + 1) * 100_000 + 1)
            times = [START + timedelta(seconds=seq / 10) for seq in sequences]
            writer.write_table(pa.table([sequences, times, subjects], schema=schema))
    given = IngestSettings(stream="S", parquet=str(path), warehouse=warehouse)
    assert ingest(spark, given).messages == 1_000_000
    text = 'mappings { "*.>": [{destination: "v.{{partition(8,1)}}.>", weight: 60}] }'
    mapping = written(tmp_path / "mapping.conf", text)
    settings = {"stream": "S", "warehouse": warehouse, "mapping": mapping}
    made = transform(spark, TransformSettings(**settings))
    assert made.fates["mapped"] == 1_000_000  # a remainder keeps its subject
    assert audit(spark, AuditSettings(**settings)).messages == 1_000_000
    tried = DryRunSettings(stream="S", warehouse=warehouse, candidate=mapping)
    found = dry_run(spark, tried).dry_run
    assert (found.messages, found.subjects) == (1_000_000, 100_000)
