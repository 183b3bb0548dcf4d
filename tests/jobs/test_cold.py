"""What a command imports before it works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from jobs.__main__ import JOBS

# What takes long to import, and what small work on an archive does without.
SLOW = ("pandas", "dagster", "great_expectations", "matplotlib", "pyspark", "py4j")
LOOK = """
import sys
from jobs.cold import without_pandas
without_pandas()
import {module}
print([name for name in {slow} if name in sys.modules])
import pyarrow as pa
print(pa.table({{"a": [1, None]}}).to_pandas()["a"].sum())
"""


MAPPING = "mappings { a: [ {destination: b, weight: 50}, {destination: c, weight: 50} ] }"
WORK = """
import json, sys
from jobs.__main__ import JOBS, _run
from jobs.session import SparkSettings
for name, settings in json.load(sys.stdin):
    _run(JOBS[name], json.dumps(settings).encode(), SparkSettings())
    print(name, [module for module in {slow} if module in sys.modules])
"""


def test_small_work_needs_no_spark(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        "".join(f'{{"subject": "a", "ts": "2026-03-01T00:00:{n:02}Z"}}\n' for n in range(60))
    )
    (tmp_path / "a.conf").write_text(MAPPING)
    of = {"stream": "S", "warehouse": {"dir": str(tmp_path / "warehouse")}}
    mapping = {"mapping": str(tmp_path / "a.conf")}
    work = {
        "ingest": of | {"jsonl": str(tmp_path / "a.jsonl")},
        "transform": of | mapping,
        "audit": of | mapping,
        "census": of,
        "dry-run": of | {"candidate": str(tmp_path / "a.conf")},
    }
    done = subprocess.run(
        [sys.executable, "-c", WORK.format(slow=SLOW)],
        input=json.dumps([*work.items()]),
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == [f"{name} []" for name in work], done.stderr


def test_jobs_import_little_and_pandas_still_works() -> None:
    modules = ", ".join(f"jobs.{job.module}" for job in JOBS.values())
    done = subprocess.run(
        [sys.executable, "-c", LOOK.format(module=modules, slow=SLOW)],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n1.0\n", done.stderr
