"""Dagster projects with archives of a few hundred messages, on a real instance (SQLite)."""

from __future__ import annotations

import atexit
import functools
import json
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy
from alembic.script import ScriptDirectory
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from pyspark.sql import DataFrame, SparkSession

from benchmarks.frames import read
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import TRANSFORMED, TableSpec
from jobs.warehouse.tables import open_table, snapshot_properties
from orchestration.days import range_tags
from orchestration.loading import load_archives
from tests.support.configs import SHOP
from tests.support.files import edit

FIRST = date(2026, 3, 1)
DAYS = (FIRST, FIRST + timedelta(days=1))
DAY_KEYS = [day.isoformat() for day in DAYS]
ASSETS = ("mapping_version", "messages", "subject_census", "transformed_messages", "weight_audit")
MAPPING = SHOP
OTHER_WEIGHTS = MAPPING.replace("60%", "50%").replace("40%", "50%")
YAML = """type: nats_transform.dagster.SubjectArchive
attributes:
  name: {name}
  stream: {stream}
  start_date: "2026-03-01"
  sources:
    - jsonl: messages.jsonl
  mapping: mapping.conf
  seed: 7
  warehouse: ../../warehouse
  spark: {{ driver_memory: 512m, config: {{ spark.sql.shuffle.partitions: "2" }} }}
  tolerance: 15
  engine: auto
"""
DEFINITIONS = """from pathlib import Path

import dagster as dg

from orchestration.failures import failed_runs
from orchestration.loading import load_archives
from orchestration.orphaned_runs import orphaned_runs


@dg.definitions
def defs():
    return dg.Definitions.merge(
        load_archives(Path(__file__).parent),
        dg.Definitions(sensors=[failed_runs, orphaned_runs], executor=dg.in_process_executor),
    )
"""


@dataclass
class Project:
    """A Dagster project in a folder of its own, and its instance."""

    root: Path
    name: str
    instance: dg.DagsterInstance

    @property
    def defs_folder(self) -> Path:
        return self.root / "src" / self.name / "defs"

    @property
    def warehouse(self) -> Warehouse:
        """The warehouse of its archives."""
        return Warehouse(dir=self.defs_folder.parent / "warehouse")

    def published(self) -> dict[str, str]:
        """What the current snapshot of the transformed messages says of itself."""
        return snapshot_properties(open_table(self.warehouse, TRANSFORMED))

    def rows(
        self, spark: SparkSession, spec: TableSpec = TRANSFORMED, days: Sequence[date] | None = None
    ) -> DataFrame:
        """The rows of stream EAST on some days, as readers of the table see them."""
        return read(spark, open_table(self.warehouse, spec), spec, "EAST", days)

    def add(self, archive: str, more: str = "", mapping: str = MAPPING, count: int = 300) -> Path:
        """The folder of a new archive; `more` is further YAML of its attributes."""
        folder = self.defs_folder / archive
        folder.mkdir(parents=True)
        (folder / "defs.yaml").write_text(YAML.format(name=archive, stream=archive.upper()) + more)
        (folder / "mapping.conf").write_text(mapping)
        write_messages(folder / "messages.jsonl", count)
        return folder

    def edit(self, archive: str, *changes: tuple[str, str]) -> None:
        """Replaces parts of the YAML of an archive, each of which must be there."""
        edit(self.defs_folder / archive / "defs.yaml", *changes)

    def load(self) -> dg.Definitions:
        """Its definitions, from its YAML files as they are now."""
        tree = dg.ComponentTree.for_project(self.root)
        # Of the folder: the whole tree brings JSON schemas of components too, which take most time.
        return tree.build_defs(tree.defs_module_path)

    def graph(self) -> Any:
        """The graph of its assets, if what is broken is left out as in production."""
        return load_archives(self.root).get_repository_def().asset_graph

    def materialize(
        self, archive: str, assets: Sequence[str] = ASSETS, days: tuple[date, date] = DAYS
    ) -> dg.ExecuteInProcessResult:
        """The result of one run over these assets and days."""
        tags = None if list(assets) == ["mapping_version"] else range_tags(*days)
        return self.run(assets=[f"{archive}/{asset}" for asset in assets], tags=tags)

    def made(
        self, archive: str, assets: Sequence[str] = ASSETS, days: tuple[date, date] = DAYS
    ) -> dg.ExecuteInProcessResult:
        """The result of `materialize`, which must succeed."""
        result = self.materialize(archive, assets, days)
        assert result.success, failures(result)
        return result

    def run(
        self,
        job: str = "",
        assets: Sequence[str] | None = None,
        ops: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        defs: dg.Definitions | None = None,
    ) -> dg.ExecuteInProcessResult:
        """The result of a run, whether or not it succeeds.

        Args:
            job: its name; without one it is the job of all assets.
            assets: those of it, as `east/messages`.
            ops: the configuration of its ops.
            tags: of the run.
            defs: what it is defined by, if not by the YAML files as they are now.
        """
        defs = defs or self.load()
        whole = defs.resolve_implicit_global_asset_job_def
        return (defs.resolve_job_def(job) if job else whole()).execute_in_process(
            instance=self.instance,
            asset_selection=None if assets is None else list(map(key, assets)),
            tags=tags,
            raise_on_error=False,
            run_config={
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                "ops": {name: {"config": config} for name, config in (ops or {}).items()},
            },
        )

    def ticked(
        self, name: str, cursor: str | None = None, defs: dg.Definitions | None = None
    ) -> Any:
        """What a sensor says, as the daemon asks it."""
        defs = defs or self.load()
        with dg.build_sensor_context(
            self.instance, cursor=cursor, definitions=defs, sensor_name=name
        ) as context:
            return defs.resolve_sensor_def(name).evaluate_tick(context)

    def ticked_at(self, now: datetime, schedule: str) -> Any:
        """What a schedule says at a moment."""
        defs = self.load()
        with dg.build_schedule_context(
            self.instance, scheduled_execution_time=now, repository_def=defs.get_repository_def()
        ) as context:
            return defs.resolve_schedule_def(schedule).evaluate_tick(context)


