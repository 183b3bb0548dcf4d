"""The assets `weight_audit` and `canary_watch`: did each destination get the share of its weight?

`weight_audit` is a rehearsal by replay, unless the archive is `observed`: then it says what the
servers did, and its check `split_as_configured` has the verdict. `canary_watch` looks at a canary
that runs. It has no partitions: each look counts all hours since the canary started, so a partition
for an hour would have to change with every later look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import dagster as dg

from jobs.audit.headline import headline
from jobs.audit.in_force import periods_of
from jobs.audit.result import AuditError
from jobs.audit.run import run as audit_periods
from jobs.settings.audit import AuditSettings
from jobs.settings.days import DayRange, day_ranges
from jobs.warehouse import specs, tables
from nats_transform.audit import Period, Verdict
from nats_transform.mappings.unseen import Unseen, unseen_line
from nats_transform.untrusted import visible
from orchestration.archive import Archive
from orchestration.assets import checks
from orchestration.assets.asset import ArchiveAsset
from orchestration.days import days_of, empty_days
from orchestration.failures import failing_with_one_line
from orchestration.mapping_in_force import in_force_since, mapping_in_force
from orchestration.metadata.columns import TABLES, columns_of
from orchestration.metadata.markdown import escaped
from orchestration.metadata.shares import shares_of_audit
from orchestration.metadata.values import Metadata, Results
from orchestration.pages import link, write_report


def run(archive: Archive, context: dg.AssetExecutionContext) -> Results:
    """Audits the days; the page and its JSON are among the archive's reports."""
    days = days_of(context)
    asset = REHEARSAL if archive.observed is None else OBSERVED
    with failing_with_one_line():
        empty, unseen = empty_days(archive, context.instance, days)
    if len(empty) == len(days) and not unseen:
        yield from _nothing_to_audit(archive, asset)
        return
    with failing_with_one_line():
        settings = AuditSettings(**_asked(archive, context, days))
        settings, periods = _with_periods(context.instance, archive, settings)
    kind = "rehearsal" if archive.observed is None else "observed"
    name = f"{kind}-{days[0]}-{days[-1]}"
    yield from _audited(archive, asset, settings, periods, name, unseen)


class Look(dg.Config):
    """Up to when a look counts."""

    until: str = ""


def watch(archive: Archive, context: dg.AssetExecutionContext) -> Results:
    """Looks at the canary; each materialization is a look."""
    observed = archive.observed
    assert observed is not None  # noqa: S101 - else there is no such asset
    assert observed.watch is not None  # noqa: S101 - as above
    asked_until = context.op_execution_context.op_config.get("until")
    window = timedelta(hours=observed.watch.hours)
    with failing_with_one_line():
        asked = _asked(archive, context, [])
        settings = AuditSettings(**asked, until=asked_until or None)
        now = settings.until or datetime.now(UTC)
        until = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        settings, periods = _with_periods(context.instance, archive, settings)
        stage = [p for p in periods if p.since is None or p.since < until][-1]
        table = tables.open_table(archive.tables, specs.MESSAGES)
        first = min(tables.days_of(table, archive.stream), default=archive.start_date)
        begins = datetime.combine(first, time(), UTC)
        began = stage.since
        if not settings.in_force:
            began = in_force_since(context.instance, archive, stage.version)
        since = max(began or begins, begins).astimezone(UTC)
        if since >= until:
            raise AuditError("canary-too-young", since=since)
        last = until - timedelta(microseconds=1)
        since += (last - since) // window * window
        days = DayRange(since.date(), last.date())
        _, unseen = empty_days(archive, context.instance, days)
        asked |= {"since": since, "until": until, "sequential": True, "in_force": ()}
        settings = AuditSettings(**asked)
    version = [Period(stage.mappings, stage.version)]
    # Each window has a page of its own: the next one must not replace that of an alarm.
    name = f"canary-watch-{since:%Y-%m-%dT%H%M}"
    yield from _audited(archive, WATCH, settings, version, name, unseen)


