"""What we expect of a table: a sentence, why it matters, and a judgement on the table's measures.

Most expectations are of two kinds: `no_row` breaks a rule, or a digest is known (`digest_is`).

Nothing here needs Great Expectations; `expectations.great` says it in its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from expectations.measures import EXAMPLES, Flag, Measures, StreamDay
from nats_transform import AccountMappings, NatsTransformError
from nats_transform.untrusted import visible
from nats_transform.words import plural

Row = Mapping[str, Any]


class ChecksBroken(NatsTransformError):
    """The checks failed to run, so it is not known whether they hold."""


@dataclass(frozen=True)
class Judgement:
    """The judgement of an expectation on the measures.

    Attributes:
        success: whether the expectation holds.
        observed: what was seen, in a sentence.
        examples: rows that break the expectation, as plain values.
        evidence: rows that are shown whether the expectation holds or not.
        details: what others show in their own way: the audits of mappings, or the messages of each
            partition by end.
        broken: how much is wrong on each day, where only some days are; else all days are wrong.
    """

    success: bool
    observed: str
    examples: Sequence[Row] = ()
    evidence: Sequence[Row] = ()
    details: Any = None
    broken: Mapping[StreamDay, int] | None = None


@dataclass(frozen=True)
class Expectation:
    """An expectation about the measures of a table.

    Attributes:
        name: its name, in the style of Great Expectations.
        topic: what it is about.
        statement: what it expects, in a sentence.
        reason: what goes wrong if it does not hold.
        judge: judges the measures of the table.
        column: the column of the frame of aggregates that is not 0 if it does not hold. Without
            one, Great Expectations has a class of ours for it.
        arguments: the arguments of this class, besides the mappings.
        blocks: whether the table must not be published if it does not hold.
    """

    name: str
    topic: str
    statement: str
    reason: str
    judge: Callable[[Any], Judgement]
    column: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    blocks: bool = True


def no_row(
    name: str,
    topic: str,
    column: str,
    statement: str,
    reason: str,
    what: str,
    *,
    noun: str = "message",
    find: Callable[[Any], Mapping[StreamDay, Flag]] | None = None,
    explain: Callable[[Sequence[Row]], Sequence[Row]] = tuple,
    blocks: bool = True,
) -> Expectation:
    """No row breaks a rule.

    Args:
        name, topic, statement, reason, blocks: those of the expectation.
        column: the name of the rule, and of its column in the frame of aggregates.
        what, noun: what is said of rows that break it, and how they are called.
        find: finds them in the measures; by default they are flagged.
        explain: what is shown of them.
    """

    def judge(measures: Measures) -> Judgement:
        days = find(measures) if find else measures.flagged(column)
        broken = sum(days.values(), Flag())
        observed = f"{plural(broken.rows, noun) if days else f'no {noun}'} {what}"
        by_day = {day: flag.rows for day, flag in days.items()}
        return Judgement(not days, observed, explain(broken.examples), broken=by_day)

    return Expectation(name, topic, statement, reason, judge, column, blocks=blocks)


def digest_is(
    which: str, digest: str, name: str, topic: str, column: str, statement: str, reason: str
) -> Expectation:
    """A digest of the measures is known: `archive`, or `digest` for all columns."""

    def judge(measures: Measures) -> Judgement:
        measured = getattr(measures, which)
        observed = f"{plural(measured.rows, 'message')} with digest {measured}"
        return Judgement(str(measured) == digest, observed)

    return Expectation(name, topic, statement, reason, judge, column)


@dataclass(frozen=True)
class Suite:
    """What we expect of a table.

    Attributes:
        name: the name of the table.
        measure: measures rows for all of them in one pass. It can be sent to a task.
        expectations: in the order in which they are shown.
        mappings, seed: what wrote the rows; None for rows that no mapping wrote.
    """

    name: str
    measure: Callable[[Iterable[pa.RecordBatch]], Any]
    expectations: tuple[Expectation, ...]
    mappings: AccountMappings | None = None
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class ExpectationResult(Judgement):
    """A judgement, and those attributes of its expectation that people see."""

    name: str
    topic: str
    expects: str
    reason: str = ""
    column: str | None = None
    blocks: bool = True


@dataclass(frozen=True)
class Report:
    """The result of a suite.

    Attributes:
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
        suite: what the measures are for.
        files: the manifest of the data files that have these rows.

    Raises:
        ChecksBroken: an expectation could not be checked.
    """
    results = []
    for expectation in suite.expectations:
        try:
            judgement = expectation.judge(measures)
        except Exception as error:
            why = visible((str(error).strip() or type(error).__name__).splitlines()[0])
            raise ChecksBroken(
                "expectation-unchecked", expectation=expectation.name, reason=why
            ) from error
        result = ExpectationResult(
            judgement.success,
            visible(judgement.observed),
            plain(judgement.examples[:EXAMPLES]),
            plain(judgement.evidence),
            judgement.details,
            judgement.broken,
            name=expectation.name,
            topic=expectation.topic,
            expects=visible(expectation.statement),
            reason=expectation.reason,
            column=expectation.column,
            blocks=expectation.blocks,
        )
        results.append(result)
    return Report(suite, measures, tuple(results), tuple(files))


def plain(value: Any) -> Any:
    """A value as JSON has them; text keeps only what UTF-8 can hold, the rest escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, int | float | None) else str(value)