def key(text: str) -> dg.AssetKey:
    """Of `east/messages`, the key of an asset."""
    return dg.AssetKey(text.split("/"))


def materialized(result: dg.ExecuteInProcessResult) -> set[tuple[str, str | None]]:
    """The assets that a run has made, as `east/messages`, each with its day."""
    events = [event for event in result.all_events if event.is_step_materialization]
    return {("/".join(event.asset_key.path), event.partition) for event in events}


def told_of(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    """The metadata of the latest materialization of an asset, as `east/messages`, in a run."""
    *_, event = result.asset_materializations_for_node(asset.replace("/", "__"))
    return values(event.metadata)


def values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What is in the entries of metadata."""
    return {name: entry.value for name, entry in metadata.items()}


def write_messages(path: Path, count: int) -> None:
    """A dump of two days: orders, payments, and what no mapping matches."""
    start = datetime.combine(FIRST, datetime.min.time(), UTC)
    with path.open("w") as file:
        for n in range(count):
            subject = (f"orders.eu.{n}", f"orders.us.{n}", f"paid.{n}", "other")[n % 4]
            ts = start + timedelta(days=2 * n / count)
            row = {"seq": n + 1, "ts": ts.isoformat(), "subject": subject, "data": f"payload {n}"}
            file.write(json.dumps(row) + "\n")


def failures(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Why each asset of a run failed, as the asset says."""
    found = {}
    for event in result.all_events:
        if event.is_step_failure:
            data = event.step_failure_data.user_failure_data
            assert data is not None, event.step_failure_data.error
            found[event.node_name.replace("__", "/")] = str(data.description)
    return found


@functools.lru_cache(16)
def _engine(url: str, seconds: float) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(
        url, poolclass=sqlalchemy.NullPool, connect_args={"timeout": seconds}
    )


def _kept_engine(url: str, connect_args: Mapping[str, float] | None = None, **_: Any) -> Any:
    """Dagster makes an engine for each connection to SQLite, and each compiles all queries anew."""
    return _engine(url, (connect_args or {}).get("timeout", 5.0))


for _storage in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
    _storage.create_engine = _kept_engine
# It also reads its migrations anew for each run, of which each has a database of its own.
ScriptDirectory.from_config = functools.cache(ScriptDirectory.from_config)


@functools.cache
def _new_home() -> Path:
    """The home of an instance without runs; Dagster takes long to make its databases."""
    home = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, home)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    dg.DagsterInstance.from_config(str(home)).dispose()
    return home


@contextmanager
def empty_project(
    root: Path, monkeypatch: pytest.MonkeyPatch, settings: str = ""
) -> Iterator[Project]:
    name = f"project_{secrets.token_hex(4)}"
    (root / "src" / name / "defs").mkdir(parents=True)
    (root / "src" / name / "definitions.py").write_text(DEFINITIONS)
    (root / "dg.toml").write_text(
        f'directory_type = "project"\n\n[project]\nroot_module = "{name}"\n'
        'registry_modules = ["nats_transform.dagster"]\n'
    )
    monkeypatch.syspath_prepend(str(root / "src"))
    home = root / "dagster"
    shutil.copytree(_new_home(), home)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n" + settings)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield Project(root, name, instance)
