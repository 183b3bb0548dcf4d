"""Our expectations in the words of Great Expectations, for batches of the kinds of `batches`.

What a column of the frame of aggregates can say is one of its own expectations. Those that need the
mappings are classes of ours; the measures of a batch are their metric, so that a suite reads the
rows once.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from inspect import Parameter, signature
from typing import Any, ClassVar

with warnings.catch_warnings():
    # Great Expectations (1.24) imports `sre_constants`, which Python has deprecated.
    warnings.filterwarnings("ignore", "module 'sre_constants'", DeprecationWarning)
    import great_expectations as gx

from great_expectations.compatibility.pydantic import create_model
from great_expectations.core import ExpectationValidationResult
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
from great_expectations.data_context.types.base import DataContextConfig, ProgressBarsConfig
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.core.expect_column_values_to_be_in_set import (
    ExpectColumnValuesToBeInSet,
)
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.components import (
    CollapseContent,
    LegacyDiagnosticRendererType,
    LegacyRendererType,
    RenderedStringTemplateContent,
    RenderedTableContent,
)
from great_expectations.render.renderer.renderer import renderer
from great_expectations.render.renderer_configuration import (
    RendererConfiguration,
    RendererValueType,
)

from expectations.batches import ReadFiles, count_of, measures_of, wrote
from expectations.determinism import every_outcome, scalar_replay
from expectations.expectation import Expectation, Row, Suite, plain
from expectations.measures.rows import EXAMPLES
from expectations.partitions import keys_stay, numbers_in_range, partitions_balanced
from expectations.suites import transformed_messages_suite
from expectations.weights import weights_hold
from nats_transform.config import canonical
from nats_transform.untrusted import visible

_measured: ContextVar[Any] = ContextVar("measured", default=None)


@contextmanager
def measured(measures: Any) -> Iterator[None]:
    """Meanwhile, these are the measures of every batch: the gate has read the files of it."""
    token = _measured.set(measures)
    try:
        yield
    finally:
        _measured.reset(token)


class MeasuresMetric(TableMetricProvider):
    """The measures of a batch of `transformed_messages`.

    Attributes:
        read_files: gives the rows of files; `nats_transform.great_expectations` sets it.
    """

    read_files: ClassVar[ReadFiles]

    metric_name = "nats.transformed_messages"
    value_keys = ("mappings",)

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(cls, execution_engine: PandasExecutionEngine, **kwargs: Any) -> object:  # noqa: N805 - GX makes it a class method
        return cls._of(execution_engine, **kwargs)

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(cls, execution_engine: SparkDFExecutionEngine, **kwargs: Any) -> object:  # noqa: N805 - GX makes it a class method
        return cls._of(execution_engine, **kwargs)

    @classmethod
    def _of(
        cls,
        engine: Any,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        **_: Any,
    ) -> object:
        if (known := _measured.get()) is not None:
            return known
        frame, _, _ = engine.get_compute_domain(metric_domain_kwargs, MetricDomainTypes.TABLE)
        mappings, seed = wrote(metric_value_kwargs["mappings"])
        messages = count_of(frame)
        suite = transformed_messages_suite(mappings, archive=None, messages=messages, seed=seed)
        return measures_of(frame, suite, cls.read_files)


class GreatExpectation(BatchExpectation):
    """An expectation of ours as Great Expectations knows it; `_great` makes the subclasses.

    Attributes:
        make: makes it of some of its arguments, the mappings and the seed.
    """

    make: ClassVar[Callable[..., Expectation]]
    metric_dependencies = (MeasuresMetric.metric_name,)

    @classmethod
    def ours(cls, arguments: Mapping[str, Any]) -> Expectation:
        """The expectation with the arguments that a suite has."""
        mappings, seed = wrote(arguments["mappings"])
        known = {**arguments, "mappings": mappings, "seed": seed}
        names = signature(cls.make).parameters.keys() & known
        return cls.make(**{name: known[name] for name in names})

    def _validate(self, metrics: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        arguments = {name: getattr(self, name) for name in self.success_keys}
        judgement = self.ours(arguments).judge(metrics[MeasuresMetric.metric_name])
        result = {
            "observed_value": visible(judgement.observed),
            "examples": plain(judgement.examples[:EXAMPLES]),
            "evidence": plain(judgement.evidence),
            "details": plain(judgement.details),
        }
        return {"success": judgement.success, "result": result}

    @classmethod
    def _prescriptive_template(
        cls, renderer_configuration: RendererConfiguration[Any]
    ) -> RendererConfiguration[Any]:
        statement = visible(cls.ours(renderer_configuration.kwargs).statement)
        renderer_configuration.template_str = "$statement"
        renderer_configuration.add_param("statement", RendererValueType.STRING, statement)
        return renderer_configuration

    # Data Docs takes texts, and the cells of tables, for HTML.

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    def _prescriptive_renderer(cls, *_: Any, **given: Any) -> list[RenderedStringTemplateContent]:
        configuration = given.get("configuration") or given["result"].expectation_config
        ours = cls.ours(configuration.kwargs)
        return [
            RenderedStringTemplateContent(
                content_block_type="string_template",
                string_template={"template": "$text", "params": {"text": escape(visible(text))}},
            )
            for text in (ours.statement, ours.reason)
        ]

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    def _diagnostic_unexpected_table_renderer(
        cls, *_: Any, **given: Any
    ) -> list[RenderedTableContent | CollapseContent] | None:
        found = given["result"].result
        parts = (found.get(name) or () for name in ("examples", "evidence"))
        return [
            RenderedTableContent(
                content_block_type="table",
                header_row=[escape(name) for name in names],
                table=[[escape(cell) for cell in row] for row in cells],
                styling={"body": {"classes": ["table-bordered", "table-sm", "mt-3"]}},
            )
            for names, cells in map(table, parts)
            if cells
        ] or None

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.OBSERVED_VALUE)
    def _diagnostic_observed_value_renderer(cls, *_: Any, **given: Any) -> str:
        return escape(str(given["result"].result.get("observed_value", "")))


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Rows as people read them: the names of columns that say something, and the cells."""
    names = list(dict.fromkeys(name for row in rows for name in row if row[name] is not None))
    return names, [[_words(row.get(name)) for name in names] for row in rows]


