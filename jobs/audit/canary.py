"""The job that plans canaries: how many messages and how long, from a stream's own traffic."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from jobs.audit.counts import expected_counts
from jobs.audit.in_force import periods_of
from jobs.audit.result import AuditError
from jobs.session import Spark
from jobs.settings.audit import AuditSettings, CanarySettings
from nats_transform.audit.planning import RulePlan, plan


class CanaryPlan(BaseModel):
    """How long canaries must run: the JSON of `nats-transform plan-canary --json`.

    Attributes:
        stream, tolerance, confidence, power, by, audit_hours: the same as in the settings.
        from_hour, to_hour: the first and the last hour of the archive.
        rules: the plans, one for each mapping and cluster that has messages.
    """

    model_config = ConfigDict(frozen=True)

    stream: str
    tolerance: float
    confidence: float
    power: float
    by: Literal["hour", "day"]
    audit_hours: int | None
    from_hour: datetime
    to_hour: datetime
    rules: tuple[RulePlan, ...]


def plan_canary(spark: Spark, settings: CanarySettings) -> CanaryPlan:
    """The plan, from the messages that each mapping had in each cluster and hour.

    Raises:
        InvalidConfig: the mapping file.
        WarehouseError: tables that cannot be read.
        AuditError: no mapping has a message.
    """
    shared = AuditSettings.model_fields.keys() - {"tolerance", "confidence", "by"}
    audited = AuditSettings(**settings.model_dump(include=set(shared)))
    (period,) = periods = periods_of(audited)
    counted = expected_counts(spark, audited, periods)
    counts: dict[tuple[str, str | None], Counter[datetime]] = defaultdict(Counter)
    for count in counted.counts:
        if count.source is not None:
            counts[count.source, count.cluster][count.hour] += count.messages
    if not counts:
        raise AuditError(
            "canary-without-messages", stream=settings.stream, mapping=settings.mapping
        )
    hours = [count.hour for count in counted.counts]
    return CanaryPlan(
        stream=settings.stream,
        tolerance=settings.tolerance,
        confidence=settings.confidence,
        power=settings.power,
        by=settings.by,
        audit_hours=settings.hours,
        from_hour=min(hours),
        to_hour=max(hours),
        rules=tuple(
            plan(
                dict(sorted(counts.items(), key=lambda entry: (entry[0][0], entry[0][1] or ""))),
                min(hours),
                max(hours),
                settings.shares,
                settings.audit,
                period.mappings,
            )
        ),
    )
