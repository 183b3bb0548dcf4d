"""What Dagster's catalog shows of the tables: their columns, and the columns these come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from jobs.census import CENSUS
from jobs.warehouse import specs
from jobs.warehouse.paths import NAMESPACE
from jobs.warehouse.specs import TableSpec
from orchestration.archive import Archive

# Asset -> its table.
TABLES = {spec.name: spec for spec in (specs.MESSAGES, CENSUS, specs.TRANSFORMED)}

_SUBJECT = ("subject", "cluster")
_DRAW = (*_SUBJECT, "stream", "seq")
# Asset -> column -> the columns of `messages` that it is made of; others keep their name.
_MADE_OF: dict[str, dict[str, tuple[str, ...]]] = {
    "subject_census": {
        "messages": ("seq",),
        "bytes": ("data",),
        "first_ts": ("ts",),
        "last_ts": ("ts",),
    },
    "transformed_messages": {
        field.name: _DRAW
        for field in specs.TRANSFORMED.schema.fields
        if field.name not in specs.MESSAGES.schema.column_names and field.name != "mapping_version"
    },
}


def schema_of(spec: TableSpec) -> Mapping[str, Any]:
    """The name of a table and its columns."""
    columns = [dg.TableColumn(field.name, str(field.field_type)) for field in spec.schema.fields]
    return {
        "dagster/table_name": f"{NAMESPACE}.{spec.name}",
        "dagster/column_schema": dg.TableSchema(columns),
    }


def columns_of(archive: Archive, asset: str) -> Mapping[str, Any]:
    """The columns of an asset's table, and of which columns of `messages` they are made."""
    spec = TABLES[asset]
    described = dict(schema_of(spec))
    if asset in _MADE_OF:
        upstream, known = archive.key("messages"), specs.MESSAGES.schema.column_names
        made = {f.name: (f.name,) for f in spec.schema.fields if f.name in known}
        lineage = {
            name: [dg.TableColumnDep(upstream, column) for column in columns]
            for name, columns in (made | _MADE_OF[asset]).items()
        }
        described["dagster/column_lineage"] = dg.TableColumnLineage(lineage)
    return described
