"""A stream that was ingested by mistake: it goes from every table, and its name is free again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.census import CENSUS
from jobs.errors import ArchiveError, ConcurrentWrite
from jobs.maintain import remove_stream
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.accounting import Archived
from jobs.warehouse.specs import MESSAGES, TRANSFORMED, TableSpec
from jobs.warehouse.tables import data_files, open_table
from nats_transform.kernel.coverage import NONE, Coverage
from tests.jobs.warehouse.test_folder import add, sequences
from tests.support.command import nats_transform
from tests.support.jobs import counted, transformed
from tests.support.meanwhile import just_before
from tests.support.refused import refused


@pytest.fixture
def warehouse(warehouse: Warehouse) -> Warehouse:
    table = add(warehouse, 1, 2)
    there = Archived().add(Coverage.of([(1, 2)]), NONE, {}, None).model_dump_json()
    key = "nats-transform." + Archived.key("S")
    table.transaction().set_properties({key: there}).commit_transaction()
    open_table(warehouse, CENSUS, create=True)
    return warehouse


def test_a_removed_stream_can_be_ingested_again(warehouse: Warehouse) -> None:
    assert Archived.of(open_table(warehouse, MESSAGES), "S").covered == "1-2"
    assert remove_stream(warehouse, "S") == {"messages": 2}
    table = open_table(warehouse, MESSAGES)
    assert Archived.of(table, "S") == Archived()
    assert data_files(table, "S") == []
    add(warehouse, 7)
    assert sequences(warehouse) == [7]


def test_other_streams_stay(warehouse: Warehouse) -> None:
    with refused(ArchiveError, "no-rows-of-stream", stream="T"):
        remove_stream(warehouse, "T")
    assert sequences(warehouse) == [1, 2]


def test_the_command(warehouse: Warehouse) -> None:
    given = ("maintain", "--remove-stream", "S", "--warehouse", str(warehouse.folder))
    assert nats_transform(*given)[:2] == (0, "messages: 2 rows of stream S removed\n")
    assert nats_transform(*given)[:2] == (2, "")


@pytest.mark.parametrize(
    ("job", "moment", "table"),
    [
        pytest.param(
            lambda warehouse: transformed(warehouse, Path("m.conf")),
            "jobs.transform.check_sequences",
            TRANSFORMED,
            id="transform",
        ),
        pytest.param(counted, "jobs.census.census_suite", CENSUS, id="census"),
    ],
)
def test_what_was_made_of_it_meanwhile_is_not_published(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job: Callable[[Warehouse], object],
    moment: str,
    table: TableSpec,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"seq": 1, "ts": "2026-03-01T00:00:00Z", "subject": "a"}\n')
    Path("m.conf").write_text("mappings { a: b }")
    assert nats_transform("ingest", "--stream", "S", "--jsonl", "a.jsonl")[0] == 0
    here = Warehouse(dir=tmp_path / "warehouse")
    just_before(monkeypatch, moment, lambda *_: remove_stream(here, "S"))
    with refused(ConcurrentWrite, "rows-removed-meanwhile", table="nats.messages"):
        job(here)
    assert data_files(open_table(here, table), "S") == []
