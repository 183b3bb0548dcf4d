"""Our expectations as Great Expectations knows them: its suites, results and pages in Data Docs.

The batch that Great Expectations gets is the measures of a table, which tasks on its files have
added up. The metric of every expectation returns them. So Great Expectations reads no row.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import MISSING, fields
from functools import cache
from html import escape
from typing import Any, ClassVar

with warnings.catch_warnings():
    # Great Expectations (1.24) imports `sre_constants`, which Python has deprecated.
    warnings.filterwarnings("ignore", "module 'sre_constants'", DeprecationWarning)
    import great_expectations as gx

import pandas as pd
from great_expectations.compatibility.pydantic import create_model
from great_expectations.core import ExpectationValidationResult
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
from great_expectations.data_context.types.base import DataContextConfig
from great_expectations.execution_engine.execution_engine import ExecutionEngine
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
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

from expectations.expectation import Expectation, Row, Severity, Suite, plain, words
from expectations.measures.rows import EXAMPLES
from nats_transform.untrusted import visible

MEASURES = "nats.measures"


def batch_of(measures: object) -> pd.DataFrame:
    """The measures as a batch for Great Expectations."""
    return pd.DataFrame({MEASURES: [measures]})


class MeasuresMetric(TableMetricProvider):
    """The measures that `batch_of` put into a batch."""

    metric_name = MEASURES

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(cls, execution_engine: PandasExecutionEngine, **kwargs: Any) -> object:  # noqa: N805 - GX makes it a class method
        domain = kwargs["metric_domain_kwargs"]
        batch, _, _ = execution_engine.get_compute_domain(domain, MetricDomainTypes.TABLE)
        return batch[MEASURES].iloc[0]


class GreatExpectation(BatchExpectation):
    """An expectation of ours as Great Expectations knows it; `great` makes the subclasses.

    Attributes:
        ours: the class of ours, which judges and has the words.
    """

    ours: ClassVar[type[Expectation]]

    metric_dependencies = (MEASURES,)

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        arguments = {field.name: getattr(self, field.name) for field in fields(self.ours)}
        judgement = self.ours(**arguments).judge(metrics[MEASURES])
        result = {
            "observed_value": visible(judgement.observed),
            "details": plain(judgement.details),
            "examples": plain(judgement.examples[:EXAMPLES]),
            # As lists, because the columns of a table have an order and keys in JSON do not.
            "tables": [
                _columns_and_rows(rows)
                for rows in (judgement.examples[:EXAMPLES], judgement.evidence)
                if rows
            ],
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
        reason = (
            f"{cls.ours.reason} (A warning: it does not block.)" if is_warning else cls.ours.reason
        )
        styling = {"default": {"classes": ["badge", "badge-secondary"]}}
        return [
            RenderedStringTemplateContent(
                content_block_type="string_template",
                string_template={
                    "template": cls.ours.statement,
                    "params": {n: escape(w) for n, w in cls.ours.shown_words(arguments).items()},
                    "styling": styling,
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

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    def _diagnostic_unexpected_table_renderer(
        cls,
        configuration: ExpectationConfiguration | None = None,
        result: ExpectationValidationResult | None = None,
        runtime_configuration: dict[str, Any] | None = None,
    ) -> list[RenderedTableContent | CollapseContent] | None:
        """The examples of what is wrong, and the evidence, as tables in Data Docs."""
        tables = result.result.get("tables") if result is not None else None
        return [_table(columns, rows) for columns, rows in tables or ()] or None

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


@cache
def great(ours: type[Expectation]) -> type[GreatExpectation]:
    """The class of Great Expectations for one of ours, with the same name and arguments."""
    arguments: dict[str, Any] = {
        field.name: (Any, ... if field.default is MISSING else field.default)
        for field in fields(ours)
        if field.name != "severity"
    }
    made = create_model(ours.__name__, __base__=GreatExpectation, **arguments)
    made.ours = ours
    return made


def new_context(config: DataContextConfig) -> EphemeralDataContext:
    """A context of Great Expectations that writes no configuration."""
    return gx.get_context(mode="ephemeral", project_config=config)


def great_suite(suite: Suite) -> gx.ExpectationSuite:
    """A suite of ours for Great Expectations."""
    expectations = [great(type(one))(**vars(one)) for one in suite.expectations]
    return gx.ExpectationSuite(name=suite.name, expectations=list(expectations))


def _columns_and_rows(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    # Without columns that say nothing.
    names = list(dict.fromkeys(name for row in rows for name in row if row[name] is not None))
    return names, [[words(row.get(name)) for name in names] for row in rows]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderedTableContent:
    return RenderedTableContent(
        content_block_type="table",
        header_row=[escape(name) for name in columns],
        table=[[escape(cell) for cell in row] for row in rows],
        styling={"body": {"classes": ["table-bordered", "table-sm", "mt-3"]}},
    )
