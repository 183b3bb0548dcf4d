"""The snippets and settings of docs/catalogs.md."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pyiceberg.catalog.glue
import pyiceberg.catalog.rest
import pyiceberg.catalog.sql
import pyiceberg.io
import pytest
import yaml
from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.support.command import printed
from tests.support.jobs import dumped

READING = (Path(__file__).parents[1] / "docs" / "catalogs.md").read_text(encoding="utf-8")
START, *SNIPPETS = re.findall(r"```python\n(.*?)```", READING, re.DOTALL)
CATALOGS = [
    (name, settings)
    for block in re.findall(r"```yaml\n(.*?)```", READING, re.DOTALL)
    for name, settings in yaml.safe_load(block)["catalog"].items()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a warehouse that has three messages under two subjects."""
    folder = tmp_path_factory.mktemp("reading")
    rows = [
        {"seq": seq, "time": "2026-03-01T10:00:00Z", "subject": subject, "data": "x"}
        for seq, subject in enumerate(["orders.1", "orders.2", "orders.1"], 1)
    ]
    dump = dumped(folder / "dump.jsonl", rows)
    where = ("--jsonl", str(dump), "--warehouse", str(folder / "warehouse"))
    printed("ingest", "--stream", "ORDERS", *where)
    return folder


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # of Polars: slower, but right
@pytest.mark.parametrize("snippet", SNIPPETS, ids=["duckdb", "polars", "pandas", "pyarrow"])
def test_snippets_read_the_messages(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    snippet: str,
) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(START + snippet, names)  # noqa: S102 - it is our own page
    names["catalog"].close()
    if (busiest := names.get("busiest")) is None:
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
