"""Our expectations in the words of Great Expectations, for batches of the kinds of `batches`.

What a column of the frame of aggregates can say is one of its own expectations. Those that need the
mappings are classes of ours; the measures of a batch are their metric, so that a suite reads the
rows once.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from html import escape
from inspect import getdoc, signature
from pathlib import Path
from typing import Any, ClassVar

with warnings.catch_warnings():
    # Great Expectations (1.24) imports `sre_constants`, which Python has deprecated.
    warnings.filterwarnings("ignore", "module 'sre_constants'", DeprecationWarning)
    import great_expectations as gx

from great_expectations.compatibility.pydantic import create_model
from great_expectations.core import ExpectationValidationResult
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.data_context import EphemeralDataContext
from great_expectations.data_context.types import base
from great_expectations.execution_engine import PandasExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.core import ExpectColumnValuesToBeInSet
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render import LegacyDiagnosticRendererType
from great_expectations.render.renderer.renderer import renderer

from expectations.batches import ReadFiles, count_of, mappings_of, measures_of
from expectations.expectation import Expectation, Suite, plain
from expectations.measures import EXAMPLES
from expectations.outcomes import every_outcome
from expectations.partitions import keys_stay, numbers_in_range, partitions_balanced
from expectations.transformed import transformed_messages_suite
from expectations.weights import weights_hold
from nats_transform.config import canonical
from nats_transform.untrusted import visible

MEASURED: ContextVar[Any] = ContextVar("measured", default=None)
"""The measures of every batch, if the gate has read the files already."""


def _measures(
    cls: Any,
    execution_engine: Any,
    metric_domain_kwargs: dict[str, Any],
    metric_value_kwargs: dict[str, Any],
    **_: Any,
) -> object:
    if (known := MEASURED.get()) is not None:
        return known
    domain = execution_engine.get_compute_domain(metric_domain_kwargs, MetricDomainTypes.TABLE)
    mappings, seed = mappings_of(metric_value_kwargs["mappings"])
    messages = count_of(domain[0])
    suite = transformed_messages_suite(mappings, archive=None, messages=messages, seed=seed)
    return measures_of(domain[0], suite, cls.read_files)


class MeasuresMetric(TableMetricProvider):
    """The measures of a batch of `transformed_messages`.

    Attributes:
        read_files: gives the rows of files; `nats_transform.great_expectations` sets it.
    """

    read_files: ClassVar[ReadFiles]

    metric_name = "nats.transformed_messages"
    value_keys = ("mappings",)
    _pandas = metric_value(engine=PandasExecutionEngine)(_measures)
    _spark = metric_value(engine=SparkDFExecutionEngine)(_measures)


class GreatExpectation(BatchExpectation):
    """An expectation of ours as Great Expectations knows it; `_great` makes the subclasses.

    Attributes:
        mappings: what wrote the rows, in canonical form.
        make: makes it of the mappings, the seed and the other arguments.
    """

    mappings: Any
    make: ClassVar[Callable[..., Expectation]]
    metric_dependencies = (MeasuresMetric.metric_name,)

    def _validate(self, metrics: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        mappings, seed = mappings_of(self.mappings)
        known = {**vars(self), "mappings": mappings, "seed": seed}
        ours = self.make(**{name: known[name] for name in signature(self.make).parameters})
        judgement = ours.judge(metrics[MeasuresMetric.metric_name])
        result = {
            "observed_value": visible(judgement.observed),
            "examples": plain(judgement.examples[:EXAMPLES]),
            "evidence": plain(judgement.evidence),
        }
        return {"success": judgement.success, "result": result}

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.OBSERVED_VALUE)
    def _diagnostic_observed_value_renderer(cls, *_: Any, **given: Any) -> str:
        # Data Docs takes it for HTML.
        return escape(str(given["result"].result.get("observed_value", "")))


_OWN: dict[str, Any] = {}


def _great(name: str, make: Callable[..., Expectation]) -> Any:
    """The class of Great Expectations for an expectation that needs the mappings."""
    arguments: dict[str, Any] = {
        parameter.name: (Any, parameter.default)
        for parameter in signature(make).parameters.values()
        if parameter.name not in ("mappings", "seed")
    }
    description = (str | None, (getdoc(make) or "").partition("\n")[0])
    great = create_model(name, __base__=GreatExpectation, description=description, **arguments)
    great.make, great.success_keys = staticmethod(make), ("mappings", *arguments)
    _OWN[name] = great
    return great


ExpectEveryOutcomeToAgree = _great("ExpectEveryOutcomeToAgree", every_outcome)
ExpectWeightsToHold = _great("ExpectWeightsToHold", weights_hold)
ExpectPartitionNumbersInRange = _great("ExpectPartitionNumbersInRange", numbers_in_range)
ExpectKeysToKeepTheirPartition = _great("ExpectKeysToKeepTheirPartition", keys_stay)
ExpectPartitionsToBeBalanced = _great("ExpectPartitionsToBeBalanced", partitions_balanced)


def great_suite(suite: Suite) -> gx.ExpectationSuite:
    """A suite of ours for Great Expectations: for a batch, and for the frame of its aggregates."""
    mappings = suite.mappings and json.loads(canonical(suite.mappings, suite.seed))
    expectations = []
    for ours in suite.expectations:
        make: Any = partial(ExpectColumnValuesToBeInSet, column=ours.column or "", value_set=[0])
        if ours.name in _OWN:
            make = partial(_OWN[ours.name], mappings=mappings, **ours.arguments)
        great = make(
            severity="critical" if ours.blocks else "warning",
            description=escape(visible(ours.statement)),
        )
        expectations.append(great)
    return gx.ExpectationSuite(name=suite.name, expectations=expectations)


def new_context(results: Path | None = None) -> EphemeralDataContext:
    """A context that says nothing to anybody, and writes nothing but results into a folder."""
    stores = base.InMemoryStoreBackendDefaults(init_temp_docs_sites=False)
    if results is not None:
        folder = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(results)}
        stores.stores[stores.validation_results_store_name]["store_backend"] = folder
    config = base.DataContextConfig(
        store_backend_defaults=stores,
        analytics_enabled=False,
        progress_bars=base.ProgressBarsConfig(globally=False),
    )
    return gx.get_context(mode="ephemeral", project_config=config)


def suite_of(name: str, entries: Iterable[Mapping[str, Any]]) -> gx.ExpectationSuite:
    """A suite of expectations as its JSON has them.

    Raises:
        GreatExpectationsError: one is not known. `ExpectationSuite` would only leave it out.
    """
    names = ("type", "kwargs", "meta", "description", "severity")
    known = [{name: e[name] for name in names if e.get(name) is not None} for e in entries]
    configs = [ExpectationConfiguration(**{"kwargs": {}} | entry) for entry in known]
    return gx.ExpectationSuite(name, expectations=[c.to_domain_obj() for c in configs])


def fault_of(result: ExpectationValidationResult) -> str | None:
    """Why an expectation could not be checked; None if it was."""
    info = result.exception_info or {}
    parts = [info, *(part for part in info.values() if isinstance(part, dict))]
    texts = [str(part["exception_message"]) for part in parts if part.get("exception_message")]
    return visible(texts[0].strip().partition("\n")[0]) if texts else None
