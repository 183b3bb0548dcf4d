"""`nats-transform init`: what it writes is what check, dry run, CI and Dagster take."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.jetstream.process import NatsServer, nats_server
from tests.conformance.client import Client
from tests.support.command import document, nats_transform, printed, refused
from tests.support.files import save_context
from tests.support.saying import mistakes, says
from tests.support.terminal import on_a_terminal
from tests.test_review import ROOT, run_step, steps

WORKFLOW = Path(".github/workflows/nats-transform.yml")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
MAPPING = 'mappings { "orders.*": "shop.$1" }\n'


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    """With a stream that no longer gets the orders, and one that nobody reads."""
    with nats_server() as found, Client(found.url) as client:
        client.add_stream("ORDERS", "orders.*")
        client.add_stream("BILLS", "bills.*")
        consumer = {"durable_name": "eu", "name": "eu", "filter_subject": "orders.eu"}
        client.api(
            "CONSUMER.CREATE.ORDERS.eu.orders.eu",
            {"stream_name": "ORDERS", "config": consumer | {"ack_policy": "explicit"}},
        )
        for subject in ("orders.eu", "orders.us", "bills.eu"):
            client.request(subject)
        yield found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a mapping file, and a place for contexts."""
    (made := tmp_path / "work").mkdir()
    monkeypatch.chdir(made)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (made / "new.conf").write_text(MAPPING)
    return made


def inputs() -> dict[str, str]:
    """What the workflow gives to the action; the action has these inputs, and their defaults."""
    workflow = yaml.safe_load(WORKFLOW.read_text())
    (job,) = workflow["jobs"].values()
    *_, step = job["steps"]
    assert step["uses"].startswith("OWNER/nats-transform@v")
    given: dict[str, str] = step["with"]
    assert given.keys() <= ACTION["inputs"].keys()
    needed = {name for name, one in ACTION["inputs"].items() if one.get("required")}
    assert needed <= given.keys()
    return {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | given


@pytest.mark.server
@pytest.mark.parametrize("stream", ["", "ORDERS"])
def test_with_a_context_the_next_command_and_the_workflow_find_the_same(
    stream: str, folder: Path, tmp_path: Path, server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_context(tmp_path / "config", "prod", url=server.url)
    more = ("--stream", stream) if stream else ()
    out = printed("init", "--candidate", "new.conf", "--context", "prod", *more)
    written = [line.removeprefix("wrote ") for line in out.splitlines() if line[:6] == "wrote "]
    assert sorted(written) == [
        ".github/workflows/nats-transform.yml",
        "census.parquet",
        "consumers/ORDERS.eu.json",
        "nats-transform.toml",
        "streams/BILLS.json",
        "streams/ORDERS.json",
    ]
    assert all(Path(name).is_file() for name in written)
    assert out.endswith("\nnext: nats-transform dry-run\n")

    live = document("dry-run", code=1)
    assert live["summary"]["messages"] == (2 if stream else 3)
    codes = [finding["code"] for finding in live["findings"]]
    assert codes[0] == "not-captured"
    assert nats_transform("check", "new.conf")[0] == 0

    # In CI there is no context, and the server cannot be reached.
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    _, sarif, check, dry_run = steps()
    assert run_step(sarif, folder, inputs())[0] == 0
    assert run_step(check, folder, inputs())[0] == 0
    code, out = run_step(dry_run, folder, inputs())
    assert code == 1
    titles = [line.partition("title=")[2].partition("::")[0] for line in out.splitlines()]
    assert [title for title in titles if title] == codes + [
        finding["code"] for finding in live["with_room"]
    ]


@pytest.mark.server
def test_with_a_server_the_files_stand_for_it(folder: Path, server: NatsServer) -> None:
    """A project file cannot name a server, so the next command names the files."""
    out = printed("init", "--candidate", "new.conf", "--server", server.url)
    command = out.splitlines()[-1].removeprefix("next: nats-transform ")
    assert "server" not in tomllib.loads(Path("nats-transform.toml").read_text())
    code, out, _ = nats_transform(*command.split())
    assert code == 1
    assert "error not-captured: " in out


@pytest.mark.server
def test_the_archive_names_the_server(folder: Path, server: NatsServer) -> None:
    url = server.url.replace("://", "://u:secret@")
    line = ("init", "--candidate", "new.conf", "--stream", "ORDERS", "--dagster", "--server", url)
    printed(*line)
    archive = yaml.safe_load(Path("defs/orders/defs.yaml").read_text())
    assert archive["attributes"]["sources"] == [{"server": server.url}]


def test_without_a_server_the_workflow_checks_the_file(folder: Path) -> None:
    assert document("init", "--candidate", "new.conf") == {
        "files": ["nats-transform.toml", str(WORKFLOW)],
        "next": "nats-transform check new.conf",
    }
    _, sarif, check, _ = steps()
    assert inputs()["candidate"] == ""
    assert run_step(sarif, folder, inputs())[0] == 0
    assert run_step(check, folder, inputs())[0] == 0
    assert nats_transform("check", "new.conf")[0] == 0
    assert "candidate" in nats_transform("dry-run", "--show-config")[1]


@pytest.mark.parametrize("there", ["nats-transform.toml", str(WORKFLOW), "defs/orders/defs.yaml"])
def test_nothing_is_overwritten(there: str, folder: Path) -> None:
    file = folder / there
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("# mine\n")
    before = sorted(folder.rglob("*"))
    told = refused("init", "--candidate", "new.conf", "--stream", "ORDERS", "--dagster")
    assert says(told, "init-exists")
    assert sorted(folder.rglob("*")) == before
    assert file.read_text() == "# mine\n"


@pytest.mark.server
@pytest.mark.parametrize("there", ["census.parquet", "streams", "consumers"])
def test_what_the_server_shows_overwrites_nothing(
    there: str, folder: Path, server: NatsServer
) -> None:
    (folder / there).mkdir()
    told = refused("init", "--candidate", "new.conf", "--server", server.url)
    assert says(told, "init-exists", file=there)
    assert sorted(path.name for path in folder.iterdir()) == sorted(["new.conf", there])


@pytest.mark.parametrize(("arguments", "told"), mistakes("init"))
def test_what_is_wrong_is_told_in_a_line(arguments: str, told: str, folder: Path) -> None:
    for name in ("../above.conf", "a b.conf", "${{x}}.conf"):
        (folder / name).write_text(MAPPING)
    before = sorted(folder.rglob("*"))
    assert re.search(told, refused("init", *shlex.split(arguments)))
    assert sorted(folder.rglob("*")) == before


def test_on_a_terminal_it_asks(folder: Path) -> None:
    code, shown = on_a_terminal("init", typed=b"new.conf\nORDERS\n", NO_COLOR="1")
    assert code == 0
    assert "File with the mappings [new.conf]: " in shown
    assert "Stream, or nothing for all: " in shown
    project: dict[str, Any] = tomllib.loads(Path("nats-transform.toml").read_text())
    assert project["stream"] == "ORDERS"
    assert project["dry-run"] == {"candidate": "new.conf"}
