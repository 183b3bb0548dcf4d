"""The temporary folders of runs, and what killed processes leave of them."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from jobs.scratch import temporary_folder
from tests.support.programs import in_python

ENDS = """
import os, signal
from jobs.scratch import temporary_folder
from jobs.ending import ended_by_signals
with ended_by_signals("test"), temporary_folder() as folder:
    (folder / "outcomes.parquet").write_bytes(b"x" * 1000)
    os.kill(os.getpid(), signal.{name})
"""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("name", "left"), [("SIGKILL", 1), ("SIGTERM", 0), ("SIGINT", 0)])
def test_what_a_signal_leaves_the_next_run_deletes(name: str, left: int, scratch: Path) -> None:
    done = in_python(ENDS.format(name=name))
    assert done.returncode in (-signal.Signals[name], 128 + signal.Signals[name])
    assert len(list(scratch.iterdir())) == left
    with temporary_folder() as folder:
        assert list(scratch.iterdir()) == [folder.parent]
    assert list(scratch.iterdir()) == []


def test_the_folder_of_a_run_that_goes_on_stays(scratch: Path) -> None:
    with temporary_folder() as one, temporary_folder() as other:
        assert one != other
        assert one.is_dir()


def test_a_file_that_stays_keeps_no_other(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink, stays = os.unlink, list[str]()

    def all_but_one(path: str) -> None:
        if not stays:
            stays.append(path)
        if path in stays:
            raise PermissionError
        unlink(path)

    with temporary_folder() as folder:
        for name in "abc":
            (folder / name).touch()
        monkeypatch.setattr(os, "unlink", all_but_one)
    assert [str(path) for path in folder.iterdir()] == stays


def test_only_folders_of_dry_runs_are_deleted(scratch: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (scratch / "nats-transform-run-link").symlink_to(elsewhere)
    with temporary_folder():
        assert (elsewhere / "lock").exists()
