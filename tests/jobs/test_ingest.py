"""The ingest: complete, incremental and repeatable, whatever happens to it on the way."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession

from jobs.errors import AccountingError, ArchiveError
from jobs.files.write import Writer
from jobs.ingest import IngestResult, ingest
from jobs.jetstream.reader import RangeReader
from jobs.session import SessionOnDemand, Spark
from jobs.settings.connection import NatsSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.warehouse import Warehouse
from jobs.sources.source import Span, StreamSource
from jobs.warehouse.accounting import Archived
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import open_table, snapshot_properties
from nats_transform.kernel.coverage import Coverage
from tests import cases
from tests.support.archive import rows_of
from tests.support.digest import digest_of
from tests.support.jobs import dumped, erased
from tests.support.network import silent_after
from tests.support.refused import refused
from tests.support.stream_backups import back_up, restore

pytestmark = pytest.mark.server


@dataclass
class Run:
    """Ingests into a warehouse, from the module's server unless another source is given."""

    engine: Spark
    warehouse: Warehouse
    nats: NatsSettings

    def __call__(self, stream: str, **settings: Any) -> IngestResult:
        if not settings.keys() & {"server", "backup", "parquet", "jsonl"}:
            settings["server"] = self.nats
        given = IngestSettings(stream=stream, warehouse=self.warehouse, **settings)
        return ingest(self.engine, given)

    def checked(self, stream: str, **settings: Any) -> IngestResult:
        """An ingest whose result says what is in the table."""
        result = self(stream, **settings)
        self.check(result)
        return result

    def check(self, result: IngestResult) -> None:
        rows = rows_of(self.warehouse, result.stream)
        assert result.digest == str(digest_of([vars(r) for r in rows], MESSAGES.rows))
        assert result.messages == len(rows) == len({r.seq for r in rows})
        assert result.bytes == sum(len(r.data) for r in rows)
        assert (result.first_seq, result.last_seq) == (rows[0].seq, rows[-1].seq)

    def files(self) -> list[Path]:
        return [p for p in self.warehouse.folder.rglob("*.parquet") if p.is_file()]


@pytest.fixture
def run(here: SessionOnDemand, warehouse: Warehouse, nats: NatsSettings) -> Run:
    """Ingests in this process."""
    return Run(here, warehouse, nats)


def test_a_stream_is_followed_and_a_repeat_changes_nothing(run: Run, stream: Any) -> None:
    stream.count(300)
    stream.delete(1, 2, 50, 51)
    first = run.checked(stream.name)
    assert (first.messages, first.first_seq, first.last_seq, first.gaps) == (296, 3, 300, 2)
    assert first.added == 296

    again = run(stream.name)
    assert again.checks == {"ran": False, "hold": None, "results": []}
    assert again == first.model_copy(update={"added": 0, "days": [], "report": None})
    assert len(open_table(run.warehouse, MESSAGES).metadata.snapshots) == 1

    stream.count(100)
    more = run.checked(stream.name)
    assert (more.messages, more.last_seq, more.added) == (396, 400, 100)
    properties = snapshot_properties(open_table(run.warehouse, MESSAGES))
    assert properties["messages"] == "100"
    assert properties["job"] == "ingest"


def test_what_the_stream_has_deleted_since_stays(run: Run, stream: Any) -> None:
    stream.count(50)
    run(stream.name)
    stream.run(lambda js: js.purge_stream(stream.name))
    assert run(stream.name).messages == 50
    stream.count(10)
    result = run.checked(stream.name)
    assert (result.messages, result.last_seq) == (60, 60)


def test_ranges_are_put_together(run: Run, stream: Any) -> None:
    stream.count(100)
    assert run(stream.name, since=41, until=60).messages == 20
    assert run(stream.name, since=1, until=50).messages == 60
    result = run.checked(stream.name)
    assert (result.messages, result.gaps, result.added) == (100, 0, 40)


