"""The history of a mapping file is read from the user's repositories only."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.audit.in_force import periods_of
from jobs.audit.result import AuditError
from jobs.settings.audit import AuditSettings
from nats_transform.audit import Period
from tests.support.refused import refused


def periods(file: Path) -> list[Period]:
    """The versions of a mapping file that git says were in force."""
    return periods_of(AuditSettings(stream="S", mapping=file, in_force="git"))


def git(folder: Path, *arguments: str | Path, at: str = "") -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@x"]
    environment = os.environ | {"GIT_COMMITTER_DATE": at}
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, env=environment)


def commit(folder: Path, moment: str = "2026-11-01T00:00:00Z") -> None:
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        git(folder, *arguments, at=moment)


def test_a_repository_among_the_files_of_another_one(tmp_path: Path) -> None:
    """A clone brings it as plain files, and its settings name a program that git would start."""
    folder, trace = tmp_path / "config", tmp_path / "trace"
    evil = folder / "evil"
    subprocess.run(["git", "init", "--quiet", "--bare", folder], check=True)
    evil.write_text(f"#!/bin/sh\necho run > '{trace}'\n")
    evil.chmod(0o755)
    for name, value in (("bare", "false"), ("worktree", folder), ("fsmonitor", evil)):
        git(folder, "config", f"core.{name}", value)
    (folder / "server.conf").write_text('mappings { "a": "b" }')
    with refused(AuditError, "git-unreadable", reason=re.compile("bare")):
        periods(folder / "server.conf")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("link", "target", "is_followed"),
    [
        pytest.param("here.conf", "parts/one.conf", True, id="in the repository"),
        pytest.param("up.conf", "../secret", False, id="above it"),
        pytest.param("out.conf", "{0}/secret", False, id="absolute"),
        pytest.param("loop.conf", "loop.conf", False, id="to itself"),
    ],
)
def test_links_of_a_repository(link: str, target: str, is_followed: bool, tmp_path: Path) -> None:
    """Those that lead out of the repository may lead to anything of the user."""
    folder = tmp_path / "config"
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "one.conf").write_text('"a": "b"')
    (tmp_path / "secret").write_text('"a": "secret"')
    (folder / link).symlink_to(target.format(tmp_path))
    (folder / "server.conf").write_text(f"mappings {{ include './{link}' }}")
    commit(folder)
    if is_followed:
        (period,) = periods(folder / "server.conf")
        assert period.mappings.apply("a").subject == "b"
    else:
        with refused(AuditError, "git-commit-invalid", reason="file-unreadable") as told:
            periods(folder / "server.conf")
        assert re.search(f"{link}.*No such file", str(told.value))


def test_files_that_the_mapping_file_includes(tmp_path: Path) -> None:
    included = tmp_path / "mappings.conf"
    (tmp_path / "server.conf").write_text("mappings { include mappings.conf }")
    for day, text in enumerate(['"a": "b"', '# the same\n"a": "b"', '"a": "c"'], 1):
        included.write_text(text)
        commit(tmp_path, f"2026-11-0{day}T00:00:00Z")
    (tmp_path / "notes.txt").write_text("no mapping")
    found = periods(tmp_path / "server.conf")
    assert [period.mappings.apply("a").subject for period in found] == ["b", "c"]
    assert found[1].since == datetime(2026, 11, 3, tzinfo=UTC)
    included.write_text('"a": "d"')
    with refused(AuditError, "git-uncommitted"):
        periods(tmp_path / "server.conf")


def test_a_shallow_clone_is_no_history(tmp_path: Path) -> None:
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    for day, destination in enumerate("bc", 1):
        (origin / "m.conf").write_text(f'mappings {{ "a": "{destination}" }}')
        commit(origin, f"2026-11-0{day}T00:00:00Z")
    shallow = ["git", "clone", "-q", "--depth", "1", origin.as_uri(), clone]
    subprocess.run(shallow, check=True)
    with refused(AuditError, "git-shallow"):
        periods(clone / "m.conf")


@pytest.mark.parametrize("name", ["server.conf", "conf/server.conf"])
def test_a_branch_is_in_force_from_its_merge_on(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text('mappings { "a": "b" }')
    commit(tmp_path)
    git(tmp_path, "branch", "-m", "main")
    git(tmp_path, "switch", "-qc", "branch")
    file.write_text('mappings { "a": "c" }')
    commit(tmp_path, "2026-11-03T00:00:00Z")
    git(tmp_path, "switch", "-q", "main")
    (file.parent / "notes.txt").write_text("no mapping")
    commit(tmp_path, "2026-11-05T00:00:00Z")
    git(tmp_path, "merge", "-q", "--no-ff", "-m", "merge", "branch", at="2026-11-10T00:00:00Z")
    found = periods(file)
    assert [period.mappings.apply("a").subject for period in found] == ["b", "c"]
    assert found[1].since == datetime(2026, 11, 10, tzinfo=UTC)


def test_commits_whose_times_fall_are_refused(tmp_path: Path) -> None:
    """Without a moment for each version nobody can say which one was in force."""
    for destination, day in (("b", 1), ("c", 5), ("d", 3)):
        (tmp_path / "m.conf").write_text(f'mappings {{ "a": "{destination}" }}')
        commit(tmp_path, f"2026-11-0{day}T00:00:00Z")
    with refused(AuditError, "git-commits-out-of-order"):
        periods(tmp_path / "m.conf")


def test_commits_of_other_files_load_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may be the root of a large repository; what is included changes over time."""
    commits = [
        {"conf/server.conf": "mappings { include parts/a.conf }", "conf/parts/a.conf": '"a": "b"'},
        *({"conf/notes.txt": str(number)} for number in range(100)),
        {"conf/parts/a.conf": "include ../../b.conf", "b.conf": '"a": "c"'},
        {"b.conf": '"a": "d"'},
    ]
    stream = ""
    for second, files in enumerate(commits):
        stream += f"commit refs/heads/main\ncommitter x <x@x> {second} +0000\ndata 0\n"
        for name, text in files.items():
            stream += f"M 100644 inline {name}\ndata {len(text)}\n{text}\n"
    git(tmp_path, "init", "-q")
    git(tmp_path, "symbolic-ref", "HEAD", "refs/heads/main")
    command = ["git", "-C", tmp_path, "fast-import", "--quiet"]
    subprocess.run(command, input=stream.encode(), check=True)
    git(tmp_path, "reset", "-q", "--hard")
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE", str(trace))
    file = tmp_path / "conf" / "server.conf"
    found = periods(file)
    assert [period.mappings.apply("a").subject for period in found] == ["b", "c", "d"]
    assert [period.since and period.since.second for period in found] == [None, 41, 42]
    assert trace.read_text().count("built-in: git ") < 20


def test_files_that_git_keeps_in_another_form(tmp_path: Path) -> None:
    """Such as encrypted: the mapping is what git checks out."""
    (tmp_path / ".gitattributes").write_text("conf/m.conf filter=secret")
    file = tmp_path / "conf" / "m.conf"
    file.parent.mkdir()
    file.write_text('mappings { "a": "b" }')
    git(tmp_path, "init", "-q")
    for name, letters in (("clean", "b x"), ("smudge", "x b")):
        git(tmp_path, "config", f"filter.secret.{name}", f"tr {letters}")
    commit(tmp_path)
    (period,) = periods(file)
    assert period.mappings.apply("a").subject == "b"


def test_what_a_file_outside_the_repository_holds_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "secret").write_text('"a": "secret"')
    file = tmp_path / "config" / "server.conf"
    file.write_text("mappings { include ../secret }")
    commit(file.parent)
    with refused(AuditError, "git-commit-invalid", reason="file-unreadable") as told:
        periods(file)
    assert re.search(r"server\.conf:1:\d+: .*secret.*No such file", str(told.value))
