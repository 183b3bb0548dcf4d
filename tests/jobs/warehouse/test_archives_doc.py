"""docs/archives.md names every table and how another engine opens one; tables say the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from jobs.census import CENSUS
from jobs.dry_run.simulate import SIMULATED
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import MESSAGES, QUARANTINED, TRANSFORMED, WEIGHT_AUDIT, TableSpec
from jobs.warehouse.tables import open_table
from jobs.warehouse.versions import MAPPING_VERSIONS

PAGE = (Path(__file__).parents[3] / "docs" / "archives.md").read_text()


SPECS = [MESSAGES, TRANSFORMED, QUARANTINED, CENSUS, WEIGHT_AUDIT, MAPPING_VERSIONS, SIMULATED]


def test_the_page_names_every_table() -> None:
    section = PAGE.partition("## The tables")[2].partition("##")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == [spec.name for spec in SPECS]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_a_table_says_what_its_columns_mean(spec: TableSpec, tmp_path: Path) -> None:
    table = open_table(Warehouse(dir=tmp_path), spec, create=True)
    assert [field.name for field in table.schema().fields if not field.doc] == []


def test_pyiceberg_alone_reads_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the page are run as they stand there."""
    monkeypatch.chdir(tmp_path)
    open_table(Warehouse(), MESSAGES, create=True)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102 - lines of our own page
    catalog, messages = names["catalog"], names["messages"]
    assert isinstance(catalog, SqlCatalog)
    assert isinstance(messages, pyarrow.Table)
    catalog.close()
    assert messages.column_names == [field.name for field in MESSAGES.schema.fields]
