"""What we expect of a table: a sentence, why it matters, and a judgement on the table's measures.

Nothing here needs Great Expectations; `expectations.great` wraps these classes for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from string import Template
from typing import Any, ClassVar

from expectations.measures.rows import EXAMPLES, Measures
from nats_transform import AccountMappings, NatsTransformError
from nats_transform.untrusted import visible

Row = Mapping[str, Any]


class ChecksBroken(NatsTransformError):
    """The checks failed to run, so it is not known whether they hold."""


class Severity(StrEnum):
    """What follows if an expectation does not hold, in the words of Great Expectations."""

    BLOCKS = "critical"
    WARNS = "warning"


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


@dataclass(frozen=True, kw_only=True)
class Expectation(ABC):
    """An expectation about the measures of a table; the fields of a subclass are its arguments.

    Attributes:
        severity: what follows if it does not hold.
        statement: what it expects: a sentence in which the names of `shown` stand after a `$`.
        reason: what goes wrong if it does not hold.
        shown: the arguments that the statement names.
    """

    severity: Severity = Severity.BLOCKS

    statement: ClassVar[str]
    reason: ClassVar[str]
    shown: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def judge(self, measures: Any) -> Judgement:
        """The judgement on the measures of the table."""

    @classmethod
    def topic(cls) -> str:
        """What it is about: the name of the module that defines it."""
        return cls.__module__.rpartition(".")[2]

    @classmethod
    def shown_words(cls, arguments: Mapping[str, Any]) -> dict[str, str]:
        """The arguments that the statement names, as people read them."""
        defaults = {field.name: field.default for field in fields(cls)}
        return {name: words(arguments.get(name, defaults[name])) for name in cls.shown}

    def __str__(self) -> str:
        """The statement with its arguments filled in."""
        return Template(self.statement).substitute(self.shown_words(vars(self)))


@dataclass(frozen=True, slots=True)
class Suite:
    """What we expect of a table.

    Attributes:
        name: the name of the table.
        expectations: in the order in which they are shown.
        mappings, seed: what wrote the rows; None for rows that no mapping wrote.
    """

    name: str
    expectations: tuple[Expectation, ...]
    mappings: AccountMappings | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """The result of one expectation.

    Attributes:
        name: the name of its class.
        topic: what it checks: the name of the module that defines it.
        expects: what it expects, in a sentence.
        success: whether it holds.
        blocks: whether the table must not be published if it does not hold.
        severity: critical or warning.
        observed: what was seen, in a sentence.
        examples: some of the rows that break it, as plain values.
        details: the numbers that the judgement is based on, as plain values.
    """

    name: str
    topic: str
    expects: str
    success: bool
    blocks: bool
    severity: str
    observed: str
    examples: tuple[Row, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """The result of a suite.

    Attributes:
        suite: the suite.
        measures: what it was judged on.
        results: one for each expectation, in the order of the suite.
        files: the manifest: `file_path`, `record_count`, `stream` and `day` of the data files.
    """

    suite: Suite
    measures: Any
    results: tuple[ExpectationResult, ...]
    files: tuple[Row, ...] = ()

    @property
    def failures(self) -> tuple[ExpectationResult, ...]:
        """The expectations that do not hold."""
        return tuple(result for result in self.results if not result.success)

    @property
    def success(self) -> bool:
        """Whether all expectations hold."""
        return not self.failures

    @property
    def blocks(self) -> bool:
        """Whether the rows must not be published."""
        return any(result.blocks for result in self.failures)

    def __str__(self) -> str:
        """One line: which expectations fail."""
        if self.success:
            return f"all {len(self.results)} expectations hold"
        return "; ".join(f"{result.name}: {result.observed}" for result in self.failures)


def report_on(measures: Any, suite: Suite, files: Iterable[Row] = ()) -> Report:
    """The report of a suite on the measures of its table.

    Args:
        measures: what `expectations.measures` found in the rows of whole days; if a part of a day
            is left out, gaps are found.
        suite: one that `expectations.suites` made.
        files: the manifest of the data files that have these rows.

    Raises:
        ChecksBroken: an expectation could not be checked.
    """
    results = tuple(_result(expectation, measures) for expectation in suite.expectations)
    return Report(suite, measures, results, tuple(files))


def _result(expectation: Expectation, measures: Any) -> ExpectationResult:
    name = type(expectation).__name__
    try:
        judgement = expectation.judge(measures)
    except Exception as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ChecksBroken(f"{name} could not be checked: {visible(why)}") from error
    return ExpectationResult(
        name=name,
        topic=expectation.topic(),
        expects=str(expectation),
        success=judgement.success,
        blocks=expectation.severity is Severity.BLOCKS,
        severity=expectation.severity.value,
        observed=visible(judgement.observed),
        examples=tuple(plain(judgement.examples[:EXAMPLES])),
        details=plain(judgement.details),
    )


def words(value: Any) -> str:
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


@dataclass(frozen=True)
class NoRowMayBreak(Expectation):
    """A rule about single rows: a column of the frame of aggregates is 0 on every day.

    Great Expectations has such an expectation, so that there this is `ExpectColumnValuesToBeInSet`.

    Attributes:
        rule: the column, see `expectations.measures.rows.Measures`.
        broken, fine: what is observed, of rows that break it and if none does.
    """

    rule: ClassVar[str]
    broken: ClassVar[str]
    fine: ClassVar[str]

    def judge(self, measures: Measures) -> Judgement:
        days = [day for day in measures.counts() if day[self.rule]]
        if not days:
            return Judgement(True, self.fine)
        rows = sum(day[self.rule] for day in days)
        examples = measures.flag(self.rule).examples or [
            {"stream": day["stream"], "day": day["day"], "messages": day[self.rule]} for day in days
        ]
        observed = f"{count(rows, 'message')} {self.broken}"
        return Judgement(False, observed, examples, details={"rows": rows})
