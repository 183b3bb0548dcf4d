"""The asset `mapping_version`: the mappings in force, recorded in the warehouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from jobs.warehouse import versions
from jobs.warehouse.versions import Rule, Version, render
from nats_transform import NatsTransformError
from nats_transform.config import load_all, load_mappings
from nats_transform.config.load import account_in, mappings_in
from nats_transform.lint.check import Origin, check
from nats_transform.lint.findings import Finding, Severity
from orchestration.archive import Archive
from orchestration.assets.asset import ArchiveAsset
from orchestration.failures import failing_with_one_line
from orchestration.mapping_in_force import materialized_version
from orchestration.metadata.columns import columns_of
from orchestration.metadata.markdown import code_block, table
from orchestration.metadata.values import Metadata, Results


def run(archive: Archive, context: dg.AssetExecutionContext) -> Results:
    """Records the mappings; the data version is the mapping version."""
    with failing_with_one_line():
        everything = load_all(archive.mapping)
        mappings = mappings_in(everything, archive.mapping, archive.account)
        places = account_in(everything, archive.mapping, archive.account).places
        origin = Origin(str(archive.mapping), archive.account, places)
        findings = check(mappings, origins=[origin])
        for finding in findings:
            if finding.severity is Severity.ERROR:
                raise NatsTransformError(
                    "mapping-invalid", place=_place(finding), reason=finding.message
                )
        now = versions.record(archive.tables, mappings, account=archive.account, seed=archive.seed)
        before = materialized_version(context.instance, archive)
        known = {version.mapping_version: version for version in versions.read(archive.tables)}
    file: Metadata = {
        "file": dg.MetadataValue.path(archive.mapping),
        "version": now.mapping_version,
    }
    context.log_event(dg.AssetObservation(archive.mapping_key, metadata=file))
    yield dg.MaterializeResult(
        data_version=dg.DataVersion(now.mapping_version),
        metadata=_metadata(archive, now, findings, known.get(before or ""), len(known)),
    )


def _mappings_of(archive: Archive) -> str:
    """The mappings of the file, as the catalog shows the SQL of a model; none if it is refused."""
    try:
        mappings = render(load_mappings(archive.mapping, archive.account))
    except NatsTransformError:  # the asset itself fails, and says why
        return ""
    return f"\n\n#### Mappings\n\n{code_block(mappings)}"


ASSET = ArchiveAsset(
    "mapping_version",
    "The mappings in force. The data version is a hash of what they do.",
    frozenset({"nats"}),
    run,
    is_daily=False,
    code=_mappings_of,
    upstream=lambda archive: [archive.mapping_key],
)


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
        "config": dg.MetadataValue.md(code_block(version.config)),
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
