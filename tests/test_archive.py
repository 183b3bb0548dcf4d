"""What an archive promises, whatever is done to it: nothing lost, doubled, mixed, written outside.

Hypothesis makes up histories of warehouses: messages come and go, jobs run and are killed,
warehouses are copied, moved, maintained and put back. After each step every warehouse must hold
what a model of a few dictionaries says, and no step may touch a file of another warehouse.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyspark.sql import SparkSession

from jobs.errors import JobError, NoTable
from jobs.ingest import ingest
from jobs.jetstream.process import NatsServer
from jobs.maintain import maintain
from jobs.replay import replay
from jobs.session import Spark
from jobs.settings.connection import NatsSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.maintain import MaintenanceSettings
from jobs.settings.replay import ReplaySettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import transform
from jobs.warehouse.specs import MESSAGES, TRANSFORMED, TableSpec
from jobs.warehouse.tables import open_table
from nats_transform.config import load_mappings, mapping_version
from nats_transform.mappings.subject import decode, encode
from tests.support.jobs import HERE
from tests.support.refused import refused
from tests.support.saying import says
from tests.support.stream_backups import messages_of, state_of_stream
from tests.support.streams import Stream, new_stream

pytestmark = pytest.mark.server

DAYS = [date(2026, 3, 1) + timedelta(days=n) for n in range(3)]
KEYS = ("a", "b", "ü")
# {to} is the stream that takes what this mapping makes of the stream {name}.
MAPPINGS = (
    'mappings {{ "{name}.*": [\n  {{destination: "{to}.v1.$1", weight: 60}}\n'
    '  {{destination: "{to}.v2.$1", weight: 40}}\n] }}\n',
    'mappings {{ "{name}.*": "{to}.{{{{left(1,1)}}}}.$1" }}\n',
)
SEED = 7
MESSAGE = ("stream", "seq", "subject", "data")
OUTCOME = (*MESSAGE, "mapped_subject", "fate", "mapping_version")


@dataclass(frozen=True)
class Sent:
    """A message as it was published, or written into the dump."""

    subject: str
    data: bytes
    day: date | None  # None: the server decides


@dataclass
class Held:
    """What a warehouse must hold."""

    messages: dict[str, dict[int, Sent]] = field(default_factory=dict)
    # Of each stream, the mapping that each sequence was transformed with.
    transformed: dict[str, dict[int, int]] = field(default_factory=dict)


class Archives(RuleBasedStateMachine):
    """One or more warehouses with a live stream and a dump that grows."""

    spark: Spark
    server: NatsServer
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="archives "))  # a blank, as in many paths
        self.live: Stream = new_stream(self.server)
        self.dump = self.root / "dump.jsonl"
        self.sources: dict[str, dict[int, Sent]] = {self.live.name: {}, "DUMP": {}}
        self.last = Counter[str]()
        self.targets: dict[tuple[str, int], Stream] = {}
        self.replayed: dict[tuple[str, int], dict[int, tuple[bytes, bytes]]] = {}
        for name in self.sources:
            for number, text in enumerate(MAPPINGS):
                target = new_stream(self.server)
                self.targets[name, number], self.replayed[name, number] = target, {}
                mapping = text.format(name=name, to=target.name)
                (self.root / f"{name}-{number}.conf").write_text(mapping)
        self.held: dict[Path, Held] = {}
        self.places = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    # --- What happens to the sources --------------------------------------------------------------

    @rule(count=st.integers(1, 40))
    def publish(self, count: int) -> None:
        """More messages in the live stream."""
        name = self.live.name
        sent = self._more(name, count)
        self.live.publish(
            (one.subject.removeprefix(f"{name}.").encode(), b"", one.data) for one in sent
        )

    @rule(count=st.integers(1, 40))
    def append(self, count: int) -> None:
        """More messages in the dump, on any of its days."""
        first = self.last["DUMP"] + 1
        with self.dump.open("a") as file:
            for seq, one in enumerate(self._more("DUMP", count, DAYS), first):
                time = datetime.combine(one.day, datetime.min.time(), UTC) + timedelta(seconds=seq)
                row = {"seq": seq, "ts": time.isoformat(), "subject": one.subject}
                file.write(json.dumps(row | {"data": one.data.decode()}) + "\n")

    def _more(self, name: str, count: int, days: list[date] | None = None) -> list[Sent]:
        sent = []
        for _ in range(count):
            self.last[name] += 1
            seq = self.last[name]
            day = days[seq % len(days)] if days else None
            one = Sent(f"{name}.{KEYS[seq % len(KEYS)]}{seq % 5}", f"{name} {seq}".encode(), day)
            self.sources[name][seq] = one
            sent.append(one)
        return sent

    @rule(keep=st.integers(0, 5))
    def purge(self, keep: int) -> None:
        """The live stream loses all but its last messages; what is archived stays archived."""
        self.live.run(lambda js: js.purge_stream(self.live.name, keep=keep or None))
        there = self.sources[self.live.name]
        for seq in sorted(there)[: max(0, len(there) - keep)]:
            del there[seq]

    # --- Jobs -------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        """A warehouse with both; from here on every rule has something to do."""
        self.publish(20)
        self.append(30)
        self.held[self._new_place()] = Held()
        self.ingests(0, 0)
        self.transforms(0, 0, None)

    def _new_place(self) -> Path:
        self.places += 1
        return self.root / f"warehouse {self.places}"

    def _ingest(self, place: Path, name: str) -> dict[str, Any]:
        source: dict[str, Any] = {"jsonl": str(self.dump)}
        if name == self.live.name:
            source = {"server": NatsSettings(servers=self.live.server.url)}
        return {"stream": name, "warehouse": Warehouse(dir=place), **source}

    def _after_ingest(self, place: Path, name: str) -> Held:
        held = copy.deepcopy(self.held[place])
        there = held.messages.setdefault(name, {})
        # What the stream still has and the archive does not.
        there |= {seq: one for seq, one in self.sources[name].items() if seq not in there}
        return held

    def _transform(self, place: Path, name: str, mapping: int, day: date | None) -> dict[str, Any]:
        file = self.root / f"{name}-{mapping}.conf"
        given = {"stream": name, "mapping": file, "seed": SEED, "first_day": day}
        return given | {"warehouse": Warehouse(dir=place)}

    def _after_transform(self, place: Path, name: str, mapping: int, day: date | None) -> Held:
        held = copy.deepcopy(self.held[place])
        there = held.transformed.setdefault(name, {})
        for seq, one in held.messages[name].items():
            if day in (None, one.day):
                there[seq] = mapping
        return held

    def _archived(self, pick: int) -> tuple[Path, str] | None:
        """A warehouse and a stream that it has messages of."""
        there = [(place, name) for place in self.held for name in self.held[place].messages]
        return sorted(there)[pick % len(there)] if there else None

    def _place(self, pick: int) -> Path:
        return sorted(self.held)[pick % len(self.held)]

    def _source(self, pick: int) -> str:
        # Without messages there is nothing to ingest, and the job says so.
        return [name for name, there in self.sources.items() if there][-1 - pick % 2 :][0]

    @rule(place=st.integers(0, 9), source=st.integers(0, 1))
    def ingests(self, place: int, source: int) -> None:
        where, name = self._place(place), self._source(source)
        after = self._after_ingest(where, name)
        with self.nothing_else_changes(where):
            result = ingest(self.spark, IngestSettings(**self._ingest(where, name)))
        self.held[where] = after
        assert result.messages == len(after.messages[name])

    @rule(pick=st.integers(0, 9), mapping=st.integers(0, 1), day=st.sampled_from([None, *DAYS]))
    def transforms(self, pick: int, mapping: int, day: date | None) -> None:
        if (found := self._archived(pick)) is None:
            return
        where, name = found
        day = day if name == "DUMP" else None
        after = self._after_transform(where, name, mapping, day)
        with self.nothing_else_changes(where):
            transform(self.spark, TransformSettings(**self._transform(where, name, mapping, day)))
        self.held[where] = after

    @rule(pick=st.integers(0, 9))
    def replays(self, pick: int) -> None:
        """The target of a mapping has each message once, whichever warehouses replay into it."""
        known = [(place, name) for place in self.held for name in self.held[place].transformed]
        if not known:
            return
        where, name = sorted(known)[pick % len(known)]
        held = self.held[where]
        used = set(held.transformed[name].values())
        mapping = min(used)
        target, sent = self.targets[name, mapping], self.replayed[name, mapping]
        nats = NatsSettings(servers=target.server.url)
        warehouse = Warehouse(dir=where)
        given = ReplaySettings(stream=name, warehouse=warehouse, to=target.name, server=nats)
        with self.nothing_else_changes(where):
            if len(used) > 1:
                with refused(JobError, "replay-several-versions", versions=2):
                    replay(given)
                return
            if held.messages[name].keys() != held.transformed[name].keys():
                assert [one.reason for one in replay(given).refusals] == ["untransformed"]
                given = given.model_copy(update={"allow": {"skips"}})
            assert replay(given).refusals == []
        for seq in held.transformed[name]:
            one = held.messages[name][seq]
            subject, *_ = self._outcome(name, seq, one, mapping)
            sent[seq] = encode(subject), one.data
        state = state_of_stream(target.server.url, target.name)
        there = messages_of(target.server.url, state)
        assert Counter((row["subject"], row["data"]) for row in there) == Counter(sent.values())

    @rule(place=st.integers(0, 9), later=st.sampled_from([0, 2, 30]))
    def maintains(self, place: int, later: int) -> None:
        """As if it ran so many days later: then nothing but the present is kept."""
        where = self._place(place)
        now = datetime.now(UTC) + timedelta(days=later)
        given = MaintenanceSettings(
            warehouse=Warehouse(dir=where), now=now, retention=timedelta(days=1)
        )
        lacks_tables = contextlib.nullcontext() if where.exists() else pytest.raises(NoTable)
        with self.nothing_else_changes(where), lacks_tables:
            maintain(given)

    # --- Warehouses as folders --------------------------------------------------------------------

    @precondition(lambda self: len(self.held) < 3)
    @rule(place=st.integers(0, 9))
    def copies(self, place: int) -> None:
        """From now on there are two, and each goes its way."""
        where, to = self._place(place), self._new_place()
        if where.exists():
            shutil.copytree(where, to)
        self.held[to] = copy.deepcopy(self.held[where])

    @rule(place=st.integers(0, 9))
    def moves(self, place: int) -> None:
        where, to = self._place(place), self._new_place()
        if where.exists():
            where.rename(to)
        self.held[to] = self.held.pop(where)

    @precondition(lambda self: len(self.held) > 1)
    @rule(backup=st.integers(0, 9), place=st.integers(0, 9))
    def restores(self, backup: int, place: int) -> None:
        """A warehouse is put back from a copy, at its own path."""
        source, where = self._place(backup), self._place(place)
        if source == where:
            return
        shutil.rmtree(where, ignore_errors=True)
        if source.exists():
            shutil.copytree(source, where)
        self.held[where] = copy.deepcopy(self.held[source])

    # --- The promise ------------------------------------------------------------------------------

    @contextmanager
    def nothing_else_changes(self, place: Path) -> Iterator[None]:
        """No file outside of a warehouse is made, changed or removed."""
        before = self._files(place)
        yield
        assert self._files(place) == before

    def _files(self, but: Path) -> dict[str, tuple[int, int]]:
        files = [file for file in self.root.rglob("*") if not file.is_relative_to(but)]
        found = {str(file): file.stat() for file in files if file.is_file()}
        return {name: (one.st_size, one.st_mtime_ns) for name, one in found.items()}

    @invariant()
    def holds_what_it_must(self) -> None:
        type(self).steps += 1
        for place, held in self.held.items():
            self.check(place, held)

    def check(self, place: Path, held: Held) -> None:
        """A warehouse holds what the model says, in files of its own."""
        messages, transformed = self.wanted(held)
        assert Counter(rows(place, MESSAGES, *MESSAGE)) == messages
        assert Counter(rows(place, TRANSFORMED, *OUTCOME)) == transformed

    def wanted(self, held: Held) -> tuple[Counter[Any], Counter[Any]]:
        """The rows of both tables."""
        messages = Counter[Any](
            (name, seq, one.subject, one.data)
            for name, there in held.messages.items()
            for seq, one in there.items()
        )
        transformed = Counter[Any](
            (name, seq, one.subject, one.data, *self._outcome(name, seq, one, there[seq]))
            for name, there in held.transformed.items()
            for seq, one in held.messages[name].items()
            if seq in there
        )
        return messages, transformed

    def _outcome(self, name: str, seq: int, one: Sent, mapping: int) -> tuple[Any, ...]:
        mappings = load_mappings(self.root / f"{name}-{mapping}.conf")
        outcome = mappings.replay(one.subject, stream=name, seq=seq, seed=SEED)
        return outcome.subject, outcome.fate.value, mapping_version(mappings, SEED)


WORK = {
    "pick": st.integers(0, 9),
    "job": st.sampled_from(["ingest", "transform"]),
    "mapping": st.integers(0, 1),
    "moment": st.floats(0.2, 1.1),
}


class KilledArchives(Archives):
    """The same with kill -9 of jobs, each a process of its own."""

    took: dict[str, float]  # seconds that a whole job takes

    def __init__(self) -> None:
        super().__init__()
        # Settings of the jobs are no part of what `nothing_else_changes` looks at.
        self.settings_files = Path(tempfile.mkdtemp())

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.settings_files)

    @rule(**WORK)
    def kills(self, pick: int, job: str, mapping: int, moment: float) -> None:
        """A job is killed: the day is as it was before or as it is after, never between."""
        where, given, after = self._work(pick, job, mapping)
        before = self.held[where]
        seconds = moment * self._seconds(job, where, given)
        with self.nothing_else_changes(where):
            self._kill(self._start(given), seconds)
        self.held[where] = self._which(where, before, after)

    @rule(**WORK)
    def races(self, pick: int, job: str, mapping: int, moment: float) -> None:
        """Two do the same work at once and one is killed: the other does it, or says run again."""
        where, given, after = self._work(pick, job, mapping)
        before = self.held[where]
        seconds = moment * self._seconds(job, where, given)
        with self.nothing_else_changes(where):
            one, other = self._start(given), self._start(given)
            self._kill(one, seconds)
            _, errors = other.communicate()
        if other.returncode:
            again = ("archive-changed-meanwhile", "table-changed-meanwhile", "table-kept-changing")
            assert any(says(errors.decode(), code) for code in again), errors
        self.held[where] = after if not other.returncode else self._which(where, before, after)

    def _work(
        self, pick: int, job: str, mapping: int
    ) -> tuple[Path, IngestSettings | TransformSettings, Held]:
        where, name = self._archived(pick)  # `begin` has ingested
        if job == "ingest":
            (self.publish if name == self.live.name else self.append)(20)
            ingests = IngestSettings(**self._ingest(where, name))
            return where, ingests, self._after_ingest(where, name)
        transforms = TransformSettings(**self._transform(where, name, mapping, None))
        return where, transforms, self._after_transform(where, name, mapping, None)

    def _start(self, given: IngestSettings | TransformSettings) -> subprocess.Popen[bytes]:
        job = "ingest" if isinstance(given, IngestSettings) else "transform"
        path = self.settings_files / f"{uuid4()}.json"
        path.write_text(given.model_dump_json(exclude_defaults=True, exclude={"run_id"}))
        return subprocess.Popen(
            [sys.executable, "-m", "jobs", job, str(path), "--master", "local[1]"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def _seconds(self, job: str, where: Path, given: Any) -> float:
        """How long such a job takes, measured once on a copy that is then thrown away."""
        if job not in self.took:
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(where, to := Path(folder) / "warehouse")
                elsewhere = given.model_copy(update={"warehouse": Warehouse(dir=to)})
                began = time.monotonic()
                process = self._start(elsewhere)
                _, errors = process.communicate()
                assert process.returncode == 0, errors
                self.took[job] = time.monotonic() - began
        return self.took[job]

    def _kill(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def _which(self, place: Path, before: Held, after: Held) -> Held:
        """The one of two that a warehouse holds; `after` if it is neither, and fails then."""
        try:
            self.check(place, before)
        except AssertionError:
            return after
        return before


def rows(place: Path, spec: TableSpec, *names: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table as any reader has them; none if there is no table yet."""
    if not place.exists():
        return iter(())
    try:
        table = open_table(Warehouse(dir=place), spec)
    except NoTable:
        return iter(())
    # The table may name the folder that it was made in: its files are looked up in this one.
    here = {file.name for file in place.rglob("*.parquet")}
    assert {Path(task.file.file_path).name for task in table.scan().plan_files()} <= here
    found = table.scan().to_arrow()

    def column(name: str) -> list[Any]:
        values = found.column(name).to_pylist()
        if f"{name}_raw" not in found.column_names:
            return values
        raw = found.column(f"{name}_raw").to_pylist()
        return [text if r is None else decode(r) for text, r in zip(values, raw, strict=True)]

    return zip(*(column(name) for name in names), strict=True)


def run(
    machine: type[Archives], spark: Spark, server: NatsServer, examples: int, steps: int
) -> int:
    """Runs so many histories of so many steps each; returns how many steps there were."""

    class Here(machine):  # type: ignore[misc,valid-type]
        pass

    Here.spark, Here.server, Here.steps, Here.took = spark, server, 0, {}
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            # A history takes long: a failure shows it as it is, and is not made shorter.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
    return Here.steps


def test_a_short_history(nats_server: NatsServer) -> None:
    """Without Spark, as little data is worked on."""
    assert run(Archives, HERE, nats_server, examples=2, steps=8) >= 8


@pytest.mark.slow
@pytest.mark.spark
def test_long_histories(spark: SparkSession, nats_server: NatsServer) -> None:
    assert run(Archives, spark, nats_server, examples=7, steps=40) >= 200


@pytest.mark.slow
@pytest.mark.spark
def test_long_histories_with_kills(spark: SparkSession, nats_server: NatsServer) -> None:
    assert run(KilledArchives, spark, nats_server, examples=4, steps=15) >= 40
