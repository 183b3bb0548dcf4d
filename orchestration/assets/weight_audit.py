"""The assets `weight_audit` and `canary_watch`: did each destination get the share of its weight?

`weight_audit` is a rehearsal by replay, unless the archive is `observed`: then it says what the
servers did, and its check `weights` has the verdict. `canary_watch` looks at a canary that runs. It
has no partitions: each look counts all hours since the canary started, so a partition for an hour
would have to change with every later look.
"""

# Dagster reads the annotations of asset functions: no `from __future__ import annotations` here.
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster import AssetExecutionContext

from orchestration.alarms import CHECK
from orchestration.archive import Archive, Observed
from orchestration.automation.stale_days import stale_days
from orchestration.days import days_of
from orchestration.failures import failing_with_one_line
from orchestration.mapping_in_force import mapping_in_force
from orchestration.metadata.columns import TABLES, columns_of
from orchestration.metadata.markdown import escaped
from orchestration.metadata.shares import shares_of_audit
from orchestration.metadata.values import Metadata, Results, link

if TYPE_CHECKING:  # SciPy takes longer to import than all else: not when Dagster loads
    from jobs.audit.result import AuditResult
    from jobs.settings.audit import AuditSettings
    from nats_transform.audit import Period


def weight_audit_asset(archive: Archive) -> dg.AssetsDefinition:
    """The asset; its page and its JSON are among the archive's reports."""
    key = archive.key("weight_audit")
    counted = "transformed_messages" if archive.observed is None else "messages"

    @dg.asset(
        key=key,
        group_name=archive.name,
        # The version directly too: without it, a new one would not make audits stale at once.
        deps=[archive.key(counted), archive.key("mapping_version")],
        partitions_def=archive.partitions,
        backfill_policy=archive.backfill_policy,
        pool=archive.pool,
        automation_condition=stale_days(archive),
        kinds={"spark", "iceberg"},
        check_specs=_check(archive, key),
        description="A rehearsal by replay: the share that each destination would get, by cluster."
        if archive.observed is None
        else "What the servers did: the share that each destination got, by cluster and hour.",
    )
    def weight_audit(context: AssetExecutionContext) -> Results:
        from jobs.settings.audit import AuditSettings

        days = days_of(context)
        with failing_with_one_line():
            settings = AuditSettings(
                **archive.mapped_settings(days, context.run.run_id),
                **_told(archive, days),
                tolerance=archive.tolerance,
                confidence=archive.confidence,
            )
            periods = _periods(context.instance, archive, settings)
        kind = "rehearsal" if archive.observed is None else "observed"
        yield from _audited(archive, key, settings, periods, f"{kind}-{days[0]}-{days[-1]}")

    return weight_audit


class Look(dg.Config):
    """Up to when a look counts."""

    until: str = ""


def canary_watch_asset(archive: Archive, observed: Observed) -> dg.AssetsDefinition:
    """The asset; each materialization is a look."""
    key = archive.key("canary_watch")

    @dg.asset(
        key=key,
        group_name=archive.name,
        deps=[archive.key("messages"), archive.key("mapping_version")],
        pool=archive.pool,
        kinds={"spark"},
        check_specs=_check(archive, key),
        description="A look at the canary that runs, over all full hours since it started. However "
        "often one looks, a false alarm is as rare as the confidence says.",
    )
    def canary_watch(context: AssetExecutionContext, config: Look) -> Results:
        from jobs.audit.result import AuditError
        from jobs.settings.audit import AuditSettings
        from jobs.warehouse import specs, tables
        from nats_transform.audit import Period

        assert observed.watch is not None  # noqa: S101 - the caller asked
        window = timedelta(hours=observed.watch.hours)
        now = datetime.fromisoformat(config.until) if config.until else datetime.now(UTC)
        until = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        with failing_with_one_line():
            asked = archive.mapped_settings([], context.run.run_id) | _told(archive, None)
            asked |= {"tolerance": archive.tolerance, "confidence": archive.confidence}
            periods = _periods(context.instance, archive, AuditSettings(**asked))
            stage = [p for p in periods if p.since is None or p.since < until][-1]
            table = tables.open_table(archive.tables, specs.MESSAGES)
            days = tables.days_of(table, archive.stream)
            begins = datetime.combine(min(days, default=archive.start_date), time(), UTC)
            since = max(stage.since or begins, begins)
            if since >= until:
                raise AuditError(
                    f"no hour of the canary is over: it started at {since:%Y-%m-%d %H:%M} UTC; "
                    "look again after the next full hour"
                )
            since += (until - since - timedelta(microseconds=1)) // window * window
            asked |= {"since": since, "until": until, "sequential": True, "in_force": ()}
            settings = AuditSettings(**asked)
        version = [Period(stage.mappings, stage.version)]
        yield from _audited(archive, key, settings, version, "canary-watch")

    return canary_watch


