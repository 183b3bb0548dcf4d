"""Our expectations for suites of Great Expectations, in any project.

This name is the same in a checkout and in a wheel, which has `expectations` as
`nats_transform.expectations`. Importing it registers the expectations, so that suites can name
them.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from expectations import batches
from expectations.expectation import report_on
from expectations.great import (
    ExpectEveryOutcomeToAgree,
    ExpectKeysToKeepTheirPartition,
    ExpectPartitionNumbersInRange,
    ExpectPartitionsToBeBalanced,
    ExpectWeightsToHold,
    MeasuresMetric,
)
from expectations.messages import messages_suite
from expectations.transformed import transformed_messages_suite
from jobs.files.frames import read_files
from nats_transform.config import canonical, load_mappings
from nats_transform.digest import Digest

__all__ = [
    "ExpectEveryOutcomeToAgree",
    "ExpectKeysToKeepTheirPartition",
    "ExpectPartitionNumbersInRange",
    "ExpectPartitionsToBeBalanced",
    "ExpectWeightsToHold",
    "aggregates",
    "read_mappings",
]

MeasuresMetric.read_files = staticmethod(read_files)


def aggregates(
    batch: Any,
    mappings: dict[str, Any] | None = None,
    *,
    archive: tuple[int, str] | None = None,
    explained: Sequence[tuple[int, int]] = (),
    mapping_version: str | None = None,
    before: str | None = None,
) -> pd.DataFrame:
    """The frame of aggregates of a batch, for expectations that Great Expectations has itself.

    Args:
        batch: a manifest or rows, in pandas or Spark.
        mappings: what wrote the rows of `transformed_messages`; None for rows of `messages`.
        archive: how many messages were ingested, and their digest.
        explained: ranges of sequences that may be missing in `messages`.
        mapping_version: the version that rows of `transformed_messages` should name.
        before: the digest of `transformed_messages` that an earlier run computed.
    """
    ingested = None if archive is None else Digest.parse(*archive)
    if mappings is None:
        suite = messages_suite(ingested, explained)
    else:
        config, seed = batches.mappings_of(mappings)
        suite = transformed_messages_suite(
            config,
            archive=ingested,
            messages=batches.count_of(batch),
            seed=seed,
            version=mapping_version,
            before=before,
        )
    counted = tuple(expectation for expectation in suite.expectations if expectation.column)
    measures = batches.measures_of(batch, suite, read_files)
    return batches.aggregates(report_on(measures, replace(suite, expectations=counted)))


def read_mappings(path: str | Path, account: str = "$G", seed: int = 0) -> dict[str, Any]:
    """The mappings of an account and the seed, as the argument `mappings` of an expectation."""
    mappings: dict[str, Any] = json.loads(canonical(load_mappings(path, account), seed))
    return mappings