def test_a_stream_brings_what_a_dump_lacks(run: Run, stream: Any, tmp_path: Path) -> None:
    stream.count(9)
    stream.delete(4)
    run("WHOLE", from_stream=stream.name)
    lines = (
        {"seq": row.seq, "subject": row.subject.decode(), "ts_ns": row.ts_ns}
        for row in rows_of(run.warehouse, "WHOLE")
        if row.seq in (1, 3, 5, 8)
    )
    dump = dumped(tmp_path / "dump.jsonl", lines)
    assert run(stream.name, jsonl=str(dump)).messages == 4
    result = run.checked(stream.name)
    assert (result.messages, result.gaps, result.added) == (8, 1, 4)
    covered = Archived.of(open_table(run.warehouse, MESSAGES), stream.name).covered
    assert covered == "1-9"  # 4 is lost for good: nobody asks for it again


@pytest.mark.parametrize("from_backup", [False, True])
def test_a_dump_brings_what_the_stream_no_longer_had(
    run: Run, stream: Any, tmp_path: Path, from_backup: bool
) -> None:
    stream.count(9)
    run("WHOLE", from_stream=stream.name)
    lines = (
        {"subject": row.subject.decode(), "data": row.data.decode()}
        | {"seq": row.seq, "ts_ns": row.ts_ns}
        for row in rows_of(run.warehouse, "WHOLE")
    )
    dump = dumped(tmp_path / "dump.jsonl", lines)
    stream.delete(1, 2, 3)
    source = {"backup": back_up(stream, tmp_path / "backup")} if from_backup else {}
    assert run(stream.name, **source).messages == 6
    stream.count(1)
    assert run(stream.name).added == 1
    result = run.checked(stream.name, jsonl=str(dump))
    assert (result.messages, result.added, result.report.success) == (10, 3, True)
    assert run(stream.name).added == 0


def test_what_a_stream_loses_between_two_ingests_is_no_gap_that_nobody_explains(
    run: Run, stream: Any
) -> None:
    stream.count(5)
    run(stream.name)
    stream.count(5)
    stream.run(lambda js: js.purge_stream(stream.name, seq=9))
    result = run(stream.name)
    assert (result.messages, result.gaps, result.report.success) == (7, 3, True)
    again = run(stream.name)
    assert (again.messages, again.gaps, again.added, again.refused) == (7, 3, 0, None)


def test_a_subject_filter_belongs_to_the_archive(run: Run, stream: Any) -> None:
    stream.count(70)
    assert run(stream.name, subject=f"{stream.name}.n.2").messages == 10
    with refused(ArchiveError, "ingest-other-filter", wanted="none"):
        run(stream.name)
    other = run("ELSEWHERE", from_stream=stream.name)
    assert other.messages == 70


def test_a_subject_filter_stays_when_all_messages_are_erased(run: Run, stream: Any) -> None:
    stream.count(20)
    run(stream.name, subject=f"{stream.name}.n.2")
    assert erased(run.warehouse, stream.name, subject=">").messages
    with refused(ArchiveError, "ingest-other-filter", wanted=re.compile("n.3$")):
        run(stream.name, subject=f"{stream.name}.n.3")


def test_a_stream_is_followed_with_a_subject_filter(run: Run, stream: Any) -> None:
    subject = f"{stream.name}.n.2"
    stream.count(70)
    run(stream.name, subject=subject)
    assert run(stream.name, subject=subject).added == 0
    stream.count(30)
    stream.delete(2)
    result = run.checked(stream.name, subject=subject)
    assert (result.messages, result.added) == (14, 4)


def test_a_stream_that_went_back_is_refused_with_a_subject_filter(
    run: Run, stream: Any, tmp_path: Path
) -> None:
    """Its first message is still the archived one, but the last is not."""
    subject = f"{stream.name}.n.2"
    stream.count(10)
    folder = back_up(stream, tmp_path / "backup")
    stream.count(20)
    run(stream.name, subject=subject)
    for more in (5, 40):
        stream.remove()
        restore(stream.server.url, folder)
        stream.count(more)
        with refused(ArchiveError, "ingest-of-other-stream"):
            run(stream.name, subject=subject)


