"""The project file: what it gives, what goes before it, what it may not say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.command import nats_transform as invoke
from tests.support.command import printed, refused
from tests.support.saying import mistakes, says

TRANSFORM = ("transform", "--stream", "S", "--show-config")
TOP = """warehouse = "archive"
mapping = "maps/server.conf"
seed = 7
tolerance = 0.5

[audit]
seed = 8
in-force = ["2026-10-01T12:00Z=a.conf"]
json = true

[transform]
day = 2026-11-01
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a folder inside, which is the current one."""
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path


def shown(*args: str) -> dict[str, tuple[str, str]]:
    """Option -> its value and its source, as --show-config prints them."""
    out = printed(*args)
    rows = (line.split(maxsplit=1) for line in out.splitlines()[1:])
    cells = ((name, rest.rsplit("  ", 1)) for name, rest in rows)
    return {name: (value.strip(), where.strip()) for name, (value, where) in cells}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("nats-transform.toml", TOP, id="own-file"),
        pytest.param(
            "pyproject.toml",
            "[tool.nats-transform]\n" + TOP.replace("\n[", "\n[tool.nats-transform."),
            id="table-of-pyproject",
        ),
    ],
)
def test_says_where_each_value_comes_from(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    (project / name).write_text(text)
    shift = 1 if name == "pyproject.toml" else 0
    file = f"{project / name}"
    found = shown(*TRANSFORM)
    assert found["stream"] == ('"S"', "command line")
    assert found["warehouse"] == (f'"{project / "archive"}"', f"{file}:{1 + shift}")
    assert found["mapping"] == (f'"{project / "maps/server.conf"}"', f"{file}:{2 + shift}")
    assert found["seed"] == ("7", f"{file}:{3 + shift}")
    assert found["day"] == ('"2026-11-01"', f"{file}:{12 + shift}")
    assert found["account"] == ('"$G"', "default")
    audit = shown("audit", "--stream", "S", "--show-config")
    assert audit["seed"] == ("8", f"{file}:{7 + shift}")
    assert audit["tolerance"] == ("0.5", f"{file}:{4 + shift}")
    assert audit["in-force"] == ('["2026-10-01T12:00Z=a.conf"]', f"{file}:{8 + shift}")
    assert audit["json"] == ("true", f"{file}:{9 + shift}")
    monkeypatch.setenv("NATS_TRANSFORM_WAREHOUSE", "/env")
    where = "environment, NATS_TRANSFORM_WAREHOUSE"
    assert shown(*TRANSFORM)["warehouse"] == ('"/env"', where)
    assert shown(*TRANSFORM, "--warehouse", "x")["warehouse"] == ('"x"', "command line")


def test_an_alternative_on_the_command_line_replaces_what_the_file_says(project: Path) -> None:
    (project / "nats-transform.toml").write_text(
        'catalog = "prod"\nmapping = "m"\ncontext = "hub"\n[ingest]\nbackup = "b"\n'
    )
    found = shown(*TRANSFORM, "--warehouse", "x")
    assert found["warehouse"] == ('"x"', "command line")
    assert found["catalog"] == ("-", "default")
    ingest = ("ingest", "--stream", "S", "--show-config")
    assert shown(*ingest)["backup"][0] == f'"{project / "b"}"'
    served = shown(*ingest, "--server", "nats://hub")
    assert (served["context"], served["backup"]) == (("-", "default"), ("-", "default"))


def test_the_server_of_the_environment_gets_no_context_of_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "nats-transform.toml").write_text('context = "hub"\n')
    monkeypatch.setenv("NATS_URL", "nats://elsewhere")
    found = shown("ingest", "--stream", "S", "--show-config")
    assert found["context"] == ("-", "default")
    assert found["server"] == ('"nats://elsewhere"', "environment, NATS_URL")


def test_a_server_on_the_command_line_is_asked_beside_files() -> None:
    """`test_show_config_says_where_the_variable_applies` has the other ways to name one."""
    line = ("dry-run", "--candidate", "x", "--streams", "s", "--server", "nats://hub")
    assert shown(*line, "--show-config")["server"] == ('"nats://hub"', "command line")


def test_secrets_are_not_shown() -> None:
    found = shown("ingest", "--stream", "S", "--password", "secret", "--show-config")
    assert found["password"] == ("(hidden)", "command line")


@pytest.mark.parametrize(
    ("option", "given", "expected"),
    [
        ("server", "nats://u:p@h1:4222,tls://tok/en@h2,h3", "(hidden)@h1:4222,(hidden)@h2,h3"),
        ("server", "u:p@h1", "(hidden)@h1"),
        ("remote", "sc://h:15002/;use_ssl=true;token=t", "sc://h:15002/;(hidden)"),
        ("remote", "sc://h:15002", "sc://h:15002"),
    ],
)
def test_secrets_in_an_address_are_not_shown(option: str, given: str, expected: str) -> None:
    found = shown("ingest", "--stream", "S", f"--{option}", given, "--show-config")
    assert found[option] == (f'"{expected}"', "command line")


@pytest.mark.parametrize(("text", "told"), mistakes("project"))
def test_a_mistake_is_one_line_with_its_place(project: Path, text: str, told: str) -> None:
    (project / "link").symlink_to(project.parent)
    # As a context it would name a server, and a secret of the environment to send there.
    evil = '{"url": "nats://127.0.0.1:1", "token": "env://HOME"}'
    (project / "below" / "evil.json").write_text(evil)
    (project / "nats-transform.toml").write_text(f"{text}\n")
    command = ("ingest",) if text.startswith("context") else ("transform", "--mapping", "m")
    err = refused(*command, "--stream", "S")
    assert re.search(told, err)
    assert "nats-transform.toml" in err


@pytest.mark.parametrize("name", ["nats-transform.toml", "pyproject.toml"])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_file_of_another_user_is_refused(project: Path, name: str) -> None:
    """As in /tmp, where everybody may put one above your folder."""
    table = "[tool.nats-transform]\n" if name == "pyproject.toml" else ""
    (project / name).write_text(f"{table}seed = 3\n")
    os.chown(project / name, 12345, 12345)
    assert says(refused(*TRANSFORM), "project-of-another-user", path=project / name)
    # In a container, a whole checkout belongs to the user outside: who works there trusts it.
    os.chown(project / "below", 12345, 12345)
    assert shown(*TRANSFORM, "--mapping", "m")["seed"][0] == "3"


@pytest.mark.parametrize("text", ["[tool]\nnats-transform = true\n", "[[tool.nats-transform]]\n"])
def test_what_is_no_table_of_a_pyproject_is_refused(project: Path, text: str) -> None:
    (project / "pyproject.toml").write_text(text)
    assert says(refused(*TRANSFORM), "project-not-a-table", table="tool.nats-transform")
    (project / "pyproject.toml").write_text('tool = "nats-transform"\n')
    assert invoke(*TRANSFORM)[0] == 0


def test_a_home_that_nobody_has_is_a_folder(project: Path) -> None:
    (project / "nats-transform.toml").write_text('mapping = "~nobody-at-all/x"\n')
    assert shown(*TRANSFORM)["mapping"][0] == f'"{project / "~nobody-at-all/x"}"'


def test_other_pyprojects_are_left_alone(project: Path) -> None:
    (project / "nats-transform.toml").write_text("seed = 3\n")
    (project / "below" / "pyproject.toml").write_text("nats-transform is = broken\n")
    assert shown(*TRANSFORM, "--mapping", "m")["seed"][0] == "3"


def test_the_example_of_the_documentation_holds(project: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    (project / "nats-transform.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    found = shown("audit", "--stream", "S", "--show-config")
    assert found["by"][0] == '"hour"'
    assert found["captured"][0] == '["orders.>", "payments.>"]'
    assert shown(*TRANSFORM)["seed"][0] == "7"


@pytest.mark.parametrize("name", ["mapping", "config"])  # and what it was called before
def test_the_option_of_a_file_does_what_the_command_line_does(project: Path, name: str) -> None:
    (project / "server.conf").write_text('mappings = { "a.*": "b.$1" }\n')
    (project / "nats-transform.toml").write_text(f'[trace]\n{name} = "server.conf"\njson = true\n')
    by_file = invoke("trace", "a.1")
    (project / "nats-transform.toml").unlink()
    assert by_file == invoke("trace", "a.1", f"--{name}", str(project / "server.conf"), "--json")
    assert '"b.1"' in by_file[1]


def test_shows_what_is_missing_too(project: Path) -> None:
    (project / "nats-transform.toml").write_text("seed = 7\n")
    values = shown("audit", "--show-config")
    assert values["seed"][0] == "7"
    assert values["stream"] == ("-", "default")
    assert "--stream" in invoke("audit")[2]
