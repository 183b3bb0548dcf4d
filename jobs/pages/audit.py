"""The page that shows an audit: one HTML file that needs nothing else.

The color-blind can distinguish the colors of the verdicts (Okabe and Ito), and every verdict has a
shape of its own besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from math import ceil
from pathlib import Path

from jobs.audit.headline import headline, worst_first
from jobs.audit.result import AuditResult
from jobs.pages.page import Scale, nice_scale, page, write_page
from nats_transform import statistics
from nats_transform.audit import DestinationAudit, MappingAudit, Split, Verdict

_MOST_PLOTTED = 40  # rules; the table has the others
_MOST_POINTS = 96
_STEPS_IN_HOURS = (1, 2, 3, 4, 6, 8, 12, 24, 48, 72, 168, 336, 672)
_HEIGHT = 100.0  # of a panel's own coordinates; its width is 1000


def write(result: AuditResult, path: Path) -> None:
    """Writes the page.

    Raises:
        ReportError: the file cannot be written.
    """
    write_page(render(result), path)


def render(result: AuditResult) -> str:
    """The page as HTML."""
    ranked = worst_first(result)
    told = [rule for rule in ranked if rule.verdict is not Verdict.NOTHING]
    timed = [rule for rule in told if len(rule.timeline.starts) > 1]
    return page(
        "audit.html",
        result=result,
        Verdict=Verdict,
        headline=headline(result),
        rules=told,
        silent=ranked[len(told) :],
        deviation=_deviation_scale(result),
        ranked=_ranked,
        stages=[
            (stage, [rule for rule in told if rule.stage == n and rule.verdict is Verdict.OUTSIDE])
            for n, stage in enumerate(result.in_force)
        ],
        panels=[
            (rule, sorted(_panels(rule, result), key=lambda panel: -_off(panel.end)))
            for rule in timed[:_MOST_PLOTTED]
        ],
        more_panels=len(timed[_MOST_PLOTTED:]),
        strips=[(rule, list(_lines(rule, result))) for rule in told if rule.buckets],
        chances=[(rule, test) for rule in told for test in rule.chance],
        regimes=[rule for rule in told if rule.regimes],
        fates=_fates(result),
        partitions=[
            (balance, nice_scale(0, 100 * max(balance.counts, default=0) / _sum(balance.counts)))
            for balance in result.partitions
            if sum(balance.counts)
        ],
        methods=sorted({split.test.method for split in _splits(result) if split.test}),
    )


def _off(end: DestinationAudit) -> float:
    """How many points a share is off; 0 if there is none."""
    return round(abs(end.share - end.expected), 6) if end.share is not None else 0.0


def _ranked(rule: MappingAudit) -> list[DestinationAudit]:
    """The destinations, those first that are furthest off; of equals, the lighter one."""
    return sorted(rule.destinations, key=lambda end: -_off(end))


def _sum(counts: Sequence[int]) -> int:
    return max(1, sum(counts))


def _splits(result: AuditResult) -> Iterator[Split]:
    for rule in result.rules:
        yield from (rule, *rule.buckets, *rule.regimes)


def _deviation_scale(result: AuditResult) -> Scale:
    """Points off the weight, symmetric: the tolerance fills a good part, and no outlier more."""
    ends = [
        abs(edge - end.expected)
        for rule in result.rules
        if rule.messages
        for end in rule.destinations
        for edge in (end.low, end.high)
    ]
    reach = min(max([2 * result.tolerance, *ends]), 8 * result.tolerance)
    return nice_scale(-reach * 1.05, reach * 1.05, 6)


@dataclass(frozen=True, slots=True)
class Panel:
    """The share of one destination over time.

    Attributes:
        end: the destination.
        shares: the vertical scale, in percent.
        line: SVG path of the share.
        ribbon: SVG path of the intervals, each by itself.
        times: (percent of the width, label) along the time axis.
        changes: percent of the width where a new regime starts.
        step: what one point covers.
    """

    end: DestinationAudit
    shares: Scale
    line: str
    ribbon: str
    times: tuple[tuple[float, str], ...]
    changes: tuple[float, ...]
    step: str


def _panels(rule: MappingAudit, result: AuditResult) -> Iterator[Panel]:
    """One panel for each destination."""
    assert result.from_ is not None  # noqa: S101 - the rule has messages
    assert result.to is not None  # noqa: S101
    first, last = result.from_, result.to
    span = (last - first) / timedelta(hours=1)
    step = next((s for s in _STEPS_IN_HOURS if span / s <= _MOST_POINTS), _STEPS_IN_HOURS[-1])
    bins: dict[int, list[int]] = {}
    for start, counts in zip(rule.timeline.starts, rule.timeline.counts, strict=True):
        place = int((start - first) / timedelta(hours=step))
        sums = bins.setdefault(place, [0] * len(counts))
        bins[place] = [a + b for a, b in zip(sums, counts, strict=True)]
    places = [place for place in sorted(bins) if sum(bins[place])]
    totals = [sum(bins[place]) for place in places]
    middles = [min(1.0, (place + 0.5) * step / span) for place in places]
    for n, end in enumerate(rule.destinations):
        column = [bins[place][n] for place in places]
        lows, highs = statistics.intervals(column, totals, result.confidence)
        shares = [100 * c / t for c, t in zip(column, totals, strict=True)]
        bottom = min([end.expected - end.tolerance, *shares])
        top = max([end.expected + end.tolerance, *shares])
        margin = (top - bottom) * 0.2
        scale = nice_scale(max(0.0, bottom - margin), min(100.0, top + margin), 3)

        def spot(x: float, value: float, scale: Scale = scale) -> str:
            return f"{1000 * x:.1f} {_HEIGHT - scale.at(value):.2f}"

        line, ribbon = [], []
        for run in _runs(places):
            points = [spot(middles[i], shares[i]) for i in run]
            # A point without neighbors is a line of no length: its round ends show.
            line.append("M" + "L".join(points if len(points) > 1 else points * 2))
            half = 0.5 * step / span if len(run) == 1 else 0.0
            xs = [middles[i] for i in run]
            edges = [(xs[0] - half, run[0]), *zip(xs, run, strict=True), (xs[-1] + half, run[-1])]
            above = [spot(x, 100 * float(highs[i])) for x, i in edges]
            below = [spot(x, 100 * float(lows[i])) for x, i in reversed(edges)]
            ribbon.append("M" + "L".join(above + below) + "Z")
        yield Panel(
            end=end,
            shares=scale,
            line="".join(line),
            ribbon="".join(ribbon),
            times=tuple(_time_ticks(first, last)),
            changes=tuple(
                round(100 * ((regime.from_ - first) / (last - first)), 3)
                for regime in rule.regimes[1:]
                if regime.from_
            ),
            step="hour" if step == 1 else "day" if step == 24 else f"{step} hours",
        )


def _lines(
    rule: MappingAudit, result: AuditResult
) -> Iterator[tuple[str, list[tuple[int, Split]]]]:
    """The buckets in lines: days in one, hours in one for each day with their place in it."""
    dated = [(bucket.from_, bucket) for bucket in rule.buckets if bucket.from_ is not None]
    if result.by == "day":
        yield "", [(0, bucket) for _, bucket in dated]
        return
    for day, group in groupby(dated, lambda entry: entry[0].date()):
        yield f"{day.day} {day:%b}", [(start.hour, bucket) for start, bucket in group]


def _runs(places: Sequence[int]) -> Iterator[list[int]]:
    """Indexes of places that follow one another without a gap."""
    run: list[int] = []
    for index, place in enumerate(places):
        if run and place != places[index - 1] + 1:
            yield run
            run = []
        run.append(index)
    if run:
        yield run


def _time_ticks(first: datetime, last: datetime) -> Iterator[tuple[float, str]]:
    """At most four round times."""
    hours = (last - first) / timedelta(hours=1)
    step = next((s for s in _STEPS_IN_HOURS if hours / s <= 4), ceil(hours / 24 / 3) * 24)
    midnight = first.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    moment = midnight
    while moment < last:
        if moment >= first:
            label = f"{moment.day} {moment:%b}" if step >= 24 else f"{moment:%H:%M}"
            if step < 24 and (moment == midnight or moment.hour == 0):
                label = f"{moment.day} {moment:%b}"
            yield round(100 * ((moment - first) / (last - first)), 3), label
        moment += timedelta(hours=step)


def _fates(result: AuditResult) -> list[tuple[str, int, float, float]]:
    """Each fate with its count, its share and where its part of the bar starts, in percent."""
    rows, reached = [], 0.0
    for fate, count in result.fates.items():
        share = 100 * count / max(1, result.messages)
        rows.append((fate, count, share, round(reached, 3)))
        reached += share
    return rows
