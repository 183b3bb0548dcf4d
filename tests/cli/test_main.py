"""What holds for every command: help, one-line errors, exit codes, quiet ends, quick starts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from cli.main import COMMANDS, PANELS
from nats_transform import NatsTransformError
from nats_transform.errors import sentence
from tests.support.command import nats_transform as invoke
from tests.support.command import printed, refused
from tests.support.programs import SCRIPT, ended, in_python, output_of, printed_in_python
from tests.support.saying import mistakes


def test_help_lists_every_command_with_its_use() -> None:
    out = printed("--help")
    panels = out.split(f"\n{next(iter(PANELS))}:\n")[1].splitlines()
    listed = [line.split() for line in panels if line.startswith("  ")]
    assert [words[0] for words in listed] == list(COMMANDS)
    assert all(len(words) > 3 for words in listed)


@pytest.mark.parametrize("name", ["census export" if n == "census" else n for n in COMMANDS])
def test_every_command_explains_itself(name: str) -> None:
    out = printed(*name.split(), "--help")
    assert f"nats-transform {name} " in out.split("Example")[1]
    assert "Exit codes: 0" in out
    assert "--debug" in out
    assert "--json" in out or name == "completion"


@pytest.mark.parametrize("asked", ["--version", "-V"])
def test_version(asked: str) -> None:
    assert invoke(asked)[:2] == (0, "nats-transform 0.2.0\n")


@pytest.mark.parametrize("command", [(), ("check",), ("map",), ("census", "export")])
def test_h_is_help(command: tuple[str, ...]) -> None:
    assert invoke(*command, "-h") == invoke(*command, "--help")


def test_a_subject_may_start_with_h() -> None:
    assert invoke("map", "*", "x.$1", "-h")[:2] == (0, "x.-h\n")


@pytest.mark.parametrize(("line", "told"), mistakes("command"))
def test_a_mistake_is_one_line_and_exit_2(line: str, told: str) -> None:
    assert re.search(told, refused(*line.split()))


def test_a_transform_that_is_none() -> None:
    assert f"{sentence('index-out-of-range')}, token '$2': " in refused("map", "*", "x.$2")
    err = refused("map", "a\n\x1b[31m", "b.*")
    assert sentence("invalid-subject") in err
    assert "\x1b" not in err


@pytest.mark.parametrize(
    "line",
    [
        "dry-run --census none --candidate none --report",
        "audit --stream S --mapping none --report",
        "plan-canary --stream S --mapping none --report",
        "census export --stream S --out",
        "plan --census none --candidate none --without-streams --out",
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(line: str, folder: Path) -> None:
    (folder / "file").touch()
    assert "file/below" in refused(*line.split(), "file/below")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Makes `map` raise."""

    def fail(error: BaseException) -> None:
        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr("cli.map.command", command)

    return fail


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            NatsTransformError("refused", reason="no stream ORDERS"),
            "nats-transform: no stream ORDERS\n",
        ),
        (FileNotFoundError(2, "No such file", "x.conf"), "nats-transform: x.conf: No such file\n"),
        (
            KeyError("a\nb"),
            "nats-transform: unexpected KeyError: 'a\\nb' (--debug shows the stack trace)\n",
        ),
        (
            RuntimeError("\n first\tline\n  b\nc"),
            "nats-transform: unexpected RuntimeError: first line (--debug shows the stack trace)\n",
        ),
        (
            RuntimeError("a\ab"),
            "nats-transform: unexpected RuntimeError: a\\x07b (--debug shows the stack trace)\n",
        ),
    ],
)
def test_an_error_is_one_line_and_exit_2(
    failing: Callable[[BaseException], None], error: Exception, told: str
) -> None:
    failing(error)
    assert invoke("map") == (2, "", told)
    code, _, err = invoke("--debug", "map")
    assert code == 2
    assert err.startswith("Traceback (most recent call last)")
    assert err.endswith(told)
    assert err.replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a full disk to try")
