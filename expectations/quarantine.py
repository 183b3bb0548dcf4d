"""The rows that break expectations of a user, found batch by batch before they are written.

An expectation that judges each row by itself can do that: whether a value occurs twice, or how far
it is from the mean, no batch can say.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import great_expectations as gx
import pyarrow as pa
from great_expectations.expectations.expectation import (
    ColumnMapExpectation,
    ColumnPairMapExpectation,
    MulticolumnMapExpectation,
)

from expectations.expectation import ChecksBroken
from expectations.great import fault_of, new_context

_OF_SINGLE_ROWS = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation)
_OF_ALL_ROWS = {
    "expect_column_values_to_be_unique",
    "expect_column_values_to_be_increasing",
    "expect_column_values_to_be_decreasing",
    "expect_column_value_z_scores_to_be_less_than",
    "expect_compound_columns_to_be_unique",
}

_ALONE = threading.Lock()
"""One batch at a time: the tasks of this process share the data source, which knows the last."""


class Sieve:
    """Finds rows that break an expectation of some suites. It can be pickled.

    Raises:
        ChecksBroken: an expectation is not about single rows.
    """

    def __init__(self, suites: Sequence[gx.ExpectationSuite]) -> None:
        self._suites = suites
        for suite in suites:
            for expectation in suite.expectations:
                kind = expectation.expectation_type
                if not isinstance(expectation, _OF_SINGLE_ROWS) or kind in _OF_ALL_ROWS:
                    raise ChecksBroken(
                        "expectation-not-of-rows", suite=suite.name, expectation=kind
                    )

    def __call__(self, rows: pa.RecordBatch) -> list[str | None]:
        """Why each row must go: the first suite and expectation that it breaks; None if none.

        Raises:
            ChecksBroken: an expectation could not be checked.
        """
        reasons: list[str | None] = [None] * len(rows)
        for suite in self._suites:
            with _ALONE, warnings.catch_warnings():
                # Great Expectations leaves out rows without a value, and pandas finds them again.
                warnings.filterwarnings("ignore", "Boolean Series key will be reindexed")
                batch = _batches().get_batch({"dataframe": rows.to_pandas()})
                results = batch.validate(suite, result_format="COMPLETE").results
            for result in results:
                reason = f"{suite.name}: {result.expectation_config.type}"
                if (fault := fault_of(result)) is not None:
                    raise ChecksBroken("suite-broken", suite=reason, fault=fault)
                for place in result.result.get("unexpected_index_list") or ():
                    reasons[place] = reasons[place] or reason
        return reasons


@cache
def _batches() -> Any:
    """Where batches of pandas come from: in a context of its own, in this process."""
    asset = new_context().data_sources.add_pandas("rows").add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("rows")
