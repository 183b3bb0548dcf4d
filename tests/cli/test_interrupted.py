"""Ctrl-C ends a command with exit code 130 and one line, whatever it does at that moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = str(Path(sys.executable).parent / "nats-transform")
Moment = Callable[[subprocess.Popen[str], Path], bool]


def importing(process: subprocess.Popen[str], warehouse: Path) -> bool:
    """Python has opened a library that takes long to import."""
    return "/libarrow" in Path(f"/proc/{process.pid}/maps").read_text()


def spark_starts(process: subprocess.Popen[str], warehouse: Path) -> bool:
    """There is a JVM; it takes seconds until it answers."""
    return bool(virtual_machines(process))


def spark_works(process: subprocess.Popen[str], warehouse: Path) -> bool:
    """The table is there: from now on Spark reads and writes."""
    return (warehouse / "catalog.db").exists()


def spark_is_gone(process: subprocess.Popen[str], warehouse: Path) -> bool:
    """The JVM was killed while it worked, just now."""
    if spark_works(process, warehouse):
        for pid in virtual_machines(process):
            os.kill(pid, signal.SIGKILL)
        return True
    return False


def virtual_machines(process: subprocess.Popen[str]) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == process.pid and (folder / "comm").read_text() == "java\n":
                found.append(int(folder.name))
        except OSError:  # it has just ended
            continue
    return found


@pytest.mark.parametrize("moment", [importing, spark_starts, spark_works, spark_is_gone])
def test_ctrl_c(tmp_path: Path, moment: Moment) -> None:
    dump, warehouse = tmp_path / "messages.jsonl", tmp_path / "warehouse"
    rows = ({"seq": n + 1, "ts": "2026-03-01T00:00:00Z", "subject": "a.b"} for n in range(100_000))
    dump.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [SCRIPT, "ingest", "--stream", "S", "--jsonl", str(dump)]
    process = subprocess.Popen(
        [*command, "--warehouse", str(warehouse)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    end = time.monotonic() + 200
    while not moment(process, warehouse):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all that was started
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (130, "", "nats-transform: interrupted\n")
