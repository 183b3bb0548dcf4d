"""The page that shows an audit: one HTML file that needs nothing else.

It leads with one picture: the share of each canary over time, cluster by cluster, with what is off
in red. Every verdict has a shape of its own besides its color.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil

from jobs.audit.headline import headline, outside_parts, worst_first
from jobs.audit.result import AuditResult
from jobs.pages.page import Scale, nice_scale, page
from nats_transform.audit import DestinationAudit, MappingAudit, Split, Verdict, statistics

_MOST_PLOTTED = 6  # mappings in the picture; the others can be opened
_MOST_POINTS = 192
_STEPS_IN_HOURS = (1, 2, 3, 4, 6, 8, 12, 24, 48, 72, 168, 336, 672)
_MOST_TICKS = 6
_HEIGHT = 100.0  # of a plot's own coordinates; its width is 1000


def render(result: AuditResult) -> str:
    """The page as HTML."""
    ranked = worst_first(result)
    judged = [rule for rule in ranked if rule.verdict is not Verdict.NOTHING]
    outside = [rule for rule in judged if rule.verdict is Verdict.OUTSIDE]
    timed = [rule for rule in judged if sum(map(any, rule.timeline.counts)) > 1]
    plots = [[_plot(rule, end, result) for end in _shown(rule)] for rule in timed]
    return page(
        "audit.html",
        result=result,
        Verdict=Verdict,
        headline=headline(result),
        rules=judged,
        silent=ranked[len(judged) :],
        deviation=_deviation_scale(result),
        shown=_shown,
        stages=[
            (stage, [rule for rule in outside if rule.stage == n])
            for n, stage in enumerate(result.in_force)
        ],
        plots=[plot for group in plots[:_MOST_PLOTTED] for plot in group],
        more_plots=[plot for group in plots[_MOST_PLOTTED:] for plot in group],
        times=list(_time_ticks(result)),
        chances=[(rule, test) for rule in judged for test in rule.chance],
        regimes=[rule for rule in judged if rule.regimes],
        counted=[f">{name}" for name, _ in result.account_columns],
        fates=_fates(result),
        partitions=[
            (balance, nice_scale(0, 100 * max(balance.counts) / sum(balance.counts)))
            for balance in result.partitions
            if sum(balance.counts)
        ],
        methods=sorted({split.test.method for split in _splits(result) if split.test}),
    )


def _shown(split: Split) -> list[DestinationAudit]:
    """The destinations, what is furthest off first; of two, the lighter one, which shows both."""
    ends = sorted(split.destinations, key=lambda end: (-_off(end), end.expected))
    return ends[:1] if len(ends) == 2 else ends


def _off(end: DestinationAudit) -> float:
    """How many points a share is off; 0 if there is none."""
    return round(abs(end.share - end.expected), 6) if end.share is not None else 0.0


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
class Plot:
    """The share of one destination of a mapping over time, in one cluster.

    Attributes:
        rule: the mapping and its cluster.
        end: the destination.
        scale: the vertical scale, in percent.
        line: SVG path of the share.
        ribbon: SVG path of the intervals, each by itself.
        off: SVG path of the points that are off.
        spans: where a time begins that is off, and how wide it is, in percent of the width.
        worst: the point that is furthest off: its place and height in percent, and its share.
        parts: where an hour or day with a verdict begins, how wide it is, and the verdict.
        changes: percent of the width where the split changed.
        says: the plot in words.
    """

    rule: MappingAudit
    end: DestinationAudit
    scale: Scale
    line: str
    ribbon: str
    off: str
    spans: tuple[tuple[float, float], ...]
    worst: tuple[float, float, float] | None
    parts: tuple[tuple[float, float, Split], ...]
    changes: tuple[float, ...]
    says: str


def _plot(rule: MappingAudit, end: DestinationAudit, result: AuditResult) -> Plot:
    first, last = result.from_, result.to
    assert first and last  # noqa: S101, PT018 - a mapping with a timeline has messages
    span = (last - first) / timedelta(hours=1)
    step = next((s for s in _STEPS_IN_HOURS if span / s <= _MOST_POINTS), _STEPS_IN_HOURS[-1])
    column = rule.destinations.index(end)
    counts, totals = Counter[int](), Counter[int]()
    for start, row in zip(rule.timeline.starts, rule.timeline.counts, strict=True):
        place = int((start - first) / timedelta(hours=step))
        counts[place] += row[column]
        totals[place] += sum(row)
    places = [place for place in sorted(totals) if totals[place]]
    in_all = [totals[place] for place in places]
    lows, highs = statistics.intervals([counts[p] for p in places], in_all, result.confidence)
    shares = [100 * counts[place] / totals[place] for place in places]
    low, high = end.expected - end.tolerance, end.expected + end.tolerance
    bottom, top = min([low, *shares]), max([high, *shares])
    margin = (top - bottom) * 0.2
    scale = nice_scale(max(0.0, bottom - margin), min(100.0, top + margin), 3)

    def at(moment: datetime | None) -> float:
        """Where a time is, in percent of the width; no time is the start."""
        return 100 * ((moment - first) / (last - first)) if moment else 0.0

    def of(part: Split) -> tuple[float, float]:
        return round(at(part.from_), 3), round(at(part.to) - at(part.from_), 3)

    outside = outside_parts(rule)
    width = 100 * step / span
    off = [
        index
        for index, place in enumerate(places)
        if not low <= shares[index] <= high
        and any(at(o.from_) < (place + 1) * width and place * width < at(o.to) for o in outside)
    ]
    middles = [min(100.0, (place + 0.5) * width) for place in places]

    def spot(x: float, value: float) -> str:
        return f"{10 * x:.1f} {_HEIGHT - scale.at(value):.2f}"

    def path(indexes: Sequence[int]) -> str:
        points = [spot(middles[i], shares[i]) for i in indexes]
        # A point without neighbors is a line of no length: its round ends show.
        return "M" + "L".join(points if len(points) > 1 else points * 2)

    def ribbon(indexes: Sequence[int]) -> str:
        xs = [middles[i] for i in indexes]
        if len(xs) == 1:  # as wide as what it stands for
            xs, indexes = [xs[0] - width / 2, xs[0] + width / 2], [*indexes, *indexes]
        above = [spot(x, 100 * float(highs[i])) for x, i in zip(xs, indexes, strict=True)]
        below = [spot(x, 100 * float(lows[i])) for x, i in zip(xs, indexes, strict=True)]
        return "M" + "L".join(above + below[::-1]) + "Z"

    runs = list(_runs(places, range(len(places))))
    worst = max(off, key=lambda index: abs(shares[index] - end.expected), default=None)
    every = {1: "hour", 24: "day"}.get(step, f"{step} hours")
    return Plot(
        rule=rule,
        end=end,
        scale=scale,
        line="".join(map(path, runs)),
        ribbon="".join(map(ribbon, runs)),
        off="".join(map(path, _runs(places, off))),
        spans=tuple(map(of, outside)),
        worst=None if worst is None else (middles[worst], scale.at(shares[worst]), shares[worst]),
        parts=tuple((*of(part), part) for part in rule.buckets),
        changes=tuple(round(at(regime.from_), 3) for regime in rule.regimes[1:]),
        says=(
            f"{end.name} got {min(shares):.3g} % to {max(shares):.3g} % by "
            f"{every}; its weight is {end.weight:g} %, and {low:.3g} % to {high:.3g} % is within"
            + "".join(f"; off from {part.from_:%Y-%m-%d %H:%M} UTC" for part in outside[:3])
        ),
    )


def _runs(places: Sequence[int], indexes: Sequence[int]) -> Iterator[list[int]]:
    """Some indexes of places, apart where there is a gap."""
    run: list[int] = []
    for index in indexes:
        if run and (index != run[-1] + 1 or places[index] != places[run[-1]] + 1):
            yield run
            run = []
        run.append(index)
    if run:
        yield run


def _time_ticks(result: AuditResult) -> Iterator[tuple[float, str]]:
    """A few round times, each with its place in percent of the width."""
    if result.from_ is None or result.to is None:
        return
    first, last = result.from_, result.to
    hours = (last - first) / timedelta(hours=1)
    fitting = (step for step in _STEPS_IN_HOURS if hours / step <= _MOST_TICKS)
    step = next(fitting, ceil(hours / 24 / (_MOST_TICKS - 1)) * 24)
    moment = first.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    while moment < last:
        if moment >= first:
            is_day = step >= 24 or moment.hour == 0
            label = f"{moment.day} {moment:%b}" if is_day else f"{moment:%H:%M}"
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
