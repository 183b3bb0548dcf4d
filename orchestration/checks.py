"""The asset checks: the suites of `expectations`, one check for each topic.

They run inside the asset's own step, on what it wrote: for `transformed_messages` before it is
published, so that a failed blocking check publishes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from orchestration import metadata
from orchestration.archive import Archive

if TYPE_CHECKING:  # it loads Great Expectations, which takes longer than all else
    from expectations.validation import ExpectationResult, Report

MESSAGES = ("conservation", "completeness", "subjects")
TRANSFORMED_MESSAGES = ("conservation", "determinism", "subjects", "weights", "partitions")


def specs(asset: dg.AssetKey, topics: Sequence[str]) -> list[dg.AssetCheckSpec]:
    """The checks of an asset; each blocks what is downstream if it fails as an error."""
    return [
        dg.AssetCheckSpec(name=topic, asset=asset, blocking=True, description=_DESCRIPTIONS[topic])
        for topic in topics
    ]


def results(
    archive: Archive, asset: dg.AssetKey, topics: Sequence[str], report: Report
) -> Iterator[dg.AssetCheckResult]:
    """The result of every check of an asset, from the report of its suite.

    A topic without expectations passes: the mappings have no weights or no partition(), say.
    """
    for topic in topics:
        found = [result for result in report.results if result.topic == topic]
        failed = [result for result in found if not result.success]
        blocks = any(result.blocks for result in failed)
        yield dg.AssetCheckResult(
            asset_key=asset,
            check_name=topic,
            passed=not failed,
            severity=dg.AssetCheckSeverity.ERROR if blocks else dg.AssetCheckSeverity.WARN,
            description="; ".join(result.observed for result in failed or found)
            or "nothing to check",
            metadata={
                "expectations": metadata.table(
                    ("holds", "expectation", "observed"), [_row(result) for result in found]
                ),
                "data docs": metadata.link(archive, report.docs_path),
            },
        )


def _row(result: ExpectationResult) -> tuple[str, str, str]:
    return ("yes" if result.success else "NO", result.expects, result.observed)


_DESCRIPTIONS = {
    "conservation": "No message is lost, doubled or changed on the way.",
    "completeness": "The day's sequences have no gap that nobody explains.",
    "subjects": "Every subject is a legal literal one.",
    "determinism": "Computing it again gives the same, in Spark and without.",
    "weights": "Each destination's share is within the tolerance of its weight.",
    "partitions": "Partition numbers are in range, stable for a key, and balanced.",
}
