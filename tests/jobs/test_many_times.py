"""A process that calls jobs again and again, as schedulers do, keeps nothing of earlier calls."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyiceberg.utils.concurrent import ExecutorFactory

from jobs.jetstream.process import NatsServer, nats_server
from jobs.maintain import remove_stream
from jobs.registry import JOBS
from jobs.session import SessionOnDemand
from jobs.settings.spark import SparkSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.folder import CATALOG_FILE
from tests.support.jobs import dumped
from tests.support.kept import kept_of
from tests.support.stream_backups import back_up
from tests.support.streams import Stream, new_stream

pytestmark = pytest.mark.server

MAPPING = 'mappings { "S.n.*": [{dest: "new.$1", weight: 40%}, {dest: "old.$1", weight: 60%}] }'


class Place:
    """A stream on a server, its archive, and a plan for its mapping."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self.folder, self.warehouse = folder, Warehouse(dir=folder / "warehouse")
        self.nats = {"servers": server.url}
        stream = Stream(server, "S")
        stream.run(lambda js: js.add_stream(name="S", subjects=["S.>"]))
        stream.count(300)
        self.target = new_stream(server, subjects=["new.*", "old.*"]).name
        self.backup = back_up(stream, folder / "backup")
        self.mapping, self.dump = folder / "m.conf", folder / "dump.jsonl"
        self.mapping.write_text(MAPPING)
        self.streams = folder / "streams.json"
        self.streams.write_text(json.dumps({"config": {"name": "S", "subjects": ["S.>"]}}))
        message = {"subject": "S.n.1", "ts": "2026-03-01T00:00:00Z"}
        dumped(self.dump, (message | {"seq": sequence} for sequence in range(1, 301)))
        self._numbers = itertools.count()
        self.call("ingest", server=self.nats)
        self.call("transform", mapping=self.mapping)
        self.files = {"candidate": self.mapping, "streams": self.streams}
        self.plan = self.new("plan")
        self.call("plan", **self.files, without_streams=True, out=self.plan)
        # PyIceberg starts a thread when it has work and none is idle, up to a number: here are all.
        threads = ExecutorFactory.get_or_create()
        together = Barrier(threads._max_workers)  # type: ignore[attr-defined]
        list(threads.map(lambda _: together.wait(), range(together.parties)))

    def new(self, kind: str) -> str:
        """The path of something that is not there yet."""
        return f"{self.folder}/{kind}-{next(self._numbers)}"

    def call(self, job: str, **settings: Any) -> Any:
        """Calls a job as `python -m jobs` does."""
        row = JOBS[job]
        model = row.model
        own = {"stream": "S", "warehouse": self.warehouse.model_dump()} | settings
        text = json.dumps(
            {name: own[name] for name in own if name in model.model_fields}, default=str
        )
        spark = [SessionOnDemand(SparkSettings())] if row.needs_spark else []
        return row.function(*spark, model.model_validate_json(text))

    def lock(self) -> None:
        """Locks the catalog for itself alone, at once.

        Raises:
            sqlite3.OperationalError: somebody has a lock.
        """
        with closing(sqlite3.connect(self.warehouse.folder / CATALOG_FILE, timeout=0)) as catalog:
            catalog.execute("BEGIN EXCLUSIVE")


def ingest_and_remove(place: Place) -> None:
    stream = place.new("stream")
    place.call("ingest", stream=stream, from_stream="S", server=place.nats)
    remove_stream(place.warehouse, stream)


def ingest_and_erase(place: Place) -> None:
    stream = place.new("stream")
    place.call("ingest", stream=stream, jsonl=place.dump)
    place.call("erase", stream=stream, seq="1..5", yes=True, reason="r")
    remove_stream(place.warehouse, stream)


def transform_compare_and_promote(place: Place) -> None:
    branch = place.new("branch").rpartition("/")[2]
    there = place.warehouse.model_dump() | {"branch": branch}
    place.call("transform", mapping=place.mapping, warehouse=there)
    place.call("compare", before="main", after=branch)
    place.call("promote", branch=branch)


CALLS: dict[str, Callable[[Place], Any]] = {
    "ingest": lambda at: at.call("ingest", server=at.nats),
    "ingest, then remove": ingest_and_remove,
    "ingest a backup": lambda at: at.call(
        "ingest", stream=at.new("backup"), from_stream="S", backup=at.backup
    ),
    "ingest a dump": lambda at: at.call("ingest", stream=at.new("dump"), jsonl=at.dump),
    "census": lambda at: at.call("census"),
    "transform": lambda at: at.call("transform", mapping=at.mapping),
    "verify-table": lambda at: at.call("verify-table"),
    "compare and promote": transform_compare_and_promote,
    "erase": ingest_and_erase,
    "audit": lambda at: at.call("audit", mapping=at.mapping),
    "audit what happened": lambda at: at.call("audit", mapping=at.mapping, observed=True),
    "plan-canary": lambda at: at.call("plan-canary", mapping=at.mapping),
    "dry-run": lambda at: at.call("dry-run", candidate=at.mapping, nats=at.nats),
    "dry-run that simulates": lambda at: at.call("dry-run", **at.files, simulate=True),
    "certify": lambda at: at.call("certify", **at.files),
    "plan": lambda at: at.call("plan", **at.files, without_streams=True, out=at.new("plan")),
    "verify": lambda at: at.call("verify", plan=at.plan, step=0, nats=at.nats),
    "census-export": lambda at: at.call("census-export", out=at.new("census")),
    "replay": lambda at: at.call("replay", to=at.target, server=at.nats),
    "export": lambda at: at.call(
        "export", to_backup=at.new("export"), original=at.backup, mapping=at.mapping
    ),
    "maintain": lambda at: at.call("maintain", retention="PT0S"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with nats_server() as server:
        yield Place(server, tmp_path_factory.mktemp("many times"))


def test_every_job_is_called() -> None:
    assert {word.strip(",") for name in CALLS for word in name.split()} >= set(JOBS)


# One for each way to open things: a server, a table that is read or written, a child process. All
# of them together are minutes.
QUICK = ("ingest", "transform", "audit", "verify-table", "verify", "replay", "certify")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in CALLS],
)
def test_a_job_keeps_nothing(place: Place, name: str) -> None:
    assert not kept_of(lambda: CALLS[name](place), calls=10)
    place.lock()


@pytest.mark.slow
def test_a_thousand_calls(place: Place) -> None:
    calls = itertools.cycle(CALLS)

    def call() -> None:
        CALLS[next(calls)](place)

    assert not kept_of(call, calls=1000, collecting=True)
    place.lock()