@pytest.mark.parametrize("subject", [None, "n.2"])
def test_another_stream_of_the_same_name_is_refused(
    run: Run, stream: Any, subject: str | None
) -> None:
    wanted = subject and f"{stream.name}.{subject}"
    stream.count(20)
    run(stream.name, subject=wanted)
    stream.create_again()
    stream.count(30)
    before = run.files()
    with refused(ArchiveError, "ingest-of-other-stream"):
        run(stream.name, subject=wanted)
    assert run.files() == before


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stream_that_is_created_again_between_two_commits(
    run: Run, stream: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    stream.count(100)
    run(stream.name, since=41, until=60)  # so that two commits are missing
    tasks, spans = StreamSource.tasks, list[Span]()

    def again() -> None:
        stream.create_again()
        stream.count(100)

    def tasks_of(source: StreamSource, span: Span, have: Coverage) -> Any:
        spans.append(span)
        if len(spans) == 2 and when == "before":
            again()
        found = tasks(source, span, have)
        if len(spans) == 2 and when == "after":
            again()
        return found

    monkeypatch.setattr(StreamSource, "tasks", tasks_of)
    with refused(ArchiveError, "read-recreated"):
        run(stream.name)
    assert rows_of(run.warehouse, stream.name)[-1].seq == 60


def test_several_commits(run: Run, stream: Any) -> None:
    """Messages of one day are one commit, however many a commit should have."""
    stream.count(100)
    result = run.checked(stream.name, publish_messages=10)
    assert len(open_table(run.warehouse, MESSAGES).metadata.snapshots) == len(result.days)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"stream": "NONE"}, "no-stream"),
        ({"server": NatsSettings(servers="nats://127.0.0.1:1")}, "server-not-reached"),
        ({}, "stream-empty"),
    ],
)
def test_a_source_that_cannot_be_read_makes_nothing(
    run: Run, stream: Any, settings: dict[str, Any], code: str
) -> None:
    with refused(ArchiveError, code):
        run(**({"stream": stream.name} | settings))
    assert not run.warehouse.folder.exists()


def test_a_work_queue_is_left_alone(run: Run, make_stream: Callable[..., Any]) -> None:
    queue = make_stream(retention="workqueue")
    queue.count(5)
    with refused(ArchiveError, "work-queue"):
        run(queue.name)
    assert not run.warehouse.folder.exists()
    assert queue.info().state.messages == 5


@pytest.mark.parametrize(("settings", "code"), cases.rows("requests.yaml", "no ingests"))
def test_settings_that_make_no_sense(settings: dict[str, Any], code: str) -> None:
    with refused(ValidationError, code):
        IngestSettings(stream="S", **settings)


