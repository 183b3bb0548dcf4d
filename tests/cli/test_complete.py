"""Streams and days of a warehouse, as a shell completes them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from cli.main import main
from tests.support.files import write_files

ARCHIVE = Path(__file__).parents[1] / "jobs" / "warehouse" / "archive-0.1.0" / "warehouse"


def completed(*words: str) -> list[str]:
    """What is offered for the last word."""
    *before, last = words
    completing = ShellComplete(main, {}, "nats-transform", "_X")
    return [item.value for item in completing.get_completions(before, last)]


def warehouse(folder: Path, *streams: str) -> Path:
    """The catalog and the metadata that completion reads, for streams with two days."""
    with closing(sqlite3.connect(folder / "catalog.db")) as catalog, catalog:
        columns = "table_namespace, table_name, metadata_location"
        catalog.execute(f"CREATE TABLE iceberg_tables ({columns})")
        location = "file:///moved/nats/messages/metadata/1.metadata.json"
        catalog.execute("INSERT INTO iceberg_tables VALUES ('nats', 'messages', ?)", [location])
    days = json.dumps({"days": {"2026-11-01": [1, "0"], "2026-11-02": [1, "0"]}})
    properties = {f"nats-transform.stream.{name}": days for name in streams} | {"other": "x"}
    write_files(folder, {"nats/messages/metadata/1.metadata.json": {"properties": properties}})
    return folder


def test_streams_and_days(tmp_path: Path) -> None:
    at = ("transform", "--warehouse", str(warehouse(tmp_path, "ORDERS", "OTHER", "SHOP")))
    assert completed(*at, "--stream", "") == ["ORDERS", "OTHER", "SHOP"]
    assert completed(*at, "--stream", "O") == ["ORDERS", "OTHER"]
    assert completed(*at, "--stream", "SHOP", "--day", "2026") == ["2026-11-01", "2026-11-02"]
    ranges = ["2026-11-01..2026-11-01", "2026-11-01..2026-11-02"]
    assert completed(*at, "--stream", "SHOP", "--day", "2026-11-01..") == ranges
    assert completed(*at, "--stream", "NONE", "--day", "") == []


def test_the_catalog_that_jobs_write_is_read() -> None:
    at = ("transform", "--warehouse", str(ARCHIVE))
    assert completed(*at, "--stream", "") != []
    assert completed(*at, "--day", "20") != []


@pytest.mark.parametrize(
    "name", ["$(id)", "`id`", "a;id", "a b", "a\nplain,b", "é", "'", "a\x1b[31m"]
)
def test_a_name_that_a_shell_would_act_on_is_not_offered(tmp_path: Path, name: str) -> None:
    folder = warehouse(tmp_path, name, "GOOD")
    assert completed("audit", "--warehouse", str(folder), "--stream", "") == ["GOOD"]


@pytest.mark.parametrize("content", [None, b"", b"not a database", b"SQLite format 3\0" * 9])
def test_a_broken_warehouse_is_silent(
    tmp_path: Path, content: bytes | None, capfd: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "catalog.db").write_bytes(content)
    assert completed("audit", "--warehouse", str(tmp_path), "--stream", "") == []
    assert capfd.readouterr() == ("", "")


def test_a_broken_project_file_is_silent(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "nats-transform.toml").write_text("broken = \n")
    assert "--stream" in completed("audit", "--str")
    assert capfd.readouterr() == ("", "")
    (folder / "nats-transform.toml").write_text(f'warehouse = "{warehouse(folder, "MINE")}"\n')
    assert completed("audit", "--stream", "") == ["MINE"]
