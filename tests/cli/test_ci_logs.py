"""The log of a CI job: nothing that publishers or files say becomes a command for its runner."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.formats import Reported, Review, print_findings
from nats_transform.lint.findings import CODES, Severity
from nats_transform.untrusted import json_text
from tests.support.censuses import census_file
from tests.support.command import nats_transform
from tests.support.files import write_files

# Each is legal as a token of a subject.
EVIL = ("::stop-commands::x", "##[add-mask]east", "##vso[task.complete]x", "##teamcity[buildStop]")
NAMES = [f"{evil}.{n}" for n, evil in enumerate(EVIL)]
COMMAND = re.compile(r"\s*::.+?::|.*##\w*\[.*\]", re.DOTALL)
"""What runners take for a command: GitHub's (actions/runner, ActionCommand.cs) and Azure's."""
OURS = re.compile(r"::(error|warning|notice) [^:]*::")


def commands(printed: str) -> list[str]:
    """The lines of a log that a runner obeys, but for our own annotations."""
    # GitHub looks for the newer form first, and ends there.
    return [line for line in printed.splitlines() if COMMAND.match(line) and not OURS.match(line)]


@pytest.fixture(autouse=True)
def files(folder: Path) -> None:
    mappings = {
        name: [{"subject": f"{name}.{n}", "weight": 10, "cluster": name} for n in range(2)]
        for name in NAMES
    }
    refused = {name: [{"subject": f"x.$7.{name}", "weight": 10}] for name in NAMES}
    conf = "\n".join(f'"{name}": {{ "{name}": 1 }}' for name in NAMES)
    files = {"mapping.json": mappings, "refused.json": refused}
    write_files(folder, files | {"refused.conf": f"mappings {{ {conf} }}"})
    census_file(folder / "census.parquet", {name.encode(): 5 for name in NAMES}, stream=NAMES[0])


DRY_RUN = ("dry-run", "--census", "census.parquet", "--candidate")
RUNS = {
    "check": ("check", "mapping.json", "--cluster", NAMES[1]),
    "check of a refused file": ("check", "refused.json"),
    "check of a refused server.conf": ("check", "refused.conf"),
    "check of a missing file": ("check", f"{EVIL[1]}.conf"),
    "check of an account": ("check", "mapping.json", "--account", EVIL[0]),
    "trace": ("trace", NAMES[0], "--mapping", "mapping.json"),
    "map": ("map", NAMES[0], f"$9.{NAMES[1]}"),
    "dry run": (*DRY_RUN, "mapping.json"),
    "dry run of a refused file": (*DRY_RUN, "refused.json"),
    "dry run of a refused server.conf": (*DRY_RUN, "refused.conf"),
    "a wrong option": ("map", f"--{EVIL[1]}"),
    "a wrong command": (EVIL[0],),
}


@pytest.mark.parametrize("run", RUNS)
def test_no_command_but_our_annotations(run: str) -> None:
    forms = [(), ("--json",)]
    if RUNS[run][0] in ("check", "dry-run"):
        forms = [("--format", name) for name in ("table", "json", "github", "markdown", "sarif")]
    for form in forms:
        code, out, err = nats_transform(*RUNS[run], *form)
        assert code in (0, 1, 2)
        assert commands(out + "\n" + err) == [], form


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("form", ["github", "markdown", "sarif"])
def test_findings_that_begin_with_a_command(
    evil: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Reported(Severity.ERROR, "refused", evil, evil, evil, 1, 1, (evil, f" {evil}"))
    print_findings(form, Review(evil, [evil], [found], CODES))
    assert commands(capsys.readouterr().out) == []


def test_the_json_of_a_command_is_still_the_same() -> None:
    assert json.loads(json_text({"a": [*EVIL, "###["]})) == {"a": [*EVIL, "###["]}