def _words(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4f}".rstrip("0").rstrip(".")
    return visible(str(plain(value)))


_OWN: dict[str, Any] = {}


def _great(name: str, make: Callable[..., Expectation]) -> Any:
    """The class of Great Expectations for an expectation that needs the mappings."""
    fields: dict[str, Any] = {"mappings": (Any, ...)}
    for parameter in signature(make).parameters.values():
        if parameter.name not in ("mappings", "seed"):
            is_needed = parameter.default is Parameter.empty
            fields[parameter.name] = (Any, ... if is_needed else parameter.default)
    _OWN[name] = great = create_model(name, __base__=GreatExpectation, **fields)
    great.make = staticmethod(make)
    great.success_keys = tuple(fields)
    return great


ExpectEveryOutcomeToAgree = _great("ExpectEveryOutcomeToAgree", every_outcome)
ExpectScalarReplayToAgree = _great("ExpectScalarReplayToAgree", scalar_replay)
ExpectWeightsToHold = _great("ExpectWeightsToHold", weights_hold)
ExpectPartitionNumbersInRange = _great("ExpectPartitionNumbersInRange", numbers_in_range)
ExpectKeysToKeepTheirPartition = _great("ExpectKeysToKeepTheirPartition", keys_stay)
ExpectPartitionsToBeBalanced = _great("ExpectPartitionsToBeBalanced", partitions_balanced)


def great_suite(suite: Suite) -> gx.ExpectationSuite:
    """A suite of ours for Great Expectations: for a batch, and for the frame of its aggregates."""
    mappings: dict[str, Any] = {}
    if suite.mappings is not None:
        mappings["mappings"] = json.loads(canonical(suite.mappings, suite.seed))
    expectations: list[Any] = [
        _OWN[ours.name](**mappings, **ours.arguments, severity=FailureSeverity(ours.severity.value))
        if ours.name in _OWN
        else ExpectColumnValuesToBeInSet(
            column=ours.column or "",
            value_set=[0],
            severity=FailureSeverity(ours.severity.value),
            description=escape(visible(ours.statement)),
            meta={"name": ours.name},
        )
        for ours in suite.expectations
    ]
    return gx.ExpectationSuite(name=suite.name, expectations=expectations)


def new_context(**config: Any) -> EphemeralDataContext:
    """A context of Great Expectations that writes no configuration, and says nothing to anybody."""
    silent = DataContextConfig(
        analytics_enabled=False, progress_bars=ProgressBarsConfig(globally=False), **config
    )
    return gx.get_context(mode="ephemeral", project_config=silent)


def suite_of(name: str, entries: Iterable[Mapping[str, Any]]) -> gx.ExpectationSuite:
    """A suite of expectations as its JSON has them.

    Raises:
        GreatExpectationsError: one is not known. `ExpectationSuite` would only leave it out.
    """
    expectations = [
        ExpectationConfiguration(
            type=entry["type"],
            kwargs=dict(entry.get("kwargs") or {}),
            meta=entry.get("meta"),
            description=entry.get("description"),
            severity=FailureSeverity(entry.get("severity", "critical")),
        ).to_domain_obj()
        for entry in entries
    ]
    return gx.ExpectationSuite(name=name, expectations=expectations)


def fault_of(result: ExpectationValidationResult) -> str | None:
    """Why an expectation could not be checked; None if it was."""
    found = result.exception_info or {}
    parts = [found, *(part for part in found.values() if isinstance(part, dict))]
    texts = [str(part["exception_message"]) for part in parts if part.get("exception_message")]
    return visible(texts[0].strip().partition("\n")[0]) if texts else None
