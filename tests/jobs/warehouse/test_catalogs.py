"""Catalogs are configured by the user, and not by whoever wrote the files of the current folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.utils.config import Config

from jobs.errors import WarehouseError
from jobs.warehouse.catalogs import configuration_of
from scripts.architecture import imported, modules
from tests.support.programs import SCRIPT, ended
from tests.support.refused import refused

# With the credential that the environment gives, these would send it to their author.
EVIL = """\
catalog:
  archive:
    type: rest
    uri: http://127.0.0.1:9/
    oauth2-server-uri: http://127.0.0.1:9/tokens
max-workers: 1
"""
MINE = "catalog:\n  archive:\n    uri: sqlite:///mine.db\n"
NAME = ".pyiceberg.yaml"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, and a folder of somebody else's beside it, which is the current one."""
    for name in ("home", "theirs"):
        (tmp_path / name).mkdir()
    (tmp_path / "theirs" / NAME).write_text(EVIL)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYICEBERG_HOME", raising=False)
    monkeypatch.setenv("PYICEBERG_CATALOG__ARCHIVE__CREDENTIAL", "archivist:secret")
    monkeypatch.chdir(tmp_path / "theirs")
    return tmp_path


def test_the_file_of_the_current_folder_is_not_read() -> None:
    assert configuration_of("archive") == {"credential": "archivist:secret"}
    assert Config().get_int("max-workers") is None


@pytest.mark.parametrize("home", ["~", "", "/nowhere", None])
def test_nor_for_want_of_a_home(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody knows the home folder, `~` stays what it is: the name of a folder here."""
    Path("~").mkdir()
    Path("~", NAME).write_text(EVIL)
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
    assert configuration_of("archive") == {"credential": "archivist:secret"}


def test_files_of_the_user_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "home" / NAME).write_text(MINE)
    mine = {"uri": "sqlite:///mine.db", "credential": "archivist:secret"}
    assert configuration_of("archive") == mine
    monkeypatch.setenv("PYICEBERG_HOME", str(folder / "home"))
    monkeypatch.delenv("HOME")
    assert configuration_of("archive") == mine
    monkeypatch.setenv("PYICEBERG_HOME", ".")  # asked for
    assert configuration_of("archive")["uri"] == "http://127.0.0.1:9/"


def test_what_would_be_needed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYICEBERG_CATALOG__ARCHIVE__CREDENTIAL")
    with refused(WarehouseError, "catalog-not-read-here"):
        configuration_of("archive")
    Path(NAME).unlink()
    with refused(WarehouseError, "catalog-unknown"):
        configuration_of("archive")


def test_a_command_in_a_folder_of_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYICEBERG_CATALOG__ARCHIVE__CREDENTIAL")
    done = ended(SCRIPT, "maintain", "--catalog", "archive")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "archive" in done.stderr


def test_nothing_else_imports_catalogs() -> None:
    """Whatever imports them first decides which files configure them."""
    found = {
        name
        for name, file in modules().items()
        for one in imported(file.read_text(encoding="utf-8"), "", {})
        if f"{one}.".startswith("pyiceberg.catalog.") and name.partition(".")[0] != "benchmarks"
    }
    assert found == {"jobs.warehouse.catalogs"}
