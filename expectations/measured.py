"""The base class of our expectations, which judge measures of a table and have a page in Data Docs.

The batch that Great Expectations gets is the measures of a table, which tasks on its files have
added up. The metric of every expectation returns them. So Great Expectations reads no row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from string import Template
from typing import Any, ClassVar

import pandas as pd
from great_expectations.core import ExpectationValidationResult
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.execution_engine import ExecutionEngine
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
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

from expectations.measures.rows import EXAMPLES, Flag
from nats_transform.untrusted import visible

MEASURES = "nats.measures"

BLOCKS = FailureSeverity.CRITICAL
WARNS = FailureSeverity.WARNING

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of an expectation on the measures.

    Attributes:
        success: whether the expectation holds.
        observed: what was seen, in a sentence.
        examples: rows that break the expectation, as plain values.
        evidence: rows that are shown whether the expectation holds or not.
        details: the numbers that the judgement is based on, as plain values.
    """

    success: bool
    observed: str
    examples: Sequence[Row] = ()
    evidence: Sequence[Row] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


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


class MeasuredExpectation(BatchExpectation, ABC):
    """An expectation about the measures of a table.

    A subclass says what it expects (`statement`) and why (`reason`), and it has the judgement
    (`judge`). Its fields are its arguments. `shown` lists those that its statement names.
    """

    statement: ClassVar[str]
    """A sentence in which the names of `shown` stand after a `$`."""

    reason: ClassVar[str]
    """What goes wrong if the expectation does not hold."""

    metric_dependencies = (MEASURES,)

    shown: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def judge(self, measures: Any) -> Judgement:
        """The judgement on the measures of the table."""

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: ExecutionEngine[Any] | None = None,
    ) -> dict[str, Any]:
        judgement = self.judge(metrics[MEASURES])
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
    def sentence(cls, arguments: Mapping[str, Any]) -> str:
        """The statement with its arguments filled in."""
        return Template(cls.statement).substitute(cls._shown_words(arguments))

    @classmethod
    def _shown_words(cls, arguments: Mapping[str, Any]) -> dict[str, str]:
        # A configuration leaves out the arguments that have their default.
        return {
            name: _words(arguments.get(name, cls.__fields__[name].default)) for name in cls.shown
        }

    @classmethod
    def _prescriptive_template(
        cls, renderer_configuration: RendererConfiguration[Any]
    ) -> RendererConfiguration[Any]:
        """What tools that read the JSON of results show (GX's atomic renderers)."""
        renderer_configuration.template_str = cls.statement
        for name, words in cls._shown_words(renderer_configuration.kwargs).items():
            renderer_configuration.add_param(name, RendererValueType.STRING, words)
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
        is_warning = configuration is not None and configuration.severity == WARNS
        reason = f"{cls.reason} (A warning: it does not block.)" if is_warning else cls.reason
        styling = {"default": {"classes": ["badge", "badge-secondary"]}}
        return [
            RenderedStringTemplateContent(
                content_block_type="string_template",
                string_template={
                    "template": cls.statement,
                    "params": {n: escape(w) for n, w in cls._shown_words(arguments).items()},
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


def _columns_and_rows(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    # Without columns that say nothing.
    names = list(dict.fromkeys(name for row in rows for name in row if row[name] is not None))
    return names, [[_words(row.get(name)) for name in names] for row in rows]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderedTableContent:
    return RenderedTableContent(
        content_block_type="table",
        header_row=[escape(name) for name in columns],
        table=[[escape(cell) for cell in row] for row in rows],
        styling={"body": {"classes": ["table-bordered", "table-sm", "mt-3"]}},
    )


def _words(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4f}".rstrip("0").rstrip(".")
    return visible(str(plain(value)))


def plain(value: Any) -> Any:
    """A value as JSON has them; text keeps only what UTF-8 can hold, the rest escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return [plain(item) for item in value]
    return str(value)


def count(number: int, noun: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def judge_flag(flag: Flag, broken: str, fine: str) -> Judgement:
    """The judgement on a rule about single rows, with the rows that break it."""
    if not flag.rows:
        return Judgement(True, fine)
    return Judgement(
        False, f"{count(flag.rows, 'message')} {broken}", flag.examples, details={"rows": flag.rows}
    )
