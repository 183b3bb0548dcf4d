"""Every command that can talk to a server finds it in each way that docs/configuration.md names."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from tests.conformance.client import Client
from tests.support.command import commands, nats_transform, printed, refused
from tests.support.files import save_context, write_files
from tests.support.network import silent_after
from tests.support.saying import says

CENSUS = ("--census", "census.parquet", "--candidate", "new.conf")
COMMANDS = {
    "ingest": ("--stream", "ORDERS"),
    "replay": ("--stream", "ORDERS", "--to", "SHOP", "--dry-run"),
    "dry-run": CENSUS,
    "plan": (*CENSUS, "--out", "other"),
    "verify": ("--plan", "plan", "--step", "0"),
    "trace": ("orders.eu", "--mapping", "new.conf"),
    "init": ("--candidate", "new.conf"),
    "check": ("new.conf",),
}
"""A command line of each, without a server."""
FILES = {
    "ingest": ("--jsonl", "orders.jsonl"),
    "dry-run": ("--streams", "streams"),
    "plan": ("--streams", "streams", "--without-streams"),
    "verify": ("--config", "server.conf"),
    "trace": ("--streams", "streams"),
    "check": (),
}
"""What a command takes in the place of a server."""


ON_THE_LINE = ("--server", "--context")
IMPLIED = ("NATS_URL", "NATS_CONTEXT", "the selected context")
"""Ways to name the server."""


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server("debug: true") as found:
        with Client(found.url) as client:
            client.add_stream("ORDERS", "orders.*")
            client.add_stream("SHOP", "bills.*")
            client.request("orders.eu", "x")
        yield found


@pytest.fixture(scope="module")
def made(server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive, a census, a plan and the files that stand for a server."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        message = {"stream": "X", "seq": 1, "subject": "x", "time": "2026-11-01T00:00:00Z"}
        orders = {"name": "ORDERS", "subjects": ["orders.*"]}
        shop = {"name": "SHOP", "subjects": ["shop.bills.>"]}
        files = {
            "new.conf": 'mappings { "orders.*": "shop.orders.$1" }',
            "server.conf": "mappings {}",
            "orders.jsonl": message,
            "streams/ORDERS.json": {"config": orders},
            "streams/SHOP.json": {"config": shop},
        }
        write_files(folder, files)
        for line in (
            ("ingest", "--stream", "ORDERS", "--server", server.url),
            ("census", "export", "--stream", "ORDERS", "--out", "census.parquet"),
            ("transform", "--stream", "ORDERS", "--mapping", "new.conf"),
            ("plan", *CENSUS, *FILES["plan"], "--out", "plan"),
        ):
            printed(*line)
    return folder


@pytest.fixture
def place(made: Path, server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder, and an environment that names no server."""
    folder = tmp_path / "work"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    save_context(tmp_path, "here", url=server.url)
    return folder


def connections(server: NatsServer) -> int:
    return server.log.read_text().count("Client connection created")