def test_what_was_lost_on_the_way_is_not_published(
    run: Run, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.count(100)
    read = RangeReader.__call__

    def lossy(*given: Any) -> Iterator[pa.RecordBatch]:
        for rows in read(*given):
            yield rows.filter(pc.not_equal(rows.column("seq"), 7))

    monkeypatch.setattr(RangeReader, "__call__", lossy)
    with refused(AccountingError, "ingest-count-differs", least=100, messages=100, rows=99):
        run(stream.name)
    assert run.files() == []
    monkeypatch.undo()
    assert run(stream.name).messages == 100


def test_what_was_written_wrong_is_not_published(
    run: Run, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.count(100)
    write = Writer.write
    monkeypatch.setattr(Writer, "write", lambda self, rows: write(self, rows.slice(1)))
    with refused(AccountingError, "ingest-file-differs", rows=100, written=99):
        run(stream.name)
    assert run.files() == []


@pytest.mark.spark
def test_spark_and_this_process_make_the_same(
    spark: SparkSession, here: SessionOnDemand, nats: NatsSettings, stream: Any, tmp_path: Path
) -> None:
    stream.count(45_000)
    found = []
    for name, engine in (("spark", spark), ("process", here)):
        run = Run(engine, Warehouse(dir=tmp_path / name), nats)
        result = run.checked(stream.name)
        assert result.engine == name
        assert len(run.files()) == 2 * len(result.days)
        found.append(result.digest)
    assert found[0] == found[1]


def test_a_program_that_ends_does_not_wait_for_the_rest(
    run: Run, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two ranges fails: the other one is given up, and no file stays."""
    stream.count(40_000)
    read = RangeReader.__call__
    batches = []

    def failing(self: Any, sequences: tuple[int, int]) -> Iterator[pa.RecordBatch]:
        if sequences[0] > 1:
            raise ArchiveError("refused", reason="it fails")
        slow = RangeReader(self.nats, self.settings.model_copy(update={"batch": 10}), self.state)
        for rows in read(slow, sequences):
            batches.append(rows)
            yield rows

    monkeypatch.setattr(RangeReader, "__call__", failing)
    with refused(ArchiveError, "refused", reason="it fails"):
        run(stream.name)
    assert len(batches) < 2000
    assert run.files() == []


@pytest.mark.parametrize("word", [b"CONSUMER.CREATE", b"CONSUMER.MSG.NEXT"])
def test_a_program_that_is_terminated_does_not_wait_for_a_silent_server(
    word: bytes, run: Run, stream: Any, tmp_path: Path
) -> None:
    """It would be patient for an hour; Kubernetes kills after half a minute."""
    stream.count(100)
    with silent_after(stream.server.url, word) as (url, silent):
        server = {"servers": url, "patience": 3600, "connect_timeout": 3600}
        process = start(run, stream.name, server, tmp_path)
        assert silent.wait()
        process.terminate()
        assert process.communicate() == (b"", b"")
        assert process.returncode == 143
    assert run.files() == []


def test_concurrent_ingests_never_mix(run: Run, stream: Any) -> None:
    stream.count(400)
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(run, [stream.name] * 3))
    assert sum(result.added for result in results) == 400
    for result in results:
        run.check(result)
    assert len(run.files()) == len(list(open_table(run.warehouse, MESSAGES).scan().plan_files()))


@pytest.mark.slow
def test_a_day_that_is_still_being_written(run: Run, stream: Any) -> None:
    """Each run has the stream up to some message, the last all of it; all say the day goes on."""
    stream.count(100)
    done = threading.Event()

    def keep_publishing() -> None:
        while not done.is_set():
            stream.count(50)

    with ThreadPoolExecutor() as pool:
        publishing = pool.submit(keep_publishing)
        try:
            results = [run(stream.name) for _ in range(2)]
        finally:
            done.set()
        publishing.result()
    results.append(run(stream.name))
    run.check(results[-1])
    assert results[-1].messages == stream.info().state.messages
    assert all(result.messages == result.last_seq for result in results)
    assert sum(result.added for result in results) == results[-1].messages
    assert all(result.open_day == max(result.days) for result in results if result.days)
    assert results[1].added > 0


def start(
    run: Run, stream: str, server: dict[str, Any], folder: Path, *options: str
) -> subprocess.Popen[bytes]:
    path, tables = folder / "settings.json", {"dir": str(run.warehouse.folder)}
    path.write_text(json.dumps({"stream": stream, "server": server, "warehouse": tables}))
    return subprocess.Popen(
        [sys.executable, "-m", "jobs", "ingest", str(path), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "options"),
    [pytest.param(2, ("--master", "local[2]"), marks=pytest.mark.spark), (20, ())],
    ids=["spark", "process"],
)
def test_killed_at_many_moments(
    run: Run, stream: Any, tmp_path: Path, kills: int, options: tuple[str, ...]
) -> None:
    """Kills ingests of a growing stream, each at another moment; the next must repair it."""
    given = (run, stream.name, {"servers": stream.server.url}, tmp_path, *options)
    started = time.monotonic()
    stream.count(2000)
    whole = start(*given)
    output, errors = whole.communicate()
    assert whole.returncode == 0, errors
    assert json.loads(output)["messages"] == 2000
    took = time.monotonic() - started
    chance = random.Random(stream.name)
    for _ in range(kills):
        stream.count(2000)
        process = start(*given)
        time.sleep(chance.uniform(0.3, 1.0) * took)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        result = run.checked(stream.name)
        assert result.messages == result.last_seq == stream.info().state.messages
