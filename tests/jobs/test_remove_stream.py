"""A stream that was ingested by mistake: it goes from every table, and its name is free again."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.census import CENSUS
from jobs.errors import ArchiveError
from jobs.maintain import remove_stream
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.accounting import Archived
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import data_files, open_table
from tests.jobs.warehouse.test_folder import add, sequences
from tests.support.command import nats_transform


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    found = Warehouse(dir=tmp_path / "warehouse")
    table = add(found, 1, 2)
    there = Archived().add(1, 2, {}, None).model_dump_json()
    key = "nats-transform." + Archived.key("S")
    table.transaction().set_properties({key: there}).commit_transaction()
    open_table(found, CENSUS, create=True)
    return found


def test_a_removed_stream_can_be_ingested_again(warehouse: Warehouse) -> None:
    assert Archived.of(open_table(warehouse, MESSAGES), "S").covered == "1-2"
    assert remove_stream(warehouse, "S") == {"messages": 2}
    table = open_table(warehouse, MESSAGES)
    assert Archived.of(table, "S") == Archived()
    assert data_files(table, "S") == []
    add(warehouse, 7)
    assert sequences(warehouse) == [7]


def test_other_streams_stay(warehouse: Warehouse) -> None:
    with pytest.raises(ArchiveError, match="has rows of stream 'T'; check the name"):
        remove_stream(warehouse, "T")
    assert sequences(warehouse) == [1, 2]


def test_the_command(warehouse: Warehouse) -> None:
    given = ("maintain", "--remove-stream", "S", "--warehouse", str(warehouse.folder))
    assert nats_transform(*given)[:2] == (0, "messages: 2 rows of stream S removed\n")
    assert nats_transform(*given)[:2] == (2, "")
