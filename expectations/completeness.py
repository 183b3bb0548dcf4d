"""Whether sequences are missing without an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from expectations.expectation import Expectation, Judgement, count
from expectations.measures.messages import MessagesMeasures, Range


@dataclass(frozen=True)
class ExpectNoUnexplainedGap(Expectation):
    """Between a day's first and last sequence, and between days in a row, none is missing.

    Args:
        explained: inclusive ranges of sequences that may be missing: the stream had lost them
            itself (deleted, purged, expired) or the ingest left them out on purpose.
    """

    explained: tuple[Range, ...] = ()

    statement = "The only gaps in each day's sequences are those that the ingest explains."
    reason = "A gap means that a message was never archived or a file is missing."

    def judge(self, measures: MessagesMeasures) -> Judgement:
        gaps = [
            (stream, day, gap)
            for (stream, day), found in measures.sequences.items()
            for gap in found.gaps
        ]
        gaps += _between_days(measures)
        missing = sum(last - first + 1 for _, _, (first, last) in gaps)
        unexplained = [
            (stream, day, rest)
            for stream, day, gap in gaps
            for rest in _without(gap, self.explained)
        ]
        lost = sum(last - first + 1 for _, _, (first, last) in unexplained)
        examples = [
            {"stream": stream, "day": day, "from": first, "to": last, "missing": last - first + 1}
            for stream, day, (first, last) in unexplained
        ]
        observed = "no gap"
        if missing:
            observed = f"{count(missing, 'sequence')} missing, {lost:,} of them unexplained"
        details = {"missing": missing, "unexplained": lost, "gaps": len(gaps)}
        return Judgement(not lost, observed, examples, details=details)


def _between_days(measures: MessagesMeasures) -> list[tuple[str | None, date | None, Range]]:
    """The sequences that are missing between the last one of a day and the first of the next."""
    gaps: list[tuple[str | None, date | None, Range]] = []
    for (stream, day), found in measures.sequences.items():
        if day is None or not found.ranges:
            continue
        following = measures.sequences.get((stream, date.fromordinal(day.toordinal() + 1)))
        if following is not None and following.ranges:
            first, last = found.ranges[-1][1] + 1, following.ranges[0][0] - 1
            if first <= last:
                gaps.append((stream, day, (first, last)))
    return gaps


def _without(gap: Range, explained: Sequence[Range]) -> Iterable[Range]:
    """What is left of a gap without the explained ranges."""
    first, last = gap
    for low, high in sorted(explained):
        if high < first or low > last:
            continue
        if low > first:
            yield first, low - 1
        first = high + 1
    if first <= last:
        yield first, last
