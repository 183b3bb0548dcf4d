"""Every command that README.md and the pages in docs/ show works and prints what they say.

`scripts/sessions.py` says how a page shows commands and files. What a page tells its reader to do,
from its top, is done in one fresh folder; README.md is no story, so each of its sessions has a
folder of its own. A page that begins with `make demo` is a slow test.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from jobs.jetstream.process import nats_server
from scripts.picture import PICTURE, picture
from scripts.sessions import Command, File, blocks, run_here, sessions, steps
from tests.support import nats_command
from tests.support.files import write_files
from tests.support.programs import output_of
from tests.support.spark_cluster import free_port
from tests.test_repository import tracked_files

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/*.md"))}

# Commands that are not run here -> what runs them.
RUN_ELSEWHERE = {
    "python3 -m venv venv": "tests/test_wheel.py makes an environment",
    ". venv/bin/activate": "tests/test_wheel.py uses it",
    "pip install nats-transform": "tests/test_wheel.py installs the wheel",
    "pip install 'nats-transform[archive]'": "the environment of the tests has it",
    "make demo": "tests/cli/test_demo.py runs the command behind it",
    "make test": "this is it",
    "make test-slow": "runs the tests marked slow",
    "make ui": "tests/orchestration drives the same webserver",
    "make bench": "runs for minutes and measures a quiet machine",
}

# What a session runs instead, if it goes on with what the command made.
SMALLER = {"make demo": "nats-transform demo --messages 2000"}

STARTS_SPARK = ("spark.md",)

# Pages with a test module of their own, because servers must have something first.
OWN_TEST = {"move-a-stream.md": "tests/test_move_a_stream.py"}

# Commands in blocks of the language `sh`, which a page cannot run -> what runs them.
BY_HAND = "by hand, as the last section of docs/operations.md says"
ELSEWHERE = {
    r"nats-transform ingest --context prod --stream '": "tests/jobs/test_ingest_account.py",
    r"nats-transform erase --stream ORDERS --subject": "tests/jobs/test_erase.py",
    r"nats-server --jetstream": "tests/test_docs.py",
    r"nats-transform dry-run --context prod": "tests/jobs/dry_run/test_live.py",
    r"nats-transform replay --stream KV_FROM": "tests/jobs/test_replay.py",
    r"dg (scaffold|check|dev)": "tests/orchestration/test_definitions.py",
    r"dg utils": "tests/orchestration/test_account.py",
    r"dg launch": "tests/orchestration/test_other_project.py",
    r"pip install 'nats-transform\[dagster\]'": "tests/orchestration/test_other_project.py",
    r"python -m orchestration.reports": "tests/orchestration/test_reports.py",
    r"(deploy/with_secrets.sh )?dagster": "tests/deploy/test_production.py",
    r"(deploy/with_secrets.sh )?python -m orchestration.metrics": "tests/deploy/test_production.py",
    r"(createdb|pg_dump|pg_restore|export [DNPA]|curl) ?": "tests/deploy/test_production.py",
    r"(mkdir -p|cp) .*(HOME|deploy/production|warehouse)": "tests/deploy/test_production.py",
    r"docker|(mkdir|openssl|chown|chmod) .*deploy/secrets": "tests/deploy/test_containers.py",
    r"kubectl": BY_HAND,
    r"python -m pip wheel|mv build/": "tests/jobs/test_cluster.py",
    r"spark-submit --master spark:": "tests/jobs/test_cluster.py",
    r"spark-submit --master k8s:": "tests/platform/test_kubernetes.py",
    r"spark-submit --master yarn": "tests/platform/test_yarn.py",
    r"(python3 -m venv|tar|environment/bin/python) ": "tests/platform/test_yarn.py",
}
PORTS = ("4222", "8222")
EXAMPLE = """Text with `code`.
```console
$ one 'a' \\
    b
first
$ two
$ three
...
```
```sh
$ ignored
```
```yaml title="new.yaml"
a: 1
```
```console
$ four
```
"""


def test_finds_sessions() -> None:
    first = [Command("one 'a'     b", "first\n"), Command("two", None), Command("three", "...\n")]
    assert sessions(EXAMPLE) == [first, [Command("four", None)]]
    assert list(steps(EXAMPLE)) == [*first, File("new.yaml", "a: 1\n"), Command("four", None)]


Steps = list[Command | File]


def stories() -> Iterator[tuple[str, Steps]]:
    """What a reader does in one folder, by a name for it."""
    for session in sessions(README):
        yield f"README.md: {session[0].text}", list(session)
    for name, page in PAGES.items():
        if name not in OWN_TEST and sessions(page):
            yield name, list(steps(page))


def is_run_elsewhere(step: Command | File) -> bool:
    return isinstance(step, Command) and step.text in RUN_ELSEWHERE


STORIES = [
    pytest.param(
        story,
        id=name,
        marks=[pytest.mark.slow] if story[0].text in SMALLER or name in STARTS_SPARK else [],  # type: ignore[union-attr]
    )
    for name, story in stories()
    if not all(map(is_run_elsewhere, story))
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with links to what the checkout holds: commands find it and write beside it."""
    for name in {file.relative_to(ROOT).parts[0] for file in tracked_files("*")}:
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.mark.server
@pytest.mark.parametrize("story", STORIES)
def test_page(story: Steps, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    environment = nats_command.environment(folder / "bin")
    with ExitStack() as stack:
        ports = {port: str(free_port()) for port in PORTS}
        commands = [step.text for step in story if isinstance(step, Command)]
        if any("4222" in text for text in commands) and not any(map(is_server, commands)):
            ports["4222"] = stack.enter_context(nats_server()).url.rpartition(":")[2]
        for step in story:
            text = re.sub(r"\b[48]222\b", lambda found: ports[found[0]], step.text)
            if isinstance(step, File):
                write_files(folder, {step.name: text})
            elif exported := re.fullmatch(r"export (\w+)=(\S+)", text):
                environment[exported[1]] = exported[2]
            elif is_server(text):
                stack.enter_context(started(text, environment, int(ports["4222"])))
            elif text in SMALLER and step is not story[-1]:
                run_here(Command(SMALLER[text], None), folder, environment)
            elif text not in RUN_ELSEWHERE:
                run_here(Command(text, step.output), folder, environment)


def is_server(text: str) -> bool:
    return text.startswith("nats-server ") and text.endswith(" &")


@contextmanager
def started(text: str, environment: dict[str, str], port: int) -> Iterator[None]:
    """A server that a page starts in the background, from when it accepts clients."""
    program = subprocess.Popen(shlex.split(text.removesuffix("&")), env=environment)
    try:
        for _ in range(300):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
                break
            assert program.poll() is None, f"{text} does not start"
            time.sleep(0.1)
        yield
    finally:
        program.terminate()
        program.wait()


def test_the_picture_is_what_the_first_commands_show() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), "run python scripts/picture.py"
    assert f"](docs/{PICTURE.name})" in README


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = README + "".join(PAGES.values())
    assert set(re.findall(r"(?:`|^\$ )make ([a-z-]+)", pages, re.MULTILINE)) <= targets


