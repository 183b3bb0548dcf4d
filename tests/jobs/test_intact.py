"""Files that change after being published are found before anything is made of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from jobs.census import CENSUS
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import specs
from jobs.warehouse.specs import TableSpec
from jobs.warehouse.tables import data_files, file_digests, find_table, open_table
from tests.support.command import nats_transform, printed, refused
from tests.support.jobs import dumped, ingested, transformed
from tests.support.saying import says


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a warehouse that has two days of a stream, and with its mapping."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "mapping.conf").write_text(
        'mappings: { "cart.*": [{destination: "v1.$1", weight: 50}, '
        '{destination: "v2.$1", weight: 50}] }'
    )
    lines = (
        {"subject": f"cart.{n}", "ts": f"2026-03-0{1 + n // 500}T00:00:00Z", "data": f"{n}"}
        for n in range(1000)
    )
    warehouse = Warehouse(dir=folder / "warehouse")
    ingested(warehouse, dumped(folder / "dump.jsonl", lines), "SHOP")
    transformed(warehouse, folder / "mapping.conf", stream="SHOP")
    return folder


@pytest.fixture
def copy(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the current folder."""
    shutil.copytree(shop, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    (tmp_path / "copy" / "stream.json").write_text(
        json.dumps({"name": "SHOP", "subjects": [">"], "no_ack": True})
    )
    return tmp_path / "copy"


def files_of(folder: Path, spec: TableSpec) -> list[Path]:
    table = open_table(Warehouse(dir=folder / "warehouse"), spec)
    return [
        next((folder / "warehouse").rglob(Path(file.file_path).name)) for file in data_files(table)
    ]


def swap(path: Path, column: str) -> None:
    """Swaps two values of a column; rows, sequences and counts stay."""
    rows = pq.read_table(path, partitioning=None)
    values = rows.column(column).to_pylist()
    values[3], values[7] = values[7], values[3]
    assert values != rows.column(column).to_pylist()
    place = rows.schema.get_field_index(column)
    pq.write_table(rows.set_column(place, rows.schema.field(place), [values]), path)


OF = ("--stream", "SHOP")
MAPPING = ("--mapping", "mapping.conf")
EXPORT = ("export", "--to-backup", "backup", "--config", "stream.json")


@pytest.mark.parametrize(
    "command",
    [("audit",), EXPORT, ("replay", "--server", "nats://127.0.0.1:1", "--to", "X")],
    ids=["audit", "export", "replay"],
)
def test_swapped_subjects_are_refused(copy: Path, command: tuple[str, ...]) -> None:
    path = files_of(copy, specs.TRANSFORMED)[0]
    swap(path, "mapped_subject")
    error = refused(*command, *OF)
    assert says(error, "files-changed", file=path, cure="transform its day again")
    assert not (copy / "backup").exists()


def test_compare_refuses_what_it_reads(copy: Path) -> None:
    printed("transform", *OF, *MAPPING, "--branch", "next", "--seed=1")
    path = files_of(copy, specs.TRANSFORMED)[0]
    swap(path, "mapped_subject")
    error = refused("compare", "main", "next")
    assert says(error, "files-changed", file=path, cure="transform its day again")
    # Files that both sides have are not read.
    printed("compare", "main", "main")


def properties(folder: Path) -> list[dict[str, str]]:
    """The hashes of files and the tombstones, among others, of the tables with messages."""
    warehouse = Warehouse(dir=folder / "warehouse")
    return [open_table(warehouse, spec).properties for spec in (specs.MESSAGES, specs.TRANSFORMED)]


ERASE = ("erase", "--subject", "cart.1", "--reason", "ticket 1", "--yes")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(ERASE, id="erase"),
        pytest.param(ERASE[:3], id="erase-without-yes"),
        pytest.param(("erase", "--seq", "900", *ERASE[3:]), id="erase-in-another-file"),
        pytest.param(("audit", *MAPPING, "--observed"), id="audit-observed"),
        pytest.param(("dry-run", "--candidate", "mapping.conf", "--exact"), id="dry-run-exact"),
        pytest.param(("dry-run", "--candidate", "mapping.conf"), id="dry-run"),
        pytest.param(("census", "export", "--out", "counts"), id="census-export"),
    ],
)
def test_changed_messages_are_refused(copy: Path, command: tuple[str, ...]) -> None:
    """Nothing is made of them, and nothing new says that they can be trusted."""
    path, before = files_of(copy, specs.MESSAGES)[0], properties(copy)
    swap(path, "subject")
    error = refused(*command, *OF)
    assert says(error, "files-changed", file=path, cure="ingest its stream anew")
    assert properties(copy) == before
    assert not Path("counts").exists()
    warehouse = Warehouse(dir=copy / "warehouse")
    assert find_table(warehouse, CENSUS) is None or not files_of(copy, CENSUS)


@pytest.mark.parametrize(
    "command", [("dry-run", "--candidate", "mapping.conf"), ("census", "export", "--out", "counts")]
)
def test_a_changed_census_is_refused(copy: Path, command: tuple[str, ...]) -> None:
    printed("census", "export", "--out", "before", *OF)
    path = files_of(copy, CENSUS)[0]
    swap(path, "subject")
    assert path.name in refused(*command, *OF)
    assert not Path("counts").exists()


