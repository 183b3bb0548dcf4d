"""What a command imports before it works."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs.files import engine
from jobs.registry import JOBS
from tests.support.programs import in_python

# What takes long to import, and what small work on an archive does without.
SLOW = ("pandas", "dagster", "great_expectations", "matplotlib", "pyspark", "py4j", "sqlalchemy")
LOOK = """
import sys
from jobs.startup import without_pandas
without_pandas()
import {module}
print([name for name in {slow} if name in sys.modules])
import pyarrow as pa
print(pa.table({{"a": [1, None]}}).to_pandas()["a"].sum())
"""


# An environment without the extra `spark`.
WITHOUT_SPARK = """
import sys
class Hidden:
    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] in ("pandas", "py4j", "pyspark"):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
sys.meta_path.insert(0, Hidden())
"""
MAPPING = "mappings { a: [ {destination: b, weight: 50}, {destination: c, weight: 50} ] }"
WORK = """
import json, sys
from jobs.registry import JOBS
from jobs.settings.spark import SparkSettings
for name, settings in json.load(sys.stdin):
    job = JOBS[name]
    job.run(job.model.model_validate(settings), SparkSettings())
    print(name, [module for module in {slow} if module in sys.modules])
"""


@pytest.fixture
def work(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """The settings of some jobs, to be run in this order."""
    (tmp_path / "a.jsonl").write_text(
        "".join(f'{{"subject": "a", "ts": "2026-03-01T00:00:{n:02}Z"}}\n' for n in range(60))
    )
    (tmp_path / "a.conf").write_text(MAPPING)
    of = {"stream": "S", "warehouse": {"dir": str(tmp_path / "warehouse")}}
    mapping = {"mapping": str(tmp_path / "a.conf")}
    return {
        "ingest": of | {"jsonl": str(tmp_path / "a.jsonl")},
        "transform": of | mapping,
        "audit": of | mapping,
        "census": of,
        "dry-run": of | {"candidate": str(tmp_path / "a.conf")},
    }


def test_small_work_needs_no_spark(work: dict[str, dict[str, Any]]) -> None:
    code = WITHOUT_SPARK + WORK.format(slow=(*SLOW, "scipy.stats"))
    done = in_python(code, input=json.dumps([*work.items()]))
    assert done.stdout.splitlines() == [f"{name} []" for name in work], done.stderr


@pytest.mark.parametrize("where", [["--engine", "spark"], ["--remote", "sc://localhost"]])
def test_what_needs_spark_says_how_to_get_it(tmp_path: Path, where: list[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"subject": "a", "ts": 0}')
    command = ["ingest", "--stream", "S", "--jsonl", "a.jsonl", "--warehouse", "w", *where]
    code = f"{WITHOUT_SPARK}from cli.main import main\nmain({command})"
    done = in_python(code, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "nats-transform: this needs pyspark, which is not installed: "
        "pip install 'nats-transform[spark]'\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the threads")
def test_a_command_starts_no_threads_that_spin_for_numpy_and_scipy() -> None:
    environment = {name: text for name, text in os.environ.items() if "THREADS" not in name}
    code = (
        "import os, cli.main\n"
        "def command_line():\n"
        "    import numpy, scipy.linalg\n"
        "    print(len(os.listdir('/proc/self/task')))\n"
        "cli.main.main = command_line\n"
        "from nats_transform.__main__ import main\n"
        "main()"
    )
    assert in_python(code, env=environment).stdout == "1\n"


def test_the_library_says_how_to_get_spark() -> None:
    done = in_python(f"{WITHOUT_SPARK}import nats_transform.spark")
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: nats_transform.spark needs Spark: pip install 'nats-transform[spark]'"
    )


def test_every_job_can_be_imported_without_spark() -> None:
    names = [f"jobs.{job.work.partition(':')[0]}" for job in JOBS.values()]
    code = f"import importlib\nprint(*map(importlib.import_module, {names}))"
    done = in_python(WITHOUT_SPARK + code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.spark
def test_a_worker_of_spark_imports_no_pandas(
    work: dict[str, dict[str, Any]],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every task says at its end what its process has imported."""
    # Another environment is another worker: none that has run the tasks of other tests.
    monkeypatch.setitem(spark.sparkContext.environment, "NATS_TRANSFORM_TEST", "new")
    told = tmp_path / "told"
    in_spark = engine._in_spark

    def noted(job_work: Callable[[Any], Any], *given: Any) -> list[Any]:
        def both(task: Any) -> Any:
            result = job_work(task)
            found = {"pandas", "matplotlib", "dagster"} & {*sys.modules}
            with told.open("a") as file:
                file.write(f"{os.getpid()} {sorted(found)}\n")
            return result

        return in_spark(both, *given)

    monkeypatch.setattr(engine, "_in_spark", noted)
    for name in ("ingest", "transform", "audit", "census"):
        job = JOBS[name]
        job.function(spark, job.model(**work[name]))
        lines = [line.partition(" ") for line in told.read_text().splitlines()]
        assert lines, name
        assert {pid for pid, _, _ in lines}.isdisjoint({str(os.getpid())})
        assert {found for _, _, found in lines} == {"[]"}, name
        told.unlink()


def test_jobs_import_little_and_pandas_still_works() -> None:
    modules = ", ".join(f"jobs.{job.work.partition(':')[0]}" for job in JOBS.values())
    done = in_python(LOOK.format(module=modules, slow=(*SLOW, "scipy.stats")))
    assert done.stdout == "[]\n1.0\n", done.stderr


def test_queries_draw_no_progress() -> None:
    """By itself DuckDB does where Python has no file: a bar amid the results, of slow queries."""
    code = """
from pathlib import Path
from nats_transform.migration.connection import connect
with connect(Path(".")) as connection:
    print(*connection.execute("SELECT current_setting('enable_progress_bar')").fetchone())
"""
    done = in_python(code)
    assert (done.stdout, done.stderr) == ("False\n", "")
