"""The columns of the tables for Dagster's catalog, and the columns from which they are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pyiceberg.types import ListType, NestedField, StructType

from jobs.census import CENSUS
from jobs.warehouse import specs
from jobs.warehouse.paths import NAMESPACE
from jobs.warehouse.versions import MAPPING_VERSIONS
from orchestration.archive import Archive

# Asset -> its table.
TABLES = {
    "mapping_version": MAPPING_VERSIONS,
    **{spec.name: spec for spec in (specs.MESSAGES, CENSUS, specs.TRANSFORMED, specs.WEIGHT_AUDIT)},
}

_VERSION = ("mapping_version.mapping_version",)
_RULES = ("mapping_version.rules",)
_SUBJECT = ("messages.subject", "messages.cluster")
# What decides the outcome of a message: its subject and cluster, its draw, and the mappings.
_OUTCOME = (*_SUBJECT, "messages.stream", "messages.seq", "mapping_version.canonical")


def _made_of(archive: Archive, asset: str) -> Mapping[str, tuple[str, ...]]:
    """Column -> the columns of other assets' tables that it is made of, as `asset.column`."""
    own = list(TABLES[asset].about)
    kept: dict[str, tuple[str, ...]]
    kept = {name: (f"messages.{name}",) for name in specs.MESSAGES.about}
    sources: dict[str, tuple[str, ...]]
    match asset:
        case "subject_census":
            times = dict.fromkeys(("first_ts", "last_ts"), ("messages.ts",))
            sources = {**times, "messages": ("messages.seq",), "bytes": ("messages.data",)}
            sources["carries"] = ("messages.headers",)
        case "transformed_messages":
            sources = dict.fromkeys(set(own) - set(kept), _OUTCOME) | {"mapping_version": _VERSION}
        case "weight_audit" if archive.observed is None:
            counted = tuple(
                f"transformed_messages.{name}"
                for name in ("mapping_source", "mapping_destination", "fate", "cluster", "ts")
            )
            sources = _audited(own, counted)
        case "weight_audit":
            sources = _audited(own, (*_SUBJECT, "messages.ts"))
        case _:
            return {}
    return {name: (kept | sources)[name] for name in own if name in kept or name in sources}


def _audited(own: list[str], counted: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    settings = ("kind", "method", "tolerance", "confidence", "comparisons", "run_id")
    rules = ("mapping_source", "mapping_destination", "weight")
    return {
        **{name: (*counted, *_RULES) for name in own if name not in settings},
        **dict.fromkeys(rules, _RULES),
        "mapping_version": _VERSION,
        "stream": (counted[0].partition(".")[0] + ".stream",),
    }


def _column(field: NestedField, text: str) -> dg.TableColumn:
    kind = field.field_type
    if isinstance(kind, ListType) and isinstance(kind.element_type, StructType):
        # In full, it would push all that is beside it out of the page.
        parts = ", ".join(f"`{part.name}` {part.field_type}" for part in kind.element_type.fields)
        return dg.TableColumn(field.name, "list<struct>", f"{text} Each has {parts}.")
    return dg.TableColumn(field.name, str(kind), text)


def columns_of(archive: Archive, asset: str) -> Mapping[str, Any]:
    """The columns of an asset's table, and the columns that they are made of."""
    spec = TABLES[asset]
    # Last what only few messages have: the bytes of text that is not UTF-8.
    names = sorted(spec.about, key=lambda name: name.endswith("_raw"))
    columns = [_column(spec.schema.find_field(name), spec.about[name]) for name in names]
    described: dict[str, Any] = {
        "dagster/table_name": f"{NAMESPACE}.{spec.name}",
        "dagster/column_schema": dg.TableSchema(columns),
    }
    if sources_of := _made_of(archive, asset):
        lineage = {}
        for column, sources in sources_of.items():
            pairs = (source.split(".") for source in sources)
            lineage[column] = [dg.TableColumnDep(archive.key(of), name) for of, name in pairs]
        described["dagster/column_lineage"] = dg.TableColumnLineage(lineage)
    return described
