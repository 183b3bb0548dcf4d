"""The page that shows a dry run in a change review: one HTML file that needs nothing else.

The flow of the namespace is SVG whose labels are text beside it, so that it fits any width. Every
severity has a shape of its own besides its color.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jobs.dry_run.result import DryRunResult
from jobs.pages.page import nice_scale, page
from nats_transform.lint.findings import Severity
from nats_transform.mappings.subject import SEPARATOR
from nats_transform.migration.analyses.trees import DEEP
from nats_transform.migration.result import OTHER, Flow
from nats_transform.words import plural

Way = tuple[str | None, str | None]
"""A prefix before and after."""

_MOST_FINDINGS = 60
_MOST_CHANGES = 30
_MOST_BALANCES = 24
_MOST_COLUMNS = 256  # partitions in one plot
_LEFT, _RIGHT = 8, 10  # prefixes in the picture
_MOST_SECONDS = 5  # second tokens that a first one may have
_LABEL, _GAP, _HEIGHT = 36.0, 6.0, 260.0


def render(result: DryRunResult) -> str:
    """The page as HTML."""
    dry_run = result.dry_run
    shown = [b for b in dry_run.partitions if b.partitions <= _MOST_COLUMNS][:_MOST_BALANCES]
    return page(
        "dry_run.html",
        result=result,
        dry_run=dry_run,
        deep=DEEP,
        Severity=Severity,
        headline=_headline(result),
        worst=next((s for s in (Severity.ERROR, Severity.WARNING) if result.counts[s]), None),
        findings=dry_run.findings[:_MOST_FINDINGS],
        more_findings=len(dry_run.findings[_MOST_FINDINGS:]),
        most_findings=_MOST_FINDINGS,
        changes=dry_run.changes[:_MOST_CHANGES],
        more_changes=len(dry_run.changes[_MOST_CHANGES:]),
        picture=picture(dry_run.flows) if dry_run.messages else None,
        fates=[
            (fate, dry_run.fates_before.get(fate, 0), dry_run.fates_after.get(fate, 0))
            for fate in dict.fromkeys([*dry_run.fates_before, *dry_run.fates_after])
        ],
        partitions=[
            (balance, nice_scale(0, 100 * max(balance.counts) / sum(balance.counts)))
            for balance in shown
        ],
    )


_AT_STAKE = {
    "not-captured": "would not be stored",
    "lost": "would be lost",
    "illegal-result": "would reach nobody",
}
"""The findings that cost messages, and how the headline says it."""


def _headline(result: DryRunResult) -> str:
    """What is at stake, in one sentence."""
    dry_run, shares = result.dry_run, dict.fromkeys(_AT_STAKE, 0.0)
    for finding in dry_run.findings:
        if finding.code in shares:
            shares[finding.code] += finding.share
    stakes = [
        f"{min(share, 100):.3g} % of the messages {_AT_STAKE[code]}"
        for code, share in shares.items()
        if share
    ]
    codes = Counter(finding.code for finding in dry_run.findings)
    if starved := codes["consumer-none"]:
        stakes.append(f"{plural(starved, 'consumer')} would get nothing")
    if codes["collision"]:
        subjects = plural(dry_run.subjects_before, "subject")
        stakes.append(f"{subjects} would become {dry_run.subjects_after:,}")
    if stakes:
        return "; ".join(stakes)
    counts = [
        f"{count:,} {severity.value}{'' if count == 1 else 's'}"
        for severity, count in result.counts.items()
        if count and severity is not Severity.INFO
    ]
    if not counts and not result.streams_from:
        return "The mappings alone show nothing, and no stream was looked at"
    if not counts:
        return "Nothing that was looked at stands in the way of the change"
    return f"The change has {' and '.join(counts)}"


@dataclass(frozen=True, slots=True)
class Node:
    """A prefix in the picture.

    Attributes:
        name: the prefix; None is nobody.
        share: percent of the messages.
        top: where its bar begins, in pixels from the top.
        height: the height of its bar, in pixels.
    """

    name: str | None
    share: float
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class Ribbon:
    """Messages from one prefix to another, as an SVG path in a box 1000 wide.

    Attributes:
        path: the outline.
        kind: same, moved, lost, uncaptured or merged.
        title: for people who point at it.
    """

    path: str
    kind: str
    title: str


_KINDS = {
    "same": "",
    "moved": "",
    "merged": ", which other subjects' messages join under one subject",
    "uncaptured": ", which no stream would store",
    "lost": "",
}
"""The kinds of ribbons in their order from above, and how titles say it."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Where the prefixes of the namespace go."""

    left: tuple[Node, ...]
    right: tuple[Node, ...]
    ribbons: tuple[Ribbon, ...]
    height: float