@pytest.mark.parametrize("args", [("--help",), ("check", "-h"), ("map", "a", "b", "a", "--json")])
def test_a_disk_that_is_full_for_the_output(args: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = ended(
            *(SCRIPT, *args),
            stdout=full,
            env={**os.environ, "PYTHONUNBUFFERED": ""},  # so that something is left at the end
        )
    told = "nats-transform: the disk that this writes to is full: make room there\n"
    assert (done.returncode, done.stderr) == (2, told)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a full disk to try")
def test_a_disk_that_is_full_for_the_error() -> None:
    with open("/dev/full", "w") as full:
        assert subprocess.run([SCRIPT, "check", "none.conf"], stderr=full).returncode == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_a_shell(shell: str) -> None:
    out = printed("completion", shell)
    assert f"_NATS_TRANSFORM_COMPLETE={shell}_complete" in out
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    assert f"nats-transform completion {shell}" in page


@pytest.mark.parametrize(
    ("words", "number", "completed"),
    [("nats-transform dry", 1, {"dry-run"}), ("nats-transform replay --dry", 2, {"--dry-run"})],
)
def test_completion_knows_commands_and_options(
    words: str, number: int, completed: set[str]
) -> None:
    asked = {"_NATS_TRANSFORM_COMPLETE": "bash_complete"}
    asked |= {"COMP_WORDS": words, "COMP_CWORD": str(number)}
    told = output_of(SCRIPT, env=os.environ | asked)
    assert {line.split(",")[1] for line in told.splitlines()} == completed


def test_without_arguments_the_help_is_wrapped() -> None:
    code, out, err = invoke()
    assert (code, out) == (2, "")
    assert err == invoke("--help")[1]
    assert max(map(len, err.splitlines())) < 100


def test_debug_after_the_command_does_the_same() -> None:
    before = invoke("--debug", "map", "*", "x.$2")
    after = invoke("map", "*", "x.$2", "--debug")
    assert before[2].startswith("Traceback")
    assert before[2].splitlines()[-1] == after[2].splitlines()[-1]
    assert after[2].startswith("Traceback")


IN_A_TASK = """
import asyncio, os, signal
from jobs.ending import ended_by_signals

async def task():
    os.kill(os.getpid(), signal.SIGTERM)

async def everything():
    started = asyncio.create_task(task())
    await asyncio.sleep(60)

with ended_by_signals("program"):
    asyncio.run(everything())
"""


def test_an_end_within_a_task_of_asyncio_is_quiet() -> None:
    done = in_python(IN_A_TASK)
    assert (done.returncode, done.stderr) == (143, "")


def mapping() -> subprocess.Popen[bytes]:
    """A process that maps what it reads."""
    pipe = subprocess.PIPE
    command = [SCRIPT, "map", "*", "x.$1", "-"]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        pytest.param(signal.SIGINT, 130, b"nats-transform: interrupted\n", id="ctrl-c"),
        pytest.param(signal.SIGTERM, 143, b"", id="terminated"),
    ],
)
def test_an_end_from_outside_is_quiet(sent: signal.Signals, code: int, said: bytes) -> None:
    with mapping() as process:
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"x.a\n"
        process.send_signal(sent)
        assert (process.wait(), process.stderr.read()) == (code, said)


def test_a_reader_that_leaves_early_gets_no_complaint() -> None:
    with mapping() as process:
        process.stdout.close()
        process.stdin.write(b"a\n")
        process.stdin.close()
        assert (process.wait(), process.stderr.read()) == (141, b"")


HEAVY = {
    "asyncio", "dagster", "duckdb", "jinja2", "nats", "numpy", "pandas", "pyarrow", "pyiceberg",
    "pyspark", "rich", "scipy", "sqlite3", "yaml",
}  # fmt: skip


@pytest.mark.parametrize(
    ("args", "never"),
    [
        pytest.param(["--help"], HEAVY | {"lark", "pydantic"}, id="help"),
        pytest.param(["map", "*", "x.$1", "a"], HEAVY | {"lark"}, id="map"),
        pytest.param(["check", "server.conf", "stream.json"], HEAVY, id="check"),
        pytest.param(["trace", "a.b", "--mapping", "server.conf"], HEAVY, id="trace"),
        pytest.param(["explain", "collision"], HEAVY - {"yaml"}, id="explain"),
    ],
)
def test_what_should_be_quick_imports_nothing_heavy(
    args: list[str], never: set[str], tmp_path: Path
) -> None:
    (tmp_path / "server.conf").write_text('mappings { "a.*": "v1.$1" }\n')
    (tmp_path / "stream.json").write_text('{"name": "S", "subjects": ["v1.*"]}\n')
    code = (
        "import atexit, json, sys\n"
        "from cli.main import main\n"
        "atexit.register(lambda: print(json.dumps([name.split('.')[0] for name in sys.modules])))\n"
        f"main({args!r})"
    )
    loaded = set(json.loads(printed_in_python(code, cwd=tmp_path).splitlines()[-1]))
    assert "click" in loaded
    assert not loaded & never


def test_the_collector_is_off_until_a_command_is_imported() -> None:
    code = (
        "import sys, gc, click, cli.map\n"
        "def state(**_): print(gc.isenabled(), gc.get_freeze_count() > 10_000)\n"
        "cli.map.command.callback = lambda *_: state()\n"
        "from nats_transform.__main__ import main\n"
        "sys.argv = ['nats-transform', 'map', '*', 'x.$1', 'a']\n"
        "main()"
    )
    assert printed_in_python(code) == "True True\n"


def test_a_closed_standard_output_is_no_stack_trace() -> None:
    told = ended("sh", "-c", f"'{SCRIPT}' map '*' 'x.$1' a >&-").stderr
    assert "Traceback" not in told
    assert os.linesep not in told.strip()
