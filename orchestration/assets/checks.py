"""The asset checks: the suites of `expectations`, one check for each topic.

They run inside the asset's own step, on what it wrote: for `transformed_messages` before it is
published, so that a failed blocking check publishes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import dagster as dg

from orchestration.archive import TOPICS, Archive
from orchestration.metadata.markdown import escaped, table
from orchestration.metadata.shares import shares_of_checks
from orchestration.metadata.values import link

if TYPE_CHECKING:  # it loads Great Expectations, which takes longer than all else
    from expectations.expectation import Report


def specs(archive: Archive, asset: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """The checks of an asset; each blocks what is downstream if it fails as an error."""
    return [
        dg.AssetCheckSpec(
            name=topic,
            asset=asset,
            blocking=True,
            description=_DESCRIPTIONS.get(topic, "A suite of the YAML of the archive."),
        )
        for topic in _topics(archive, asset)
    ]


def _topics(archive: Archive, asset: dg.AssetKey) -> list[str]:
    table = asset.path[-1]
    return [*TOPICS[table], *(suite.name for suite in archive.expectations if suite.table == table)]


def results(
    archive: Archive,
    asset: dg.AssetKey,
    report: Report,
    page: Path,
    pages: Mapping[str, Path] = MappingProxyType({}),
) -> Iterator[dg.AssetCheckResult]:
    """The result of every check of an asset, from the report of its suite.

    A topic without expectations passes, such as weights where no mapping has any. A suite of a user
    has one of the other pages.
    """
    for topic in _topics(archive, asset):
        of_topic = [result for result in report.results if result.topic == topic]
        failed = [result for result in of_topic if not result.success]
        blocks = any(result.blocks for result in failed)
        yield dg.AssetCheckResult(
            asset_key=asset,
            check_name=topic,
            passed=not failed,
            severity=dg.AssetCheckSeverity.ERROR if blocks else dg.AssetCheckSeverity.WARN,
            # The UI reads it as Markdown.
            description=escaped("; ".join(result.observed for result in failed or of_topic))
            or "There is nothing to check.",
            metadata={
                # Numbers first: Dagster plots how they went.
                "expectations that hold": len(of_topic) - len(failed),
                "expectations that fail": len(failed),
                **_numbers(topic, report),
                "expectations": table(
                    ("holds", "expectation", "observed"),
                    [("yes" if r.success else "NO", r.expects, r.observed) for r in of_topic],
                ),
                "data docs": link(archive, pages.get(topic, page)),
            },
        )


def _numbers(topic: str, report: Report) -> dict[str, float]:
    starts = {"weights": ("share of", "largest"), "partitions": ("busiest",)}.get(topic)
    return {
        name: value
        for name, value in (shares_of_checks(report) if starts else {}).items()
        if isinstance(value, float) and name.startswith(starts or ())
    }


_DESCRIPTIONS = {
    "conservation": "Each message of the source is in the table exactly once and unchanged.",
    "completeness": "The sequences of the day have no gap that the ingest cannot explain.",
    "subjects": "Every subject is legal and has no wildcard.",
    "determinism": "Transforming the messages again gives the same, with the kernel and without.",
    "weights": "The share of each destination is within the tolerance around its weight.",
    "partitions": "Partition numbers are in range, equal for equal keys, and evenly used.",
}
