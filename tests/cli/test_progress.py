"""How far a long command is: drawn on a terminal, and nowhere else."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cli.progress import lines_of
from jobs.jetstream.process import NatsServer
from jobs.progress import Step
from tests.conformance.client import Client
from tests.support.command import printed
from tests.support.configs import CANARY
from tests.support.jobs import dumped
from tests.support.terminal import drawn_by, on_a_terminal

pytestmark = pytest.mark.server

STREAM = "OR[red]DERS\x1b[35m"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump, a mapping, and what a stream was."""
    folder = tmp_path_factory.mktemp("progress")
    rows = (
        {"seq": n, "ts": f"2026-10-0{1 + n // 2000}T00:00:00Z", "subject": f"orders.{n % 50}"}
        for n in range(1, 5001)
    )
    dumped(folder / "dump.jsonl", rows)
    (folder / "mapping.conf").write_text(CANARY)
    (folder / "stream.json").write_text('{"name": "NEW", "subjects": ["orders.*"]}')
    return folder


OF = ("--stream", STREAM, "--warehouse", "warehouse")
MAPPED = (*OF, "--mapping", "mapping.conf")
NAME = r"OR[red]DERS\x1b[35m"
# Each after those before it -> the steps that must be seen.
COMMANDS = {
    "ingest": (
        ["ingest", *OF, "--jsonl", "dump.jsonl"],
        ["looking through dump.jsonl", f"archiving {NAME}, sequences 1 to 5,000"],
    ),
    "transform": (["transform", *MAPPED], [f"mapping {NAME}"]),
    "census": (["census", "export", *OF, "--out", "census"], [f"counting {NAME}"]),
    "audit": (["audit", *MAPPED], [f"counting {NAME}"]),
    "plan-canary": (["plan-canary", *MAPPED], [f"counting {NAME}"]),
    "dry-run": (
        ["dry-run", *OF, "--candidate", "mapping.conf", "--exact", "--fail-on", "never"],
        ["reading the subjects", "comparing what the mappings make of the subjects"],
    ),
    "export": (
        ["export", *OF, "--untransformed", "--config", "stream.json", "--to-backup", "backup"],
        [f"looking at {NAME}", f"writing {NAME}", "reading the backup back"],
    ),
    "replay": (
        ["replay", *OF, "--to", "TARGET", "--server", "SERVER"],
        [f"checking {NAME}", f"sending {NAME}"],
    ),
    "maintain": (
        ["maintain", "--warehouse", "warehouse"],
        ["removing old snapshots of messages", "looking at the files of messages"],
    ),
    "remove": (
        ["maintain", "--warehouse", "warehouse", "--remove-stream", STREAM],
        [f"removing {NAME} from messages"],
    ),
}


def seen(shown: str) -> str:
    """What a terminal shows one after the other, without what moves its cursor or colors it."""
    return _CONTROL.sub("", shown).replace("\r", "\n")


@pytest.fixture(scope="module")
def shown(folder: Path, nats_server: NatsServer) -> dict[str, str]:
    """What each command draws on a terminal that is its stderr, one command after the other."""
    with Client(nats_server.url) as client:
        client.add_stream("TARGET", "v1.*", "v2.*")
    drawn = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, (args, _) in COMMANDS.items():
            given = [nats_server.url if arg == "SERVER" else arg for arg in args]
            code, drawn[name] = drawn_by(*given)
            assert code == 0, drawn[name]
    return drawn


@pytest.mark.parametrize("name", COMMANDS)
def test_a_long_command_says_what_it_does(shown: dict[str, str], name: str) -> None:
    for what in COMMANDS[name][1]:
        assert re.search(rf"^{re.escape(what)} .*\d:\d\d (so far|left)", seen(shown[name]), re.M)
    # At the end nothing of it is left: each line was cleared, and the cursor is back.
    assert shown[name].endswith("\x1b[2K\x1b[?25h\r")
    assert "\x1b[35m" not in shown[name]


def test_share_rate_and_time_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    steps = [Step("mapping [b]S", 1_000, "messages"), Step("thinking", None, "messages")]
    steps[0].done, steps[0].started, steps[1].started = 250, 100.0, 70.0
    drawn = {}
    for columns in (40, 80):
        console = Console(width=columns, markup=False, file=StringIO())
        with console.capture() as captured:
            console.print(lines_of(steps, 110.0, is_wide=columns == 80))
        drawn[columns] = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert drawn[40] == ["mapping [b]S 25% 0:30 left", "thinking 0:40 so far"]
    assert re.sub("[━╸╺]+", "=", drawn[80][0]) == "mapping [b]S = 25% 25 messages/s 0:30 left"
    assert drawn[80][1] == "thinking 0:40 so far"


def test_a_narrow_terminal_and_none(folder: Path, tmp_path: Path) -> None:
    dump = str(folder / "dump.jsonl")
    args = ["ingest", "--stream", "S", "--jsonl", dump, "--warehouse", str(tmp_path / "one")]
    code, shown = on_a_terminal(*args, columns=40)
    assert code == 0
    drawn, result = seen(shown).split("S: 5,000 messages added\n")
    assert "archiving S, sequences" in drawn
    assert max(map(len, drawn.splitlines())) <= 40
    assert "archiving" not in result
    args[-1] = str(tmp_path / "two")
    assert printed(*args).startswith("S: 5,000 messages added\n")