def test_what_the_readme_says_of_java(tmp_path: Path) -> None:
    """Only Spark needs it: archives are made and mapped without."""
    assert "`make setup`" in README
    rows = [line for line in README.splitlines() if line.startswith("| `nats-transform[")]
    archive, spark, dagster = ("Java" in row for row in rows)
    assert (archive, spark, dagster) == (False, True, True)
    (tmp_path / "dump.jsonl").write_text('{"subject": "orders.eu", "ts": 0}\n')
    (tmp_path / "new.conf").write_text('mappings { "orders.*": "shop.orders.$1" }')
    nowhere = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere", "HOME": str(tmp_path)}
    for command in (
        ("ingest", "--stream", "S", "--jsonl", "dump.jsonl"),
        ("transform", "--stream", "S", "--mapping", "new.conf"),
    ):
        given = (*command, "--warehouse", "w")
        output_of(sys.executable, "-m", "nats_transform", *given, cwd=tmp_path, env=nowhere)


NO_JAVA = re.compile(r"\b(?:no|nor|without)\b[^.:;]*\bJava\b")


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_says_of_java(name: str) -> None:
    """It agrees with the table of README.md, about all that the page installs."""
    page = " ".join(PAGES[name].split())
    rows = re.findall(r"^\| `(nats-transform\S*)` \|.*\| (.*?) ?\|$", README, re.MULTILINE)
    needs = {what: also for what, also in rows if also.startswith("Java")}
    installed = set(re.findall(r"pip install '?(nats-transform(?:\[\w+\])?)", page))
    if installed & needs.keys():
        assert all(f"need {needs[what]}" in page for what in installed & needs.keys())
    elif installed & dict(rows).keys():
        assert not re.search(r"\bneeds? (?:also )?Java", page)
    assert bool(NO_JAVA.search(page)) or name not in ("audit.md", "reprocess.md")


def test_first_steps_are_shown() -> None:
    shown = {command.text for session in sessions(README) for command in session}
    assert {"make demo", "make test"} <= shown


PROGRAMS = re.compile(
    r"(make|git|cd|nats|nats-transform|nats-server|dg|dagster|dagster-webserver|dagster-daemon|pip|"
    r"python3?|docker|kubectl|spark-submit|createdb|pg_dump|pg_restore|cp|mv|mkdir|tar|curl|openssl|"
    r"chown|chmod|export|deploy/with_secrets.sh|environment/bin/python|\$|\.venv/\S+) "
)


def is_command(line: str) -> bool:
    return PROGRAMS.match(line) is not None


@pytest.mark.parametrize("name", ["README.md", *PAGES])
def test_every_command_is_run(name: str) -> None:
    """A command stands in a session, or its block is `sh` and the table says what runs it."""
    page = README if name == "README.md" else PAGES[name]
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    indented = re.findall(r"^    (\S.*)$", prose, re.M)
    assert list(filter(is_command, indented)) == []
    for block in blocks(page):
        if block.language == "console" or block.title is not None:
            continue
        lines = block.text.replace("\\\n", "").splitlines()
        commands = [line for line in lines if is_command(line)]
        if block.language == "sh":
            is_known = re.compile("|".join(f"(?:{known})" for known in ELSEWHERE)).match
            assert [line for line in commands if not is_known(line)] == []
        else:
            assert commands == []


def test_what_runs_the_other_commands_exists() -> None:
    named = {*OWN_TEST.values(), *ELSEWHERE.values()} - {BY_HAND}
    assert [name for name in named if not (ROOT / name).exists()] == []
    shown = "\n".join([README, *PAGES.values()])
    assert [known for known in ELSEWHERE if not re.search(f"^{known}", shown, re.M)] == []
