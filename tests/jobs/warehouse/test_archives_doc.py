"""docs/archives.md says which columns every table has, and how another engine opens one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobs.census import CENSUS
from jobs.warehouse.specs import MESSAGES, TRANSFORMED, WEIGHT_AUDIT, TableSpec
from jobs.warehouse.tables import Warehouse, open_table
from jobs.warehouse.versions import MAPPING_VERSIONS

PAGE = (Path(__file__).parents[3] / "docs" / "archives.md").read_text()


def columns(table: str) -> dict[str, str]:
    """The columns of a table with their types, as the page lists them."""
    found = re.search(rf"^`{table}` has .*?\n\n\| column .*?\n\n", PAGE, re.M | re.S)
    assert found
    return {
        name: kind
        for names, kind in re.findall(r"^\| (`.*?) \| (.*?) \| .* \|$", found[0], re.M)
        for name in re.findall(r"`(\w+)`", names)
    }


@pytest.mark.parametrize(
    "spec", [MESSAGES, TRANSFORMED, CENSUS, WEIGHT_AUDIT, MAPPING_VERSIONS], ids=lambda s: s.name
)
def test_the_page_has_every_column_with_its_type(spec: TableSpec) -> None:
    told = columns(spec.name)
    if spec is TRANSFORMED:
        told |= columns("messages")
    stored = {}
    for field in spec.schema.fields:
        kind = str(field.field_type)
        nested = ", ".join(f"`{n}` {t}" for n, t in re.findall(r"(\w+): optional (\w+)", kind))
        times = kind.replace("timestamptz", "timestamp, UTC, microseconds")
        stored[field.name] = f"list of ({nested})" if kind.startswith("list") else times
    assert told == stored


def test_pyiceberg_alone_reads_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of the page are run as they stand there."""
    monkeypatch.chdir(tmp_path)
    open_table(Warehouse(), MESSAGES, create=True)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102 - lines of our own page
    assert getattr(names["messages"], "column_names", None) == [
        field.name for field in MESSAGES.schema.fields
    ]
