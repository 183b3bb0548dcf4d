"""The table `weight_audit`: one row for each destination of a rule and bucket (hour or day)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from jobs.audit.result import AuditResult
from jobs.files.commit import arrow_schema, staged
from jobs.files.storage import Storage
from jobs.files.write import Writer
from jobs.settings.audit import AuditSettings
from jobs.warehouse import staging, tables
from jobs.warehouse.raw import readable
from jobs.warehouse.specs import WEIGHT_AUDIT
from nats_transform.mappings.subject import encode


def publish(settings: AuditSettings, result: AuditResult) -> int | None:
    """The snapshot of `weight_audit` that has the result.

    It takes the place of earlier audits of the same days and kind, of the mapping versions that it
    has; if it is of one cluster, of their rows of this cluster.
    """
    # A column of text takes UTF-8 only, and names in mappings need not be that.
    rows: list[dict[str, Any]] = [
        {name: readable(encode(v)) if isinstance(v, str) else v for name, v in row.items()}
        for row in _rows(result)
    ]
    if not rows:
        return None
    table = tables.open_table(settings.warehouse, WEIGHT_AUDIT, create=True)
    days = sorted({row["day"] for row in rows})
    schema = schema_to_pyarrow(WEIGHT_AUDIT.schema, include_field_ids=False)
    new = pa.Table.from_pylist(rows, schema)
    there = table.scan(tables.slice_of(settings.stream, days)).to_arrow().cast(schema)
    versions = pa.array([stage.mapping_version for stage in result.in_force], pa.string())
    same = pc.and_(
        pc.equal(there["kind"], result.kind), pc.is_in(there["mapping_version"], versions)
    )
    if settings.cluster is not None:
        same = pc.and_(same, pc.equal(there["cluster"], settings.cluster).fill_null(False))
    new = _stage(pa.concat_tables([there.filter(pc.invert(same)), new]), table)
    snapshot = result.input_snapshot
    return staging.publish(
        table,
        new,
        settings.stream,
        days,
        replace=True,
        properties={
            "job": "audit",
            "stream": settings.stream,
            "kind": result.kind,
            "verdict": result.verdict.value,
            "messages": str(result.messages),
            **{fate: str(count) for fate, count in result.fates.items()},
            "mapping-version": result.mapping_version,
            "input-snapshot": "" if snapshot is None else str(snapshot),
            "run-id": result.run_id,
        },
    )


def _stage(rows: pa.Table, table: Table) -> staging.Staged:
    """Files with these rows, one for each day."""
    schema, written = arrow_schema(table.schema()), []
    with staging.new_files(table) as folder:
        for day in pc.unique(rows["day"]).to_pylist():
            with Writer(Storage.of(table), folder, day.isoformat(), schema) as writer:
                of_day = rows.filter(pc.equal(rows["day"], pa.scalar(day)))
                for batch in of_day.cast(schema).to_batches():
                    writer.write(batch)
                written.append(writer.close())
        return staged(table, folder, written)


def _rows(result: AuditResult) -> Iterator[dict[str, Any]]:
    """The rows of a result."""
    for rule in result.rules:
        for split in rule.buckets or (rule,):
            if split.from_ is None:
                continue
            of_split = {
                **{name: getattr(result, name) for name in _OF_RESULT},
                "day": split.from_.date(),
                "mapping_version": rule.mapping_version,
                "mapping_source": rule.source,
                "cluster": rule.cluster,
                "from_ts": split.from_,
                "to_ts": split.to,
                "messages": split.messages,
                "method": split.test.method if split.test else None,
                "p_value": split.test.p_value if split.test else None,
            }
            for end in split.destinations:
                yield of_split | {
                    **{name: getattr(end, name) for name in _OF_END},
                    "mapping_destination": end.destination,
                    "verdict": end.verdict.value,
                }


_OF_RESULT = ("stream", "kind", "tolerance", "confidence", "comparisons", "run_id")
_OF_END = (
    *("end", "weight", "expected", "count", "ambiguous", "share", "low", "high"),
    "messages_to_decide",
)
