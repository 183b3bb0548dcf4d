"""The asset `mapping_version`: the mappings in force, recorded in the warehouse."""

# Dagster reads the annotations of asset functions: no `from __future__ import annotations` here.
from collections.abc import Sequence
from typing import Any

import dagster as dg
from dagster import AssetExecutionContext

from jobs.warehouse import versions
from jobs.warehouse.versions import Rule, Version
from nats_transform import NatsTransformError
from nats_transform.check import Origin, check
from nats_transform.config.load import load_with_places
from nats_transform.findings import Finding, Severity
from nats_transform.untrusted import visible
from orchestration.archive import Archive
from orchestration.failures import failing_with_one_line
from orchestration.mapping_in_force import materialized_version
from orchestration.metadata.columns import columns_of
from orchestration.metadata.markdown import table
from orchestration.metadata.values import Metadata


def mapping_version_asset(archive: Archive) -> dg.AssetsDefinition:
    """The asset; its data version is the mapping version."""

    @dg.asset(
        key=archive.key("mapping_version"),
        group_name=archive.name,
        kinds={"nats"},
        # It has no days, but Dagster asks each asset of a run over a range of days for it.
        backfill_policy=dg.BackfillPolicy.single_run(),
        description="The mappings in force. The data version is a hash of what the mappings do.",
    )
    def mapping_version(context: AssetExecutionContext) -> dg.MaterializeResult[None]:
        with failing_with_one_line():
            mappings, places = load_with_places(archive.mapping, archive.account)
            origin = Origin(str(archive.mapping), archive.account, places)
            findings = check(mappings, origins=[origin])
            for finding in findings:
                if finding.severity is Severity.ERROR:
                    raise NatsTransformError(f"{_place(finding)}: {finding.message}")
            now = versions.record(
                archive.tables, mappings, account=archive.account, seed=archive.seed
            )
            before = materialized_version(context.instance, archive)
            known = {one.mapping_version: one for one in versions.read(archive.tables)}
        return dg.MaterializeResult(
            data_version=dg.DataVersion(now.mapping_version),
            metadata=_metadata(archive, now, findings, known.get(before or ""), len(known)),
        )

    return mapping_version


def _metadata(
    archive: Archive,
    version: Version,
    findings: Sequence[Finding],
    before: Version | None,
    known: int,
) -> Metadata:
    """The rules, what `check` finds in them, and what changed since the last version."""
    return {
        "number of findings": len(findings),
        "number of rules": len(version.rules),
        "rules": table(
            ("source", "destination", "weight", "cluster"),
            [
                (rule.source, rule.destination, f"{rule.weight} %", rule.cluster)
                for rule in version.rules
            ],
        ),
        "findings": table(
            ("severity", "code", "where", "finding", "cure"),
            [
                (str(f.severity), f.code, _place(f), f"{f.source}: {f.message}", f.cure)
                for f in findings
            ],
            empty="none",
        ),
        "difference": _difference(before, version),
        "config": dg.MetadataValue.md("```\n" + visible(version.config, keep="\n") + "```"),
        "versions so far": known,
        "recorded at": dg.MetadataValue.timestamp(version.recorded_at),
        **columns_of(archive, "mapping_version"),
        "version": version.mapping_version,
    }


def _place(finding: Finding) -> str:
    """File and line of a finding, or its source filter where they are not known."""
    if finding.path and finding.line:
        return f"{finding.path}:{finding.line}"
    return finding.path or finding.source


def _difference(before: Version | None, now: Version) -> dg.MetadataValue[Any]:
    if before is None:
        return dg.MetadataValue.md("none: this is the first version")
    if before.mapping_version == now.mapping_version:
        return dg.MetadataValue.md("none: the mappings do the same as before")
    changes = versions.difference(before, now)
    rows = [("removed", r.source, r.destination, _weight(r), "") for r in changes.removed]
    rows += [("added", r.source, r.destination, "", _weight(r)) for r in changes.added]
    rows += [
        ("changed", new.source, new.destination, _weight(old), _weight(new))
        for old, new in changes.changed
    ]
    if changes.seed is not None:
        rows.append(("changed", "seed", "", str(changes.seed[0]), str(changes.seed[1])))
    if changes.reordered:
        rows.append(("changed", "order of the rules", "", "", ""))
    return table(
        ("change", "source", "destination", f"in {before.mapping_version[:12]}", "now"), rows
    )


def _weight(rule: Rule) -> str:
    return f"{rule.weight} %" + (f" in {rule.cluster}" if rule.cluster else "")
