"""`python -m jobs JOB SETTINGS.json`: settings in, one JSON document or one line out."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jobs.__main__ import JOBS, main
from nats_transform.errors import sentence
from tests.support.saying import says

HERE = Path(__file__).parents[2]


class Ended(NamedTuple):
    """How a run of the command line ended."""

    code: object
    output: str
    errors: str


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in an empty folder, where Spark must not be started."""

    def run(*arguments: str, given: object) -> Ended:
        text = given if isinstance(given, str) else json.dumps(given)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["jobs", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        monkeypatch.setattr("jobs.session.spark_session", lambda where: pytest.fail("it started"))
        with pytest.raises(SystemExit) as end:
            main()
        return Ended(end.value.code, *capsys.readouterr())

    return run


def test_only_the_chosen_job_is_imported() -> None:
    """What one job needs and does not have stops no other job."""
    probe = (
        "import sys, jobs.__main__ as entry\n"
        "works = {'jobs.' + job.work.partition(':')[0] for job in entry.JOBS.values()}\n"
        "print(sorted(works & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=HERE)
    assert done.stdout == "[]\n", done.stderr


def test_the_operations_page_names_every_job() -> None:
    page = " ".join((HERE / "docs/operations.md").read_text().split())
    names = page.partition("The jobs are ")[2].partition(".")[0]
    assert sorted(re.split(", | and ", names)) == sorted(JOBS)


S = {"stream": "S"}
# Arguments, settings, and the beginning of what is said.
WRONG_USE = {
    "no such job": ("sing", {}, "Invalid value for '{ingest|"),
    "no such file": (
        "census none.json",
        {},
        "Invalid value for 'SETTINGS.json': 'none.json': No such file",
    ),
    "not JSON": ("census", "{", "Invalid JSON: EOF"),
    "field missing": ("census", {}, "stream: Field required"),
    "unknown field": ("census", S | {"strem": "T"}, "strem: Extra inputs are not permitted"),
    "no page": ("census --report page.html", S, sentence("job-without-page", job="census")),
    "no folder for the page": (
        "audit --report none/page.html",
        S | {"mapping": "m.conf"},
        sentence("output-unwritable", what="the report", path="none/page.html", why=""),
    ),
    "no such level": (
        "dry-run --fail-on outside",
        S | {"candidate": "m.conf"},
        sentence("job-fail-on", job="dry-run", levels="error, warning, info, never"),
    ),
}


@pytest.mark.parametrize(("line", "given", "said"), WRONG_USE.values(), ids=WRONG_USE)
def test_wrong_use_is_one_line(run: Run, line: str, given: object, said: str) -> None:
    ended = run(*line.split(), given=given)
    assert (ended.code, ended.output) == (2, "")
    assert ended.errors.startswith(f"error: {said}")
    assert ended.errors.count("\n") == 1


# Job, its settings beside `stream` and `warehouse`, and what is said of what they name.
NEEDS_NO_SPARK = [
    ("ingest", {"server": {"servers": "nats://127.0.0.1:1"}}, "server-not-reached"),
    ("ingest", {"backup": "none"}, "not-a-backup"),
    ("census", {}, "no-table"),
    ("transform", {"mapping": "bad.conf"}, ""),
    ("transform", {"mapping": "good.conf"}, "no-table"),
    ("audit", {"mapping": "bad.conf"}, ""),
    ("dry-run", {"candidate": "bad.conf"}, ""),
    ("dry-run", {"candidate": "good.conf"}, "no-table"),
    ("replay", {"to": "T", "server": {"servers": "nats://127.0.0.1:1"}}, "no-table"),
    ("maintain", {}, "no-tables"),
]


@pytest.mark.parametrize(("job", "given", "code"), NEEDS_NO_SPARK)
def test_what_needs_no_spark_fails_before_spark_starts(
    run: Run, job: str, given: dict[str, object], code: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.conf").write_text("mappings { a: }")
    (tmp_path / "good.conf").write_text("mappings { a: b }")
    stream = {} if job == "maintain" else {"stream": "S"}
    ended = run(job, given=stream | {"warehouse": {"dir": "tables"}} | given)
    assert (ended.code, ended.output) == (2, "")
    place = ended.errors.startswith("error: bad.conf:1:")
    assert says(ended.errors, code) if code else place, ended.errors
    assert ended.errors.count("\n") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a full disk to try")
@pytest.mark.parametrize("arguments", [("--help",), ("ingest",)])
def test_a_disk_that_is_full_for_the_output(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = called(tmp_path, *arguments, stdout=full, stderr=subprocess.PIPE)
        said = b"error: the disk that this writes to is full: make room there\n"
        assert (done.stderr, done.returncode) == (said, 2)
        assert called(tmp_path, "no-such-job", stderr=full).returncode == 2


def test_a_reader_that_leaves_early_gets_no_complaint(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = called(tmp_path, "ingest", stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.stderr, done.returncode) == (b"", 141)


def called(folder: Path, *arguments: str, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    """How a process that runs the command line has ended, with settings for an ingest."""
    (folder / "messages.jsonl").write_text('{"subject": "a", "ts": 0}')
    settings = {"stream": "S", "jsonl": "messages.jsonl", "warehouse": {"dir": "tables"}}
    (folder / "settings.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "jobs", *arguments, "settings.json"]
    environment = os.environ | {"PYTHONPATH": str(HERE), "PYTHONUNBUFFERED": ""}
    return subprocess.run(command, cwd=folder, env=environment, check=False, **streams)


@pytest.mark.parametrize("name", JOBS)
def test_every_job_and_its_page_is_where_it_is_said_to_be(name: str) -> None:
    job = JOBS[name]
    assert callable(job.function)
    assert job.model.model_json_schema()["properties"]
    if job.page is not None and job.page.endswith(".html"):
        assert (HERE / "jobs" / "pages" / "templates" / job.page).is_file()
    elif job.page is not None:
        assert callable(import_module(f"jobs.{job.page}").render)
