"""The rows that break expectations of a user, found batch by batch before they are written.

An expectation that judges each row by itself can do that: whether a value occurs twice, or how far
it is from the mean, no batch can say.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import great_expectations as gx
import pyarrow as pa
from great_expectations.data_context.types.base import InMemoryStoreBackendDefaults
from great_expectations.expectations.expectation import (
    ColumnMapExpectation,
    ColumnPairMapExpectation,
    MulticolumnMapExpectation,
)

from expectations.expectation import ChecksBroken
from expectations.great import fault_of, new_context, suite_of

_OF_ALL_ROWS = {
    "expect_column_values_to_be_unique",
    "expect_column_values_to_be_increasing",
    "expect_column_values_to_be_decreasing",
    "expect_column_value_z_scores_to_be_less_than",
    "expect_compound_columns_to_be_unique",
}


@dataclass(frozen=True)
class Sieve:
    """Finds rows that break an expectation of some suites. It can be pickled.

    Attributes:
        suites: the name of each suite, and its expectations as JSON.
    """

    suites: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, suites: Sequence[gx.ExpectationSuite]) -> Sieve:
        """The sieve of some suites.

        Raises:
            ChecksBroken: an expectation is not about single rows.
        """
        kinds = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation)
        for suite in suites:
            for one in suite.expectations:
                if not isinstance(one, kinds) or one.expectation_type in _OF_ALL_ROWS:
                    raise ChecksBroken(
                        f"suite {suite.name}: {one.expectation_type} says nothing about single "
                        "rows, so it can't quarantine one; put it into another suite"
                    )
        return cls(tuple((suite.name, _json(suite)) for suite in suites))

    def __call__(self, rows: pa.RecordBatch) -> list[str | None]:
        """Why each row must go: the first suite and expectation that it breaks; None if none.

        Raises:
            ChecksBroken: an expectation could not be checked.
        """
        reasons: list[str | None] = [None] * len(rows)
        batch = _batches().get_batch({"dataframe": rows.to_pandas()})
        for name, text in self.suites:
            for one in _suite(name, text).expectations:
                found: Any = batch.validate(one, result_format="COMPLETE")
                if (fault := fault_of(found)) is not None:
                    raise ChecksBroken(f"suite {name}: {one.expectation_type}: {fault}")
                for place in found.result.get("unexpected_index_list") or ():
                    reasons[place] = reasons[place] or f"{name}: {one.expectation_type}"
        return reasons


def _json(suite: gx.ExpectationSuite) -> str:
    return json.dumps([one.configuration.to_json_dict() for one in suite.expectations])


@cache
def _suite(name: str, text: str) -> gx.ExpectationSuite:
    return suite_of(name, json.loads(text))


@cache
def _batches() -> Any:
    """Where batches of pandas come from: in a context of its own, in this process."""
    memory = InMemoryStoreBackendDefaults(init_temp_docs_sites=False)
    context = new_context(store_backend_defaults=memory)
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("rows")
