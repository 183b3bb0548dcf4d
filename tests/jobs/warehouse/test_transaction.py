"""Commits see the metadata that PyIceberg would make, and make it once for each change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyiceberg.table
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import LongType, NestedField

from jobs.warehouse.transaction import FrugalTransaction


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    catalog.create_namespace("n")
    return catalog.create_table("n.t", Schema(NestedField(1, "a", LongType(), required=False)))


def append(transaction: Transaction, branch: str = "main") -> None:
    transaction.update_snapshot({"of": branch}, branch).fast_append().commit()


def test_the_metadata_are_those_of_pyiceberg(table: Table) -> None:
    transaction = FrugalTransaction(table)
    for change in (
        lambda: None,
        lambda: append(transaction),
        lambda: transaction.set_properties({"a": "1"}),
        lambda: append(transaction),
        transaction.commit_transaction,
        lambda: append(transaction, "next"),
    ):
        change()
        expected = Transaction.table_metadata.fget(transaction)
        ours = transaction.table_metadata
        assert ours.model_copy(update={"last_updated_ms": 0}) == expected.model_copy(
            update={"last_updated_ms": 0}
        )
    assert len(table.metadata.snapshots) == 2


def test_they_are_made_once_for_each_change(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    real: Callable[..., Any] = pyiceberg.table.update_table_metadata

    def counted(base: Any, updates: Any, *more: Any) -> Any:
        made.append((base, updates))  # kept, so that no other gets its id
        return real(base, updates, *more)

    monkeypatch.setattr(pyiceberg.table, "update_table_metadata", counted)
    for number in range(3):
        transaction = FrugalTransaction(table)
        append(transaction)
        transaction.set_properties({"a": str(number)})
        transaction.commit_transaction()
    assert 3 <= len(made) == len({(id(base), repr(updates)) for base, updates in made})