def _told(archive: Archive, days: list[date] | None) -> dict[str, Any]:
    """What the archive's YAML tells an audit of what was observed."""
    observed = archive.observed
    if observed is None:
        return {}
    in_force: Any = [entry.model_dump() for entry in observed.in_force]
    return observed.audit_settings(days) | {
        "in_force": "git" if observed.in_force_from_git else in_force
    }


def _periods(
    instance: dg.DagsterInstance, archive: Archive, settings: "AuditSettings"
) -> "list[Period]":
    """The mapping versions in force: of their moments, or the one that was recorded last."""
    from jobs.audit.in_force import periods_of
    from nats_transform.audit import Period

    if settings.in_force:
        return periods_of(settings)
    return [Period(*mapping_in_force(instance, archive))]


def _check(archive: Archive, key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """The check with the verdict; a rehearsal has none, as its weights were checked before."""
    if archive.observed is None:
        return []
    description = "Each destination got the share that its weight gives it, within the tolerance."
    return [dg.AssetCheckSpec(name=CHECK, asset=key, description=description)]


def _audited(
    archive: Archive,
    key: dg.AssetKey,
    settings: "AuditSettings",
    periods: "list[Period]",
    name: str,
) -> Results:
    """The audit with its page; the verdict as a check, and the numbers."""
    from jobs.audit.headline import headline
    from jobs.audit.run import run as audit_periods
    from jobs.pages.audit import write

    with failing_with_one_line():
        result = audit_periods(archive.session, settings, periods)
        archive.reports_folder.mkdir(parents=True, exist_ok=True)
        # Archives of one warehouse share the folder.
        page = archive.reports_folder / f"{archive.name}-{name}.html"
        write(result, page)
        page.with_suffix(".json").write_text(result.model_dump_json(indent=2))
    metadata = {
        "verdict": str(result.verdict),
        "summary": headline(result),
        "page": link(archive, page),
        "kind": "observed" if result.kind == "observed" else "rehearsal",
        "messages": result.messages,
        "tolerance": archive.tolerance,
        **shares_of_audit(result),
    }
    if archive.observed is not None:
        yield _verdict(archive.observed, key, result, metadata)
    asset = key.path[-1]
    yield dg.MaterializeResult(
        metadata={
            **metadata,
            **(columns_of(archive, asset) if asset in TABLES else {}),
            "mapping version": result.mapping_version,
            "snapshot": str(result.snapshot_id),
        }
    )


def _verdict(
    observed: Observed, key: dg.AssetKey, result: "AuditResult", metadata: Metadata
) -> dg.AssetCheckResult:
    from nats_transform.audit import Verdict

    is_wrong = result.verdict in (Verdict.OUTSIDE, Verdict.NOT_RANDOM)
    is_error = is_wrong and observed.severity == "error"
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CHECK,
        passed=result.verdict is Verdict.WITHIN,
        severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        description=escaped(metadata["summary"]),  # the UI reads it as Markdown
        metadata=metadata,
    )
