"""How long small jobs take from a cold command line, beside a bare start of a Spark session.

    python benchmarks/cold.py [--messages 100000] [--ingests 1] [--rounds 3]

In each round, in turn: Python that only starts a Spark session and stops it, then the commands
`ingest` of a dump of JSON lines, `transform`, `audit` and `dry-run`. The archive grows by so many
ingests, of which the last is timed. Prints seconds and the processor seconds of all processes, the
JVM's included, and medians of the ratios to the bare start within a round. A round before the first
one is left out: in it Python may compile its modules.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
BARE = "bare start of Spark"
MAPPING = """mappings { "orders.*.new": [
    {destination: "v2.orders.$1.new", weight: 60}, {destination: "v3.orders.$1.new", weight: 40}
] }"""
START = datetime(2026, 3, 1, tzinfo=UTC)
# An installation has compiled modules.
ENVIRONMENT = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def dump(path: Path, first: int, end: int) -> None:
    """Messages of a day, on a thousand subjects."""
    with path.open("w") as file:
        for n in range(first, end):
            row = {
                "seq": n + 1,
                "subject": f"orders.{n % 1000}.new",
                "ts": (START + timedelta(milliseconds=n)).isoformat(),
                "headers": {"Trace": f"{n:016x}"},
                "data": "x" * 64,
            }
            file.write(json.dumps(row) + "\n")


def timed(command: list[str | Path], folder: Path) -> tuple[float, float]:
    """Seconds, and processor seconds of the command and of all that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT)
    took = time.perf_counter() - start
    with contextlib.suppress(ChildProcessError):  # a JVM may end after what started it
        while True:
            os.wait()
    if done.returncode != 0 and (done.returncode != 1 or "Traceback" in done.stderr):
        raise RuntimeError(f"{command} failed: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--ingests", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "mapping.conf").write_text(MAPPING)
        stream = ["--stream", "S", "--json", "--warehouse"]
        run = Path(sys.executable).parent / "nats-transform"
        bare = "from jobs.session import spark_session\n"
        bare += "from jobs.settings.spark import SparkSettings\n"
        bare += "spark_session(SparkSettings()).stop()"
        ends = [given.messages * (n + 1) // given.ingests for n in range(given.ingests)]
        for first, end in pairwise([0, *ends]):
            dump(folder / "dump.jsonl", first, end)
            if end < given.messages:
                timed([run, "ingest", *stream, "before", "--jsonl", "dump.jsonl"], folder)
        print(f"{given.messages:,} messages, ingests: {given.ingests}", end="; ")
        print(f"load of the machine {os.getloadavg()[0]:.1f}")
        for round_ in range(given.rounds + 1):
            place = f"warehouse-{round_}"
            if given.ingests > 1:
                shutil.copytree(folder / "before", folder / place)
            commands: dict[str, list[str | Path]] = {
                BARE: [sys.executable, "-c", bare],
                "ingest": [run, "ingest", *stream, place, "--jsonl", "dump.jsonl"],
                "transform": [run, "transform", *stream, place, "--mapping", "mapping.conf"],
                "audit": [run, "audit", *stream, place, "--mapping", "mapping.conf"],
                "dry-run": [run, "dry-run", *stream, place, "--candidate", "mapping.conf"],
            }
            for what, command in commands.items():
                took = timed(command, folder)
                if round_:
                    found.setdefault(what, []).append(took)
                    print(f"{what:20} {took[0]:7.2f} s {took[1]:7.2f} processor s", flush=True)
    for what, times in found.items():
        pairs = list(zip(times, found[BARE], strict=True))
        wall = statistics.median(one[0] / bare_start[0] for one, bare_start in pairs)
        spent = statistics.median(one[1] / bare_start[1] for one, bare_start in pairs)
        print(f"{what:20} {wall:.2f} of the bare start, {spent:.2f} of its processor time")


if __name__ == "__main__":
    main()