REHEARSAL = ArchiveAsset(
    "weight_audit",
    "A rehearsal by replay: the share that each destination would get, by cluster.",
    frozenset({"spark", "iceberg"}),
    run,
    # The version directly too: without it, a new one would not make audits stale at once.
    deps=("transformed_messages", "mapping_version"),
    follows_mapping=True,
)
OBSERVED = replace(
    REHEARSAL,
    description="What the servers did: the share that each destination got, by cluster and hour.",
    deps=("messages", "mapping_version"),
    checks=(checks.SPLIT,),  # a rehearsal has none, as its weights were checked before
)
WATCH = ArchiveAsset(
    "canary_watch",
    "A look at the running canary, over all full hours since it started. False alarms stay as "
    "rare as the confidence says, however often you look.",
    frozenset({"spark"}),
    watch,
    deps=("messages", "mapping_version"),
    is_daily=False,
    checks=(checks.SPLIT,),
    config=Look,
)


def _asked(archive: Archive, context: dg.AssetExecutionContext, days: list[date]) -> dict[str, Any]:
    """What the archive's YAML tells an audit of some days, or of all."""
    asked = archive.mapped_settings(days, context.run.run_id)
    asked |= {"tolerance": archive.tolerance, "confidence": archive.confidence}
    return asked if archive.observed is None else asked | archive.observed.audit_settings(days)


def _with_periods(
    instance: dg.DagsterInstance, archive: Archive, settings: AuditSettings
) -> tuple[AuditSettings, list[Period]]:
    """The mapping versions in force: of their moments, or the one recorded last, with its seed."""
    if settings.in_force:
        return settings, periods_of(settings)
    mappings, version, seed = mapping_in_force(instance, archive)
    return settings.model_copy(update={"seed": seed}), [Period(mappings, version)]


def _nothing_to_audit(archive: Archive, asset: ArchiveAsset) -> Results:
    """The result of an audit of days without messages."""
    metadata = {
        "verdict": str(Verdict.NOTHING),
        "summary": f"stream {archive.stream} has no messages on these days",
        "messages": 0,
    }
    yield from _judged(archive, asset, Verdict.NOTHING, metadata, {})


def _audited(
    archive: Archive,
    asset: ArchiveAsset,
    settings: AuditSettings,
    periods: list[Period],
    name: str,
    unseen: Sequence[date],
) -> Results:
    """The audit with its page; the verdict as a check, and the numbers."""
    with failing_with_one_line():
        result = audit_periods(archive.session, settings, periods)
        summary = headline(result)
        if unseen:
            days = ", ".join(map(str, day_ranges(unseen)))
            note = unseen_line([Unseen(days, "no run has ingested them")])
            result = result.model_copy(update={"notes": (*result.notes, note)})
            summary += f"; {note}"
        page = write_report(archive, "audit", result, name)
    metadata = {
        "verdict": str(result.verdict),
        "summary": visible(summary),
        "page": link(archive, page),
        **shares_of_audit(result),
        "messages": result.messages,
        "kind": "observed" if result.kind == "observed" else "rehearsal",
        "tolerance": f"{archive.tolerance:g} points",
        **({"notes": visible("\n\n".join(result.notes), keep="\n")} if result.notes else {}),
    }
    more = {
        **(columns_of(archive, asset.name) if asset.name in TABLES else {}),
        "mapping version": result.mapping_version,
        "snapshot": str(result.snapshot_id),
    }
    yield from _judged(archive, asset, result.verdict, metadata, more, unseen)


def _judged(
    archive: Archive,
    asset: ArchiveAsset,
    verdict: Verdict,
    metadata: Metadata,
    more: Metadata,
    unseen: Sequence[date] = (),
) -> Results:
    """The verdict on what was observed as a check, and the numbers; `more` only the asset has."""
    if archive.observed is not None:
        is_wrong = verdict in (Verdict.OUTSIDE, Verdict.NOT_RANDOM)
        is_error = is_wrong and archive.observed.severity == "error"
        yield dg.AssetCheckResult(
            asset_key=archive.key(asset.name),
            check_name=checks.SPLIT,
            passed=verdict is Verdict.WITHIN and not unseen,
            severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
            description=escaped(metadata["summary"]),  # the UI reads it as Markdown
            metadata=metadata,
        )
    yield dg.MaterializeResult(metadata={**metadata, **more})
