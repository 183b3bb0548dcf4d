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
from jobs.settings.warehouse import Warehouse
from nats_transform import AccountMappings
from nats_transform.audit import Period
from nats_transform.config import mapping_version
from tests.support.archive import Row, archive, message
from tests.support.jobs import HERE
from tests.support.rules import mappings

DAY = date(2026, 3, 1)
MAPPINGS = mappings(
    {
        "shop.*": [("v1.$1", 75), ("v2.{{partition(4,1)}}", 25)],
        "east.*": [("e.$1", 50, "east"), "all.$1"],
        "drop": [("kept", 60), ("drop", 0)],
        "plain": "renamed",
    }
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


def archived(warehouse: Warehouse, **more: Any) -> list[Row]:
    """The messages, which are now in the warehouse."""
    rows = list(messages(**more))
    archive(warehouse, rows)
    return rows


def transform(warehouse: Warehouse, **more: Any) -> None:
    settings = TransformSettings(stream="S", mapping=Path("m"), warehouse=warehouse, **more)
    job.transform(HERE, settings, MAPPINGS)


def audit(
    warehouse: Warehouse,
    version: str = VERSION,
    periods: Sequence[Period] = (),
    **more: Any,
) -> AuditResult:
    """The audit of what the mappings, or those of other periods, should have made of stream S."""
    settings = AuditSettings(stream="S", mapping=Path("m.conf"), warehouse=warehouse, **more)
    return run(HERE, settings, periods or [Period(MAPPINGS, version)])


def observe(
    warehouse: Warehouse, config: AccountMappings, rows: Sequence[Row] = (), **more: Any
) -> AuditResult:
    """The observed audit of stream OUT, once these rows are archived too."""
    archive(warehouse, rows)
    given = {"tolerance": 5, "observed": True} | more
    settings = AuditSettings(stream="OUT", mapping=Path("m.conf"), warehouse=warehouse, **given)
    return run(HERE, settings, [Period(config, "v")])


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
