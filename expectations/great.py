"""Our expectations as Great Expectations knows them, for any suite over batches of three kinds.

- a manifest of data files: a pandas or Spark DataFrame with a row for each Parquet file and its
  path in `file_path`, as Iceberg's metadata table `files` has it;
- rows of a table in a Spark DataFrame; or
- in a pandas DataFrame.

`expectations.batches` measures all of them. That is the metric of every expectation, so that a
suite reads the rows once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, fields
from html import escape
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
from great_expectations.execution_engine.execution_engine import ExecutionEngine
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

from expectations import completeness, conservation, determinism, partitions, weights
from expectations.batches import ReadFiles, measures_of
from expectations.expectation import Expectation, NoRowMayBreak, Row, Severity, Suite, plain, words
from expectations.mappings import as_mappings, as_plain
from expectations.measures.rows import EXAMPLES, Measures
from nats_transform.untrusted import visible

_measured: ContextVar[Measures | None] = ContextVar("measured", default=None)


@contextmanager
def measured(measures: Measures) -> Iterator[None]:
    """Meanwhile, these are the measures of every batch: the gate has read the files of it."""
    token = _measured.set(measures)
    try:
        yield
    finally:
        _measured.reset(token)


class MeasuresMetric(TableMetricProvider):
    """The measures of a batch.

    Attributes:
        table: what the rows are.
        read_files: gives the rows of files; `nats_transform.great_expectations` sets it.
    """

    table: ClassVar[str]
    read_files: ClassVar[ReadFiles]
    metric_name: ClassVar[str]

    value_keys = ("mappings", "seed")

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
        given = {key: value for key, value in metric_value_kwargs.items() if value is not None}
        return measures_of(frame, cls.table, cls.read_files, **given)


class MessagesMetric(MeasuresMetric):
    """The measures of rows of `messages`."""

    metric_name = "nats.messages"
    table = "messages"


class TransformedMetric(MeasuresMetric):
    """The measures of rows of `transformed_messages`."""

    metric_name = "nats.transformed_messages"
    table = "transformed_messages"


class GreatExpectation(BatchExpectation):
    """An expectation of ours as Great Expectations knows it; `_great` makes the subclasses.

    Attributes:
        ours: the class of ours, which judges and has the words.
    """

    ours: ClassVar[type[Expectation]]

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        arguments = {field.name: getattr(self, field.name) for field in fields(self.ours)}
        if "mappings" in arguments:
            arguments["mappings"] = as_mappings(arguments["mappings"])
        judgement = self.ours(**arguments).judge(metrics[self.metric_dependencies[0]])
        result = {
            "observed_value": visible(judgement.observed),
            "details": plain(judgement.details),
            "examples": plain(judgement.examples[:EXAMPLES]),
            "evidence": plain(judgement.evidence),
        }
        return {"success": judgement.success, "result": result}

    @classmethod
    def _prescriptive_template(
        cls, renderer_configuration: RendererConfiguration[Any]
    ) -> RendererConfiguration[Any]:
        """What tools that read the JSON of results show (GX's atomic renderers)."""
        renderer_configuration.template_str = cls.ours.statement
        for name, text in cls.ours.shown_words(renderer_configuration.kwargs).items():
            renderer_configuration.add_param(name, RendererValueType.STRING, text)
        return renderer_configuration

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    def _prescriptive_renderer(
        cls,
        configuration: ExpectationConfiguration | None = None,
        result: ExpectationValidationResult | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> list[RenderedStringTemplateContent]:
        """What Data Docs shows: the statement, and under it the reason."""
        if configuration is None and result is not None:
            configuration = result.expectation_config
        arguments = configuration.kwargs if configuration else {}
        is_warning = configuration is not None and configuration.severity.value == Severity.WARNS
        return sentences(cls.ours, arguments, is_warning=is_warning)

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    def _diagnostic_unexpected_table_renderer(
        cls,
        configuration: ExpectationConfiguration | None = None,
        result: ExpectationValidationResult | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> list[RenderedTableContent | CollapseContent] | None:
        """The examples of what is wrong, and the evidence, as tables in Data Docs."""
        found = result.result if result is not None else {}
        return [*tables(found.get(part) or () for part in ("examples", "evidence"))] or None

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.OBSERVED_VALUE)
    def _diagnostic_observed_value_renderer(
        cls,
        configuration: ExpectationConfiguration | None = None,
        result: ExpectationValidationResult | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> str:
        # Data Docs takes this text, and the cells of tables, for HTML.
        return escape(str(result.result.get("observed_value", ""))) if result is not None else ""


def sentences(
    ours: type[Expectation], arguments: Mapping[str, Any], *, is_warning: bool
) -> list[RenderedStringTemplateContent]:
    """The statement of an expectation and, smaller, its reason, for Data Docs."""
    reason = f"{ours.reason} (A warning: it does not block.)" if is_warning else ours.reason
    return [
        RenderedStringTemplateContent(
            content_block_type="string_template",
            string_template={
                "template": ours.statement,
                "params": {n: escape(w) for n, w in ours.shown_words(arguments).items()},
                "styling": {"default": {"classes": ["badge", "badge-secondary"]}},
            },
        ),
        RenderedStringTemplateContent(
            content_block_type="string_template",
            string_template={
                "template": reason,
                "params": {},
                "tag": "small",
                "styling": {"classes": ["text-muted"]},
            },
            styling={"classes": ["mb-1"]},
        ),
    ]


def _great(ours: type[Expectation], metric: type[MeasuresMetric]) -> Any:
    """The class of Great Expectations for one of ours, with the same name and arguments.

    One about transformed messages has the mappings and the seed besides, which the metric needs.
    """
    is_mapped = metric is TransformedMetric
    given: dict[str, Any] = {"mappings": (Any, []), "seed": (Any, 0)} if is_mapped else {}
    for field in fields(ours):
        if field.name != "severity":
            given[field.name] = (Any, ...) if field.default is MISSING else (Any, field.default)
    made = create_model(ours.__name__, __base__=GreatExpectation, **given)
    made.ours = ours
    made.metric_dependencies = (metric.metric_name,)
    made.success_keys = tuple(given)
    return made


ExpectArchiveToBeAsIngested = _great(conservation.ExpectArchiveToBeAsIngested, MessagesMetric)
ExpectNoUnexplainedGap = _great(completeness.ExpectNoUnexplainedGap, MessagesMetric)
ExpectMessagesToBeConserved = _great(conservation.ExpectMessagesToBeConserved, TransformedMetric)
ExpectArchiveToBeUntouched = _great(conservation.ExpectArchiveToBeUntouched, TransformedMetric)
ExpectTheSameDigest = _great(determinism.ExpectTheSameDigest, TransformedMetric)
ExpectEveryOutcomeToAgree = _great(determinism.ExpectEveryOutcomeToAgree, TransformedMetric)
ExpectScalarReplayToAgree = _great(determinism.ExpectScalarReplayToAgree, TransformedMetric)
ExpectWeightsToHold = _great(weights.ExpectWeightsToHold, TransformedMetric)
ExpectPartitionNumbersInRange = _great(partitions.ExpectPartitionNumbersInRange, TransformedMetric)
ExpectKeysToKeepTheirPartition = _great(
    partitions.ExpectKeysToKeepTheirPartition, TransformedMetric
)
ExpectPartitionsToBeBalanced = _great(partitions.ExpectPartitionsToBeBalanced, TransformedMetric)


def great_suite(suite: Suite) -> gx.ExpectationSuite:
    """A suite of ours for Great Expectations."""
    shared: dict[str, Any] = {}
    if suite.mappings is not None:
        shared = {"mappings": as_plain(suite.mappings.mappings), "seed": suite.seed}
    return gx.ExpectationSuite(
        name=suite.name, expectations=[_of(one, shared) for one in suite.expectations]
    )


def _of(ours: Expectation, shared: dict[str, Any]) -> Any:
    if not isinstance(ours, NoRowMayBreak):
        return globals()[type(ours).__name__](**vars(ours) | shared)
    return ExpectColumnValuesToBeInSet(
        column=ours.rule,
        value_set=[0],
        severity=FailureSeverity(ours.severity.value),
        description=escape(str(ours)),
        meta={"name": type(ours).__name__},
    )


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


def tables(parts: Iterable[Sequence[Row]]) -> list[RenderedTableContent]:
    """Rows for Data Docs, without columns that say nothing."""
    found = []
    for rows in filter(None, parts):
        names = list(dict.fromkeys(name for row in rows for name in row if row[name] is not None))
        cells = [[words(row.get(name)) for name in names] for row in rows]
        found.append(
            RenderedTableContent(
                content_block_type="table",
                header_row=[escape(name) for name in names],
                table=[[escape(cell) for cell in row] for row in cells],
                styling={"body": {"classes": ["table-bordered", "table-sm", "mt-3"]}},
            )
        )
    return found
