"""What docs/catalogs.md and docs/expectations.md show: snippets of Python, settings of catalogs."""

from __future__ import annotations

import inspect
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.catalog.glue
import pyiceberg.catalog.rest
import pyiceberg.catalog.sql
import pyiceberg.io
import pytest
import yaml
from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.io.pyarrow import PyArrowFileIO

from jobs.settings.warehouse import Warehouse
from tests.support.configs import SHOP
from tests.support.files import written
from tests.support.jobs import dumped, ingested, transformed
from tests.support.programs import printed_in_python

DOCS = Path(__file__).parents[1] / "docs"
READING = (DOCS / "catalogs.md").read_text(encoding="utf-8")
START, *SNIPPETS = re.findall(r"```python\n(.*?)```", READING, re.DOTALL)
CATALOGS = [
    (name, settings)
    for block in re.findall(r"```yaml\n(.*?)```", READING, re.DOTALL)
    for name, settings in yaml.safe_load(block)["catalog"].items()
]
EXPECTATIONS = (DOCS / "expectations.md").read_text(encoding="utf-8")


def archived(folder: Path, stream: str, subjects: list[str]) -> Path:
    """A folder with a warehouse that has a message under each subject."""
    rows = [
        {"seq": seq, "time": "2026-03-01T10:00:00Z", "subject": subject, "data": "x"}
        for seq, subject in enumerate(subjects, 1)
    ]
    ingested(Warehouse(dir=folder / "warehouse"), dumped(folder / "dump.jsonl", rows), stream)
    return folder


def run(code: str) -> dict[str, Any]:
    """The names that a snippet of ours leaves, once its catalog is closed."""
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - it is our own page
    names["catalog"].close()
    return names


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three messages under two subjects."""
    subjects = ["orders.1", "orders.2", "orders.1"]
    return archived(tmp_path_factory.mktemp("reading"), "ORDERS", subjects)


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # of Polars: slower, but right
@pytest.mark.parametrize("snippet", SNIPPETS, ids=["duckdb", "polars", "pandas", "pyarrow"])
def test_snippets_read_the_messages(
    orders: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    snippet: str,
) -> None:
    monkeypatch.chdir(orders)
    if (busiest := run(START + snippet).get("busiest")) is None:
        assert capsys.readouterr().out == "3\n"
        return
    if hasattr(busiest, "rows"):
        busiest = busiest.rows()
    elif hasattr(busiest, "items"):
        busiest = list(busiest.items())
    assert sorted(busiest) == [("orders.1", 2), ("orders.2", 1)]


@pytest.mark.parametrize(("name", "settings"), CATALOGS)
def test_settings_are_known_to_pyiceberg(name: str, settings: dict[str, str]) -> None:
    modules = (pyiceberg.catalog.rest, pyiceberg.catalog.glue, pyiceberg.catalog.sql)
    known = {
        value
        for module in (pyiceberg.io, pyiceberg.catalog, *modules)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    sources = "".join(map(inspect.getsource, modules))
    for key, value in settings.items():
        if key == "type":
            assert CatalogType(value) in AVAILABLE_CATALOGS
        elif key != "warehouse":
            assert key in known or f'"{key}"' in sources, key


class Asked(dict[str, str]):
    """Settings that keep the names that were asked for."""

    def __init__(self, settings: dict[str, str]) -> None:
        super().__init__(settings)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


STORES = ("s3.", "gcs.", "adls.")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, id=settings["warehouse"])
        for _, settings in CATALOGS
        if any(name.startswith(STORES) for name in settings)
    ],
)
def test_settings_of_stores_make_a_file_system(settings: dict[str, str]) -> None:
    """None of them is only for the other libraries that PyIceberg can read files with."""
    asked = Asked(settings)
    scheme, bucket, _ = PyArrowFileIO.parse_location(settings["warehouse"])
    assert PyArrowFileIO(asked).fs_by_scheme(scheme, bucket)
    assert {name for name in settings if name.startswith(STORES)} <= asked.names


AGAIN = """
import sys
import great_expectations as gx
import nats_transform.great_expectations
import pandas as pd

checkpoint = gx.get_context(mode="file", project_root_dir="quality").checkpoints.get("canary")
for file in sys.argv[1:]:
    frame = pd.DataFrame({"file_path": [file], "record_count": 400})
    print(checkpoint.run(batch_parameters={"dataframe": frame}).success)
"""


@pytest.mark.slow
def test_the_page_works_in_a_project_that_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/expectations.md, in a project of Great Expectations."""
    subjects = [f"orders.eu.{seq}" if seq % 4 else f"paid.{seq % 7}" for seq in range(1, 401)]
    folder = archived(tmp_path, "SHOP", subjects)
    mapping = written(folder / "mapping.conf", SHOP)
    transformed(Warehouse(dir=folder / "warehouse"), mapping, stream="SHOP")
    monkeypatch.chdir(folder)
    run("".join(re.findall(r"```python\n(.*?)```", EXPECTATIONS, re.DOTALL)))
    assert capsys.readouterr().out == "True\nTrue True\n"
    suite = json.loads((folder / "quality/gx/expectations/canary.json").read_text("utf-8"))
    assert {one["type"] for one in suite["expectations"]} == {
        "expect_weights_to_hold",
        "expect_every_outcome_to_agree",
        "expect_keys_to_keep_their_partition",
    }
    # Another process knows the suite by its JSON, and finds what is wrong with another file.
    (good,) = (folder / "warehouse").rglob("nats/transformed_messages/data/**/*.parquet")
    rows = pq.read_table(good, partitioning=None)
    place = rows.schema.get_field_index("mapped_subject")
    moved = pa.array(["paid.9.x"] * len(rows))
    pq.write_table(rows.set_column(place, rows.schema.field(place), moved), folder / "wrong")
    quiet = os.environ | {"PYTHONWARNINGS": "ignore"}
    assert printed_in_python(AGAIN, good, folder / "wrong", env=quiet).split() == ["True", "False"]
    assert list((folder / "quality/gx/uncommitted/data_docs").rglob("*.html"))
