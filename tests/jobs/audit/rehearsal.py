"""An archive of two days and clusters, and what its mappings make of it, counted one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from jobs import transform as job
from jobs.audit.result import AuditResult
from jobs.audit.run import run
from jobs.settings.audit import AuditSettings
from jobs.settings.transform import TransformSettings
from jobs.warehouse import tables
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.audit import Period
from nats_transform.config import mapping_version
from tests.support.archive import Row, message
from tests.support.jobs import HERE

DAY = date(2026, 3, 1)
MAPPINGS = AccountMappings(
    [
        Mapping("shop.*", [Destination("v1.$1", 75), Destination("v2.{{partition(4,1)}}", 25)]),
        Mapping("east.*", [Destination("e.$1", 50, "east"), Destination("all.$1", 100)]),
        Mapping("drop", [Destination("kept", 60), Destination("drop", 0)]),
        Mapping("plain", [Destination("renamed")]),
    ]
)
VERSION = mapping_version(MAPPINGS, 0)
SUBJECTS = ["shop.{}", "shop.{}", "east.{}", "drop", "plain", "other.{}", "a..b"]


def messages(count: int = 4000, days: int = 2, clusters: Sequence[str | None] = ("east", "west")):
    start = datetime(2026, 3, 1, tzinfo=UTC)
    for seq in range(1, count + 1):
        ts = start + timedelta(days=days) * ((seq - 1) / count)
        subject = SUBJECTS[seq % len(SUBJECTS)].format(seq % 97)
        cluster = clusters[seq // len(SUBJECTS) % len(clusters)]
        yield message(seq, subject, ts, cluster=cluster, data=b"payload")


def transform(warehouse: tables.Warehouse, **more: Any) -> None:
    settings = TransformSettings(stream="S", mapping=Path("m"), warehouse=warehouse, **more)
    job.transform(HERE, settings, MAPPINGS)


def audit(warehouse: tables.Warehouse, version: str = VERSION, **more: Any) -> AuditResult:
    settings = AuditSettings(stream="S", mapping=Path("m.conf"), warehouse=warehouse, **more)
    return run(HERE, settings, [Period(MAPPINGS, version)])


def replayed(rows: Sequence[Row], seed: int = 0) -> dict[tuple[str | None, ...], int]:
    """Counts by mapping, cluster and destination from the scalar path."""
    counts: dict[tuple[str | None, ...], int] = {}
    for row in rows:
        outcome = MAPPINGS.replay(
            row["subject"], row["cluster"], stream="S", seq=row["seq"], seed=seed
        )
        key = (outcome.mapping_source, row["cluster"], outcome.mapping_destination)
        counts[key] = counts.get(key, 0) + 1
    return counts


def counts_of(result: AuditResult) -> dict[tuple[str | None, ...], int]:
    return {
        (rule.source, rule.cluster, end.destination): end.count
        for rule in result.rules
        for end in rule.destinations
        if end.count
    }


def audited(counts: dict[tuple[str | None, ...], int]) -> dict[tuple[str | None, ...], int]:
    return {key: count for key, count in counts.items() if key[0] not in (None, "plain")}
