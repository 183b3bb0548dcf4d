"""The gate before tables, and the check of what is published, through the command line.

What is wrong with staged rows is put in between the job's writing and the gate.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import gate
from jobs.files.commit import arrow_schema
from jobs.files.text import stored_rows
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import specs, versions
from jobs.warehouse.tables import data_files, open_catalog, open_table, snapshot_properties
from tests.expectations import tables as made
from tests.expectations.tables import Change
from tests.expectations.test_mutations import CHANGED, TRANSFORMED_CHANGES
from tests.support.archive import archive, lose_a_row, without_a_row
from tests.support.command import nats_transform, printed
from tests.support.jobs import dumped
from tests.support.meanwhile import just_before


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with the messages that the mutations are about, and their mapping."""
    folder = tmp_path_factory.mktemp("shop")
    archive(Warehouse(dir=folder / "warehouse"), made.messages())
    (folder / "mapping.conf").write_text(versions.render(made.MAPPINGS))
    return folder


def transform_of(folder: Path) -> tuple[str | Path, ...]:
    """The command that transforms them."""
    where = ("--mapping", folder / "mapping.conf", "--warehouse", folder / "warehouse")
    return ("transform", "--stream", made.STREAM, *where)


@pytest.mark.parametrize(("change", "failing"), TRANSFORMED_CHANGES)
def test_mutations_are_found_through_the_command(
    shop: Path, monkeypatch: pytest.MonkeyPatch, change: Change, failing: set[str]
) -> None:
    warehouse = Warehouse(dir=shop / "warehouse")
    publish = gate.publish

    def mutated(spark: Any, table: Any, staged: Any, *given: Any, **more: Any) -> Any:
        rows = list(made.transformed(made.messages()))
        version = versions.mapping_version(made.MAPPINGS, made.SEED)
        rows = [row | {"mapping_version": version} for row in rows]
        change(rows)
        schema = arrow_schema(specs.TRANSFORMED.schema)
        for file in staged.data_files:
            mine = [row for row in rows if str(row["day"]) in Path(file.file_path).name]
            stored = [
                stored_rows(_plain(batch, specs.TRANSFORMED.rows), schema)
                for batch in (made.batches(mine) if mine else ())
            ]
            path = file.file_path.removeprefix("file://")
            pq.write_table(pa.Table.from_batches(stored, schema), path)
        return publish(spark, table, staged, *given, **more)

    monkeypatch.setattr(gate, "publish", mutated)
    given = (*transform_of(shop), "--seed", str(made.SEED), "--tolerance", "10", "--json")
    code, out, error = nats_transform(*given)
    document = json.loads(out)
    found = {r["name"] for r in document["checks"]["results"] if not r["success"]}
    failing = failing - CHANGED  # nobody ingested these messages, so no earlier run is known
    assert found == failing
    blocking = {r["name"] for r in document["checks"]["results"] if r["blocks"]} & failing
    assert code == (1 if blocking else 0), error
    assert (document["snapshot_id"] is None) == bool(blocking)
    if blocking:
        assert "nothing was published" in error
    else:
        table = open_table(warehouse, specs.TRANSFORMED)
        assert sum(file.record_count for file in data_files(table)) == len(made.messages())


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows without dictionaries."""
    arrays = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def test_without_checks_it_is_loud(shop: Path) -> None:
    code, out, error = nats_transform(*transform_of(shop), "--no-checks", "--json")
    assert code == 0
    assert "NOT checked" in error
    assert json.loads(out)["checks"] == {"ran": False, "hold": None, "results": []}
    table = open_table(Warehouse(dir=shop / "warehouse"), specs.TRANSFORMED)
    assert snapshot_properties(table)["checks"] == "not run"


@pytest.fixture
def dump(tmp_path: Path) -> tuple[str, ...]:
    """How to ingest a few messages of two days."""
    lines = (
        {"subject": f"cart.{n % 9}", "ts": f"2026-03-0{1 + n // 50}T00:00:00Z"} for n in range(100)
    )
    where = ("--stream", "SHOP", "--warehouse", str(tmp_path / "warehouse"))
    return ("ingest", *where, "--jsonl", str(dumped(tmp_path / "dump.jsonl", lines)))


def test_an_ingest_is_refused_by_the_same_gate(
    dump: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    just_before(monkeypatch, "jobs.gate.publish", lose_a_row)
    code, out, error = nats_transform(*dump, "--json")
    document = json.loads(out)
    assert code == 1
    assert (document["added"], document["messages"], document["snapshot_id"]) == (0, 0, None)
    failing = {r["name"] for r in document["checks"]["results"] if not r["success"]}
    assert failing == {"ExpectArchiveToBeAsIngested"}
    assert "nothing was published, the files are in" in document["refused"]
    assert document["refused"] in error
    folder = document["refused"].rpartition(" ")[2].removeprefix("file://")
    assert list(Path(folder).glob("*.parquet"))
    # What was refused is no part of the archive, so the next run reads it again.
    document = json.loads(printed(*dump, "--json"))
    assert (document["added"], document["refused"]) == (100, None)
    assert document["checks"]["hold"]
    table = open_table(Warehouse(dir=tmp_path / "warehouse"), specs.MESSAGES)
    assert snapshot_properties(table)["checks"] == "all 5 expectations hold"
    assert snapshot_properties(table)["digest"] == document["digest"]


def test_an_ingest_says_which_sequences_count_as_archived(
    dump: tuple[str, ...], tmp_path: Path
) -> None:
    lines = ({"subject": "a", "ts": "2026-03-01", "seq": seq} for seq in range(1, 600, 2))
    dumped(tmp_path / "dump.jsonl", lines)
    holes = "299 sequences that the dump lacks count as archived"
    code, out, error = nats_transform(*dump, "--json")
    document = json.loads(out)
    assert (code, document["added"], document["presumed_lost"]) == (0, 300, 299)
    assert error.startswith(holes)
    other = tmp_path / "other"
    code, out, error = nats_transform(*dump, "--no-checks", "--json", "--warehouse", str(other))
    assert code == 0
    assert "NOT checked" in error
    assert holes in error
    assert json.loads(out)["checks"]["ran"] is False
    table = open_table(Warehouse(dir=other), specs.MESSAGES)
    assert snapshot_properties(table)["checks"] == "not run"


def test_published_rows_are_verified(shop: Path, dump: tuple[str, ...], tmp_path: Path) -> None:
    """A file of the table that someone changes later is found, and the exit code says so."""
    where = ("--stream", "SHOP", "--warehouse", str(tmp_path / "warehouse"))
    verify = ("verify-table", *where)
    assert nats_transform(*dump)[0] == 0
    assert "not transformed, so nobody checked these days: 2026-03-01" in printed(*verify)
    for day, seed in (("2026-03-01", "0"), ("2026-03-02", "1")):
        given = ("--mapping", shop / "mapping.conf", "--day", day, "--seed", seed)
        assert nats_transform("transform", *where, *given)[0] == 0
    document = json.loads(printed(*verify, "--json"))
    assert (document["holds"], document["not_transformed"]) == (True, [])
    assert [(t["table"], t["days"], t["messages"]) for t in document["tables"]] == [
        ("messages", ["2026-03-01", "2026-03-02"], 100),
        ("transformed_messages", ["2026-03-01"], 50),
        ("transformed_messages", ["2026-03-02"], 50),
    ]
    table = open_table(Warehouse(dir=tmp_path / "warehouse"), specs.TRANSFORMED)
    without_a_row(data_files(table)[0])
    assert "ExpectMessagesToBeConserved: 49 messages" in printed(*verify, code=1)


@pytest.mark.parametrize("columns", ["all", "outcomes"])
@pytest.mark.parametrize(
    ("emptied", "days"),
    [(["messages"], [2]), (["messages", "transformed_messages"], [2]), (["messages"], [1, 2])],
)
def test_days_that_are_gone_are_named(
    shop: Path,
    dump: tuple[str, ...],
    tmp_path: Path,
    emptied: list[str],
    days: list[int],
    columns: str,
) -> None:
    where = ("--stream", "SHOP", "--warehouse", str(tmp_path / "warehouse"))
    mapping = ("--mapping", shop / "mapping.conf", "--columns", columns)
    assert nats_transform(*dump)[0] == 0
    assert nats_transform("transform", *where, *mapping)[0] == 0
    catalog = open_catalog(Warehouse(dir=tmp_path / "warehouse"))
    gone = [f"2026-03-0{day}" for day in days]
    for table in emptied:
        for day in gone:
            catalog.load_table(("nats", table)).delete(f"day = '{day}'")
    out = printed("verify-table", *where, code=1)
    assert f"ingested, but gone: {', '.join(gone)}; restore a copy" in out
    assert "ExpectArchiveToBeAsIngested" in out
    document = json.loads(nats_transform("verify-table", *where, "--json")[1])
    assert (document["holds"], document["gone"]) == (False, gone)
    other = nats_transform("verify-table", *where, "--day", "2026-03-01")
    assert other[0] == int(1 in days)
