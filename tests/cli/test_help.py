"""Every example that a `--help` shows can be typed as it stands."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from cli.command import Command
from tests.support.censuses import census_file
from tests.support.command import commands, nats_transform
from tests.support.files import save_context, write_files
from tests.support.programs import BIN, ended

MAPPINGS = """mappings {
  "orders.*.*": [
    { destination: "shop.v1.$1.$2", weight: 50% }
    { destination: "shop.v2.$1.$2", weight: 50% }
  ]
}
accounts { ORDERS { mappings { "bills.*": "shop.bills.$1" } } }
"""
ON_ITS_OWN = re.compile(
    r"nats-transform (map|check|trace|explain|init -|dry-run --census|completion)"
    r"(?!.*--context)"
)
"""Examples that need neither a server nor an archive; tests/jobs/test_plan.py runs plans."""


def examples() -> list[str]:
    """The lines of all examples, each once."""
    found = {}
    for path in commands():
        shown = nats_transform(*path, "--help")[1].replace("\\\n", "")
        of_one = re.findall(r"^ .*?\b(nats-transform [a-z].*)$", shown, re.MULTILINE)
        lines = [line for line in of_one if "`" not in line]
        assert lines, f"{path} shows no example"
        found |= dict.fromkeys(lines)
    return list(found)


EXAMPLES = examples()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and contexts that examples name."""
    folder = tmp_path_factory.mktemp("place")
    for name in ["server", "new", "old", "before", "hub", "canary-2", "canary-10"]:
        (folder / f"{name}.conf").write_text(MAPPINGS)
    (folder / "subjects.txt").write_text("orders.7\n")
    census_file(folder / "census.parquet", {b"orders.eu.1": 3, b"orders.us.2": 2})
    shown = {"name": "ORDERS", "subjects": ["orders.>", "shop.>"]}
    consumer = {"stream_name": "ORDERS", "name": "all", "config": {}}
    write_files(folder, {"streams/ORDERS.json": {"config": shown}, "consumers/all.json": consumer})
    for name in ("prod", "shop"):
        save_context(folder / ".config", name, url="nats://127.0.0.1:9")
    (folder / ".config" / "fish" / "completions").mkdir(parents=True)
    return folder


def typed(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What comes of a line in a shell."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("NATS", "XDG"))
    }
    environment |= {"HOME": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}"}
    return ended("bash", "-c", line, cwd=folder, env=environment, stdin=subprocess.DEVNULL)


def words_of(example: str, place: Path) -> list[str]:
    """What a shell gives to the command."""
    shown = typed(f"nats-transform() {{ printf '%s\\n' \"$@\" >&2; }}; {example}", place).stderr
    return shown.splitlines()


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_shell_and_the_command_line_take_it(
    example: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to where the work would begin: all words arrive, and all settings are valid."""
    words = words_of(example, place)
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / ".config"))
    invoked = []
    monkeypatch.setattr(Command, "invoke", lambda self, ctx: invoked.append(self))
    code, _, err = nats_transform(*words)
    assert (code, err, len(invoked)) == (0, "", 1)
    assert len(re.findall(r"\$\d", " ".join(words))) == len(re.findall(r"\$\d", example))


@pytest.mark.parametrize("example", list(filter(ON_ITS_OWN.match, EXAMPLES)))
def test_it_works_where_its_files_are(
    example: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nats-transform.toml", ".github/workflows/nats-transform.yml"):
        (place / name).unlink(missing_ok=True)
    if re.search(r"[|<>]", re.sub(r"'[^']*'", "", example)):
        done = typed(example, place)
        code, out, err = done.returncode, done.stdout, done.stderr
    else:  # a cold start would tell no more
        monkeypatch.chdir(place)
        monkeypatch.setenv("HOME", str(place))
        monkeypatch.delenv("XDG_CONFIG_HOME")
        code, out, err = nats_transform(*words_of(example, place))
    assert code in ((0,) if " map " in example else (0, 1)), err
    assert out or ">" in example
    assert "Traceback" not in err
