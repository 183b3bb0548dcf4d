"""Ctrl-C ends a command with exit code 130 and one line, whatever it does at that moment."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.jobs import dumped
from tests.support.programs import SCRIPT, ended, in_python
from tests.support.spark_cluster import children, family

Moment = Callable[[subprocess.Popen[str], Path], bool]


def importing(process: subprocess.Popen[str], warehouse: Path) -> bool:
    """Python has opened a library that takes long to import."""
    return "/libarrow" in Path(f"/proc/{process.pid}/maps").read_text()


def spark_starts(process: subprocess.Popen[str], warehouse: Path) -> bool:
    """There is a JVM; it takes seconds until it answers."""
    return bool(virtual_machines(process))


def works(process: subprocess.Popen[str], warehouse: Path) -> bool:
    """The table is there: from now on messages are read and written."""
    return (warehouse / "catalog.db").exists()


def spark_is_gone(process: subprocess.Popen[str], warehouse: Path) -> bool:
    """The JVM was killed while it worked, just now."""
    if works(process, warehouse):
        for pid in virtual_machines(process):
            os.kill(pid, signal.SIGKILL)
        return True
    return False


def virtual_machines(process: subprocess.Popen[str]) -> list[int]:
    return children(family(process.pid), b"/bin/java")


# Python imports it before it runs a program: it sends Ctrl-C before the nth import of the command.
AT_IMPORT = """
import os, signal, sys

class Interrupt:
    left = None

    def find_spec(self, name, path=None, target=None):
        if name == "cli.main":
            self.left = int(os.environ["INTERRUPT_AT"])
        if self.left is not None:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)
            self.left -= 1

sys.meta_path.insert(0, Interrupt())
"""


def test_ctrl_c_while_the_command_is_imported(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(AT_IMPORT)
    (tmp_path / "server.conf").write_text('mappings { "a": "b" }')
    for count in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233):
        done = ended(
            *(SCRIPT, "check", tmp_path / "server.conf"),
            env=os.environ | {"PYTHONPATH": str(tmp_path), "INTERRUPT_AT": str(count)},
            # A shell lets what it starts in the background ignore Ctrl-C, these tests too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        told = (done.returncode, done.stdout, done.stderr)
        assert told == (130, "", "nats-transform: interrupted\n"), count


IN_A_FINALIZER = """
import os, signal, sys, time
from jobs.ending import ended_by_signals

def fails(number, frame):
    raise RuntimeError("as PySpark's does when the JVM is gone")

class Ends:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(0)

with ended_by_signals("ours"):
    if sys.argv[2:]:
        signal.signal(int(sys.argv[1]), fails)
    Ends()
    time.sleep(0 if sys.argv[2:] else 100)
"""


@pytest.mark.parametrize("handler", [(), ("fails",)], ids=["ours", "fails"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_finalizer_swallows_no_signal(number: int, handler: tuple[str, ...]) -> None:
    """Python prints what is raised in one, and goes on."""
    done = in_python(IN_A_FINALIZER, int(number), *handler, timeout=60)
    told = "ours: interrupted\n" if number == signal.SIGINT else ""
    assert (done.returncode, done.stderr) == (128 + number, told)


IN_SPARK = ("--master", "local[1]")


@pytest.mark.parametrize(
    ("moment", "where"),
    [
        pytest.param(importing, (), id="importing"),
        pytest.param(works, (), id="works"),
        pytest.param(spark_starts, IN_SPARK, id="spark starts"),
        pytest.param(works, IN_SPARK, id="spark works", marks=pytest.mark.slow),
        pytest.param(spark_is_gone, IN_SPARK, id="spark is gone", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c(tmp_path: Path, moment: Moment, where: tuple[str, ...]) -> None:
    warehouse = tmp_path / "warehouse"
    rows = ({"seq": n + 1, "ts": "2026-03-01T00:00:00Z", "subject": "a.b"} for n in range(100_000))
    dump = dumped(tmp_path / "messages.jsonl", rows)
    command = [SCRIPT, "ingest", "--stream", "S", "--jsonl", str(dump), *where]
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
