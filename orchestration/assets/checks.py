"""The asset checks: the suites of `expectations`, one check for each topic.

They run inside the asset's own step, on what it wrote: for `transformed_messages` before it is
published, so that a failed blocking check publishes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import dagster as dg

from expectations.expectation import Report
from orchestration.archive import CHECKS, Archive
from orchestration.assets.asset import ArchiveAsset
from orchestration.metadata.markdown import escaped, table
from orchestration.metadata.shares import busiest_of_checks, worst_of_checks
from orchestration.metadata.values import Plain
from orchestration.pages import link

SPLIT = "split_as_configured"
"""The check of an observed audit: it has the verdict, and alarms follow it."""

_DESCRIPTIONS = {
    "every_message_once": "The table has each message of the source exactly once, unchanged.",
    "no_unexplained_gaps": "The ingest can explain every gap in the day's sequences.",
    "subjects_are_legal": "Every subject is legal and has no wildcard.",
    "same_result_twice": "Transforming the messages again gives the same result, with and without "
    "the kernel.",
    "weights_within_tolerance": "Each destination's share is within the tolerance around its "
    "weight.",
    "partitions_steady_and_even": "Partition numbers are in range, equal for equal keys, and "
    "evenly used.",
    SPLIT: "Each destination got its weight of the messages, within the tolerance.",
}


def names_of(archive: Archive, asset: ArchiveAsset) -> list[str]:
    """The checks of an asset: ours, and the suites of the YAML."""
    suites = [suite.name for suite in archive.expectations if suite.table == asset.name]
    return [*asset.checks, *suites]


def specs(key: dg.AssetKey, names: Sequence[str]) -> list[dg.AssetCheckSpec]:
    """The checks of an asset; each of a table blocks what is downstream if it fails as an error."""
    return [
        dg.AssetCheckSpec(
            name=name,
            asset=key,
            blocking=name != SPLIT,
            description=_DESCRIPTIONS.get(name, "A suite from the archive's YAML."),
        )
        for name in names
    ]


def results(
    archive: Archive,
    asset: ArchiveAsset,
    report: Report,
    page: Path,
    pages: Mapping[str, Path],
) -> Iterator[dg.AssetCheckResult]:
    """The result of every check of an asset, from the report of its suite.

    A check without expectations passes, such as weights where no mapping has any. A suite of a user
    has one of the other pages.
    """
    for name in names_of(archive, asset):
        topic = CHECKS[asset.name].get(name, name)
        of_topic = [result for result in report.results if result.topic == topic]
        failed = [result for result in of_topic if not result.success]
        blocks = any(result.blocks for result in failed)
        yield dg.AssetCheckResult(
            asset_key=archive.key(asset.name),
            check_name=name,
            passed=not failed,
            severity=dg.AssetCheckSeverity.ERROR if blocks else dg.AssetCheckSeverity.WARN,
            # The UI reads it as Markdown.
            description=escaped("; ".join(result.observed for result in failed or of_topic))
            or "There is nothing to check.",
            metadata={
                **(_SHARES[name](report) if name in _SHARES else {}),
                "expectations that fail": len(failed),
                "expectations": table(
                    ("holds", "expectation", "observed"),
                    [("yes" if r.success else "NO", r.expects, r.observed) for r in of_topic],
                ),
                "data docs": link(archive, pages.get(name, page)),
            },
        )


_SHARES: Mapping[str, Callable[[Report], Mapping[str, Plain]]] = {
    "weights_within_tolerance": worst_of_checks,
    "partitions_steady_and_even": busiest_of_checks,
}
