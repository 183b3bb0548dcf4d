"""Our expectations for suites of Great Expectations, in any project.

This name is the same in a checkout and in a wheel, which has `expectations` as
`nats_transform.expectations`. Importing it registers the expectations, so that suites can name
them.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from expectations import batches
from expectations.great import (
    ExpectArchiveToBeAsIngested,
    ExpectArchiveToBeUntouched,
    ExpectEveryOutcomeToAgree,
    ExpectKeysToKeepTheirPartition,
    ExpectMessagesToBeConserved,
    ExpectNoUnexplainedGap,
    ExpectPartitionNumbersInRange,
    ExpectPartitionsToBeBalanced,
    ExpectScalarReplayToAgree,
    ExpectTheSameDigest,
    ExpectWeightsToHold,
    MeasuresMetric,
)
from expectations.mappings import as_plain
from jobs.files.manifest import read_files
from nats_transform.config import load_mappings

__all__ = [
    "ExpectArchiveToBeAsIngested",
    "ExpectArchiveToBeUntouched",
    "ExpectEveryOutcomeToAgree",
    "ExpectKeysToKeepTheirPartition",
    "ExpectMessagesToBeConserved",
    "ExpectNoUnexplainedGap",
    "ExpectPartitionNumbersInRange",
    "ExpectPartitionsToBeBalanced",
    "ExpectScalarReplayToAgree",
    "ExpectTheSameDigest",
    "ExpectWeightsToHold",
    "aggregates",
    "read_mappings",
]

MeasuresMetric.read_files = staticmethod(read_files)


def aggregates(batch: Any, table: str, **given: Any) -> pd.DataFrame:
    """The frame of aggregates of a batch, for expectations that Great Expectations has itself.

    Args:
        batch: a manifest or rows, in pandas or Spark.
        table: `messages` or `transformed_messages`: what the rows are.
        given: `mappings`, `seed` and `mapping_version` of transformed messages.
    """
    return batches.aggregates(batches.measures_of(batch, table, read_files, **given))


def read_mappings(path: str | Path, account: str = "$G") -> list[dict[str, Any]]:
    """The mappings of an account, as the argument `mappings` of an expectation."""
    return as_plain(load_mappings(path, account).mappings)