def use(way: str, server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Names the server in a way; what is to be put on the command line."""
    value = "here" if "context" in way.lower() else server.url
    if way in ON_THE_LINE:
        return way, value
    if way.startswith("NATS_"):
        monkeypatch.setenv(way, value)
    else:
        (Path.cwd().parent / "nats" / "context.txt").write_text(f"{value}\n")
    return ()


def make_room_for(command: str, place: Path) -> None:
    """Removes what `init` would write, which overwrites nothing."""
    if command == "init":
        (place / "census.parquet").unlink()
        shutil.rmtree(place / "streams")


def test_every_command_that_takes_a_server_is_here() -> None:
    assert COMMANDS.keys() == {
        " ".join(path)
        for path, command in commands().items()
        if any(parameter.name == "creds" for parameter in command.params)
    }


@pytest.mark.server
@pytest.mark.parametrize("way", [*ON_THE_LINE, *IMPLIED])
@pytest.mark.parametrize("command", COMMANDS)
def test_it_connects(
    command: str, way: str, place: Path, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = use(way, server, monkeypatch)
    before = connections(server)
    make_room_for(command, place)
    code, out, err = nats_transform(command, *COMMANDS[command], *more)
    assert code in (0, 1), out + err
    # A check in a pull request asks nobody: only the command line can want it to.
    is_asked = command != "check" or bool(more)
    assert (connections(server) > before) == is_asked, out + err


@pytest.mark.server
@pytest.mark.parametrize("way", IMPLIED)
@pytest.mark.parametrize("command", FILES)
def test_files_are_enough_whatever_is_only_implied(
    command: str, way: str, place: Path, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(way, server, monkeypatch)
    before = connections(server)
    arguments = [one.replace("ORDERS", "X") for one in COMMANDS[command]]
    code, out, err = nats_transform(command, *arguments, *FILES[command])
    # No file shows what this plan changes.
    assert code == 2 if command == "verify" else code in (0, 1), out + err
    assert connections(server) == before


def where_the_server_is_from(*line: str) -> str:
    """What --show-config says of where the value of --server comes from."""
    rows = printed(*line, "--show-config").splitlines()
    (row,) = (row for row in rows if row.split()[0] == "server")
    return row.partition('"nats://elsewhere"')[2].strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_show_config_says_where_the_variable_applies(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `test_it_connects` finds that it does."""
    monkeypatch.setenv("NATS_URL", "nats://elsewhere")
    from_variable = "environment, NATS_URL"
    shown = where_the_server_is_from(command, *COMMANDS[command])
    assert shown == ("" if command == "check" else from_variable)
    if files := FILES.get(command):
        shown = where_the_server_is_from(command, *COMMANDS[command], *files)
        assert shown == f"{from_variable}; not used, because of {files[0]}"


def test_help_names_the_variable_where_it_applies() -> None:
    named = {
        " ".join(path)
        for path in commands()
        if "[env var: NATS_URL]" in " ".join(nats_transform(*path, "--help")[1].split())
    }
    assert named == COMMANDS.keys() - {"check"}  # of which only an option connects


LIVE = {name: (name, *line) for name, line in COMMANDS.items()}
LIVE["trace --live"] = (*LIVE["trace"], "--live")
WORDS = {"trace --live": b"Nats-Trace-Dest"}
"""What a command has sent when its server falls silent, if not a request to JetStream."""


@pytest.mark.server
@pytest.mark.parametrize("name", LIVE)
def test_a_signal_ends_it_though_its_server_is_silent(
    name: str, place: Path, server: NatsServer
) -> None:
    """Kubernetes kills after 30 seconds."""
    make_room_for(name, place)
    with silent_after(server.url, WORDS.get(name, b"$JS.API.")) as (url, silent):
        command = [sys.executable, "-m", "nats_transform", *LIVE[name], "--server", url]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert silent.wait(60)
        process.terminate()
        began = time.monotonic()
        told = process.communicate(timeout=60)
    assert (process.returncode, told) == (143, (b"", b""))
    assert time.monotonic() - began < 30


@pytest.mark.server
@pytest.mark.parametrize("command", ["dry-run", "plan"])
def test_the_room_of_the_server_is_seen(
    command: str, place: Path, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the streams a dry run finds nothing, and a plan would lose every message."""
    line = (command, *COMMANDS[command][:4])
    if command == "plan":
        assert says(refused(*line, "--out", "a"), "plan-without-streams")
    else:
        alone = nats_transform(*line)[1]
        assert "\nnot looked at: streams (--streams DIR, --server URL or" in alone
        assert "nothing found" not in alone
    monkeypatch.setenv("NATS_URL", server.url)
    by_variable, by_option = (
        nats_transform(*line, *more, *(("--out", str(n)) * (command == "plan")))
        for n, more in enumerate([(), ("--server", server.url)])
    )
    assert by_variable[0] == by_option[0]
    text = by_variable[1].replace("is in 0", "is in 1").replace("open 0/", "open 1/")
    assert text == by_option[1]
    assert "2 streams" in by_variable[1]
    assert server.url.removeprefix("nats://") in by_variable[1]