def test_an_erasure_goes_on_when_changed_rows_are_made_again(copy: Path) -> None:
    """No hash of the erasure vouches for rows that somebody changed."""
    path = files_of(copy, specs.TRANSFORMED)[0]
    swap(path, "mapped_subject")
    before = properties(copy)[1]
    assert says(refused(*ERASE, *OF), "files-changed", file=path, cure="transform its day again")
    assert properties(copy)[1] == before
    printed("transform", *OF, *MAPPING)
    assert printed("erase", "--yes", *OF).startswith("SHOP: 1 message erased\n")
    assert not path.exists()
    printed("verify-table", *OF)


def test_an_audit_takes_the_recorded_mapping(copy: Path) -> None:
    tolerance = (*OF, "--tolerance", "20", "--json")
    found = json.loads(printed("audit", *tolerance))
    given = json.loads(printed("audit", *MAPPING, *tolerance))
    for name in ("verdict", "basis", "messages", "mapping_version", "rules"):
        assert found[name] == given[name]
    assert (found["verdict"], found["messages"]) == ("within", 1000)
    # With two versions nobody knows which one is meant, if not by its days.
    printed("transform", *OF, *MAPPING, "--day", "2026-03-02", "--seed", "5")
    assert says(refused("audit", *tolerance), "several-versions-on-days", count=2)
    of_day = printed("audit", "--day", "2026-03-02", *tolerance)
    assert json.loads(of_day)["messages"] == 500
    assert says(refused("audit", "--observed", *OF), "audit-without-mapping")


def test_the_cure_helps(copy: Path) -> None:
    swap(files_of(copy, specs.TRANSFORMED)[0], "mapped_subject")
    out = printed("verify-table", *OF, code=1)
    assert "ExpectEveryOutcomeToAgree" in out or "another outcome than the mappings give" in out
    for cure in (("transform", *MAPPING), ("verify-table",), EXPORT):
        assert nats_transform(*cure, *OF)[0] == 0


def cut(path: Path, _: str) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("command", "spec", "damage"),
    [
        pytest.param("transform", specs.MESSAGES, cut, id="read"),
        pytest.param("audit", specs.TRANSFORMED, cut, id="hashed"),
        pytest.param("audit", specs.TRANSFORMED, swap, id="changed"),
        pytest.param("verify-table", specs.TRANSFORMED, swap, id="verified"),
    ],
)
def test_errors_name_the_file_that_was_opened(
    copy: Path, command: str, spec: TableSpec, damage: Callable[[Path, str], None]
) -> None:
    """Iceberg has the path of the warehouse that was copied, whose file is as it was."""
    path = files_of(copy, spec)[0]
    damage(path, "mapped_subject")
    _, out, error = nats_transform(command, *OF, *(MAPPING if command == "transform" else ()))
    assert str(path) in out + error


def test_every_file_has_its_hash(shop: Path) -> None:
    for spec in (specs.MESSAGES, specs.TRANSFORMED):
        table = open_table(Warehouse(dir=shop / "warehouse"), spec)
        paths = [file.file_path for file in data_files(table)]
        assert len(paths) == 2
        assert file_digests(table, paths).keys() == set(paths)


def hashes(table: Table) -> list[str]:
    """The properties that have the hashes of files."""
    return [name for name in table.properties if name.startswith("nats-transform.files.")]


def test_files_of_older_releases_are_named(copy: Path) -> None:
    """Older releases kept no hash; nothing says whether such a file changed since."""
    for spec in (specs.MESSAGES, specs.TRANSFORMED):
        table = open_table(Warehouse(dir=copy / "warehouse"), spec)
        table.transaction().remove_properties(*hashes(table)).commit_transaction()
    of_table = {
        name: f"not looked at: whether 2 files of {name} changed after being published (a "
        f"release without hashes published them: {cure})"
        for name, cure in (
            ("messages", "ingest its stream anew"),
            ("transformed_messages", "transform its day again"),
        )
    }
    lines = printed("verify-table", *OF).splitlines()
    assert [line for line in lines if "not looked" in line] == list(of_table.values())
    found = json.loads(printed("verify-table", *OF, "--json"))
    assert [len(table["not_looked_at"]) for table in found["tables"]] == [1, 1]
    for more, name in (((), "transformed_messages"), (("--observed", *MAPPING), "messages")):
        _, out, error = nats_transform("audit", *OF, *more, "--tolerance", "20", "--json")
        assert of_table[name] in json.loads(out)["notes"], error


def test_hashes_of_files_that_are_gone_are_forgotten(copy: Path) -> None:
    printed("transform", *OF, *MAPPING)
    warehouse = Warehouse(dir=copy / "warehouse")
    assert len(hashes(open_table(warehouse, specs.TRANSFORMED))) == 2
    printed("maintain", "--retention", "0")
    table = open_table(warehouse, specs.TRANSFORMED)
    (left,) = hashes(table)
    assert left.removeprefix("nats-transform.files.") in data_files(table)[0].file_path