def picture(flows: Sequence[Flow]) -> Picture:
    """The largest prefixes before and after, the others together, and what runs between them."""
    total = sum(flow.messages for flow in flows)
    stay = [flow.before == flow.after for flow in flows]
    flows = _folded(flows)
    before = _largest([(flow.before, flow.messages) for flow in flows], _LEFT)
    after = _largest([(flow.after, flow.messages) for flow in flows], _RIGHT)
    between: dict[Way, Counter[str]] = defaultdict(Counter)
    for flow, stays in zip(flows, stay, strict=True):
        way = (
            flow.before if flow.before in before else OTHER,
            flow.after if flow.after in after else OTHER,
        )
        fine = "lost" if flow.after is None else "same" if stays else "moved"
        kinds = {fine: flow.messages - flow.uncaptured - flow.merged}
        between[way].update(kinds | {"uncaptured": flow.uncaptured, "merged": flow.merged})
    left = _column(before, between, 0, total)
    right = _column(after, between, 1, total)
    at = {("l", n.name): n.top for n in left} | {("r", n.name): n.top for n in right}
    order = {node.name: place for place, node in enumerate(right)}
    places = {node.name: place for place, node in enumerate(left)}
    ribbons = []
    for start, end in sorted(between, key=lambda way: (places[way[0]], order[way[1]])):
        for kind, how in _KINDS.items():
            if not (messages := between[start, end][kind]):
                continue
            size = _HEIGHT * messages / total
            y, z = at["l", start], at["r", end]
            at["l", start], at["r", end] = y + size, z + size
            count = plural(round(messages), "message")
            ribbons.append(
                Ribbon(
                    f"M0 {y:.2f}C450 {y:.2f} 550 {z:.2f} 1000 {z:.2f}V{z + size:.2f}"
                    f"C550 {z + size:.2f} 450 {y + size:.2f} 0 {y + size:.2f}Z",
                    kind,
                    f"{start or 'nobody'} to {end or 'nobody'}: {count}{how}",
                )
            )
    height = max((node.top + max(node.height, _LABEL) for node in (*left, *right)), default=0.0)
    return Picture(left, right, tuple(ribbons), round(height, 2))


def _folded(flows: Sequence[Flow]) -> list[Flow]:
    """The flows with `first.*` for a first token that has many second ones."""
    sides = [{flow.before for flow in flows}, {flow.after for flow in flows}]
    firsts = [Counter(_first(name) for name in side if name and name != OTHER) for side in sides]

    def fold(name: str | None, counts: Counter[str]) -> str | None:
        if name is None or name == OTHER or counts[_first(name)] <= _MOST_SECONDS:
            return name
        return f"{_first(name)}.*"

    return [
        replace(flow, before=fold(flow.before, firsts[0]), after=fold(flow.after, firsts[1]))
        for flow in flows
    ]


def _first(name: str) -> str:
    return name.split(SEPARATOR, 1)[0]


def _largest(pairs: Sequence[tuple[str | None, float]], most: int) -> list[str | None]:
    """The names with the largest sums, `OTHER` last if some are left out."""
    sums: dict[str | None, float] = defaultdict(float)
    for name, messages in pairs:
        sums[name] += messages
    known = sorted((name for name in sums if name != OTHER), key=lambda name: -sums[name])
    kept = known[:most]
    return [*kept, OTHER] if len(known) > most or OTHER in sums else kept


def _column(
    names: Sequence[str | None], between: Mapping[Way, Counter[str]], side: int, total: float
) -> tuple[Node, ...]:
    """The prefixes of one side of what runs between them: 0 is before, 1 is after."""
    sums: dict[str | None, float] = defaultdict(float)
    for way, kinds in between.items():
        sums[way[side]] += sum(kinds.values())
    nodes, top = [], 0.0
    for name in names:
        height = _HEIGHT * sums[name] / total
        nodes.append(Node(name, 100 * sums[name] / total, round(top, 2), round(height, 2)))
        top += max(height, _LABEL) + _GAP
    return tuple(nodes)
