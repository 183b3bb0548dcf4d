"""A dry run: what a candidate mapping would do to the subjects that were really there.

Subjects are read twice, in the order given, and never kept: what is kept of each is hashes and
counts, in a file if there are too many for memory. The second reading finds the names of the
largest groups only. Weights count as exact shares.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from nats_transform.check import MAPPING, check
from nats_transform.dryrun.case import Case, Cases, CensusRow, first_subject
from nats_transform.dryrun.changes import Change, Changes, Flow, Told, shown
from nats_transform.dryrun.collisions import Collisions, WayBack, targets
from nats_transform.dryrun.count import EXAMPLES, PARTS, Count, hashed, whole
from nats_transform.dryrun.delivery import Consumer, Delivery, Limit
from nats_transform.dryrun.findings import FROM_CHECK, Finding
from nats_transform.dryrun.hygiene import Hygiene, Level
from nats_transform.dryrun.partitions import UNEVEN, Balance, Partitions, entry
from nats_transform.dryrun.permissions import Access, User
from nats_transform.dryrun.rows import Store
from nats_transform.dryrun.rules import RuleHits
from nats_transform.functions import Wildcard
from nats_transform.mapping import AccountMappings
from nats_transform.mapping import Mapping as SubjectMapping
from nats_transform.stream import StreamConfig
from nats_transform.transform import Transform


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a candidate would do.

    Attributes:
        messages, subjects: of the census.
        changed_messages, changed_subjects: whose result differs; expected, where weights decide.
        subjects_before, subjects_after: distinct results.
        bytes: of the payloads.
        clusters: that the census names.
        fates_before, fates_after: messages for each fate.
        findings: worst first, then largest first.
        changes: what changes by pair of rules, largest first.
        flows: where the prefixes of the namespace go, largest first.
        partitions: the balance of every `partition()` of the candidate.
        levels: distinct tokens at each level.
        reverse: the mappings that undo the candidate, as far as it can be undone.
        is_reversible: whether they give every subject back.
    """

    messages: int
    subjects: int
    changed_messages: float
    changed_subjects: int
    subjects_before: int
    subjects_after: int
    bytes: int
    clusters: tuple[str, ...]
    fates_before: dict[str, float]
    fates_after: dict[str, float]
    findings: tuple[Finding, ...]
    changes: tuple[Change, ...]
    flows: tuple[Flow, ...]
    partitions: tuple[Balance, ...]
    levels: tuple[Level, ...]
    reverse: tuple[SubjectMapping, ...]
    is_reversible: bool


def dry_run(
    census: Iterable[CensusRow],
    candidate: AccountMappings,
    current: AccountMappings | None = None,
    *,
    streams: Sequence[StreamConfig] = (),
    consumers: Sequence[Consumer] = (),
    users: Sequence[User] = (),
    overflow: BinaryIO | None = None,
) -> DryRun:
    """What a candidate would do to the subjects of a census.

    >>> from nats_transform import Destination, Mapping
    >>> found = dry_run(
    ...     [CensusRow("a.1", None, 5), CensusRow("a.2", None, 1)],
    ...     AccountMappings([Mapping("a.*", [Destination("b")])]),
    ... )
    >>> [(finding.code, finding.messages) for finding in found.findings]
    [('collision', 6), ('irreversible', 6)]

    Args:
        census: distinct subjects as they were published; it is read twice, and all rows of a
            subject follow one another.
        candidate: the mappings to try.
        current: the mappings there are; none leaves every subject as it is.
        streams: of the account; those of the archive's own account.
        consumers: of these streams.
        users: with permissions.
        overflow: an empty file, to read and write, for what would get too much for memory; without,
            a million subjects take about 100 MB.
    """
    current = current or AccountMappings(())
    run = _Run(current, candidate, streams, consumers, users, Store(overflow))
    cases = Cases(current, candidate)
    messages = subjects = size = 0
    for of_subject in cases.of(census):
        subjects += 1
        messages += sum(case.messages for case in of_subject)
        size += sum(case.bytes for case in of_subject)
        run.add(of_subject)
    names = run.names(cases, census)
    total = messages * PARTS
    findings = [_finding(told, total) for told in run.told(names)]
    findings.sort(key=lambda f: (f.severity.rank, -f.messages, f.code, f.about))
    fates_before, fates_after = run.changes.fates()
    distinct = run.collisions.distinct
    balances = [spread.balance(names.keys) for spread in run.partitions.ordered]
    return DryRun(
        messages=messages,
        subjects=subjects,
        changed_messages=whole(run.changes.changed.parts),
        changed_subjects=run.changes.changed.subjects,
        subjects_before=distinct.before,
        subjects_after=distinct.after,
        bytes=size,
        clusters=tuple(sorted(name for name in run.rules.clusters if name)),
        fates_before=fates_before,
        fates_after=fates_after,
        findings=tuple(findings),
        changes=run.changes.changes(total),
        flows=run.changes.flows(),
        partitions=tuple(balance for balance in balances if balance is not None),
        levels=run.hygiene.levels(),
        reverse=tuple(run.way_back.mappings.mappings),
        is_reversible=not run.way_back.stuck.subjects,
    )


def _finding(told: Told, total: int) -> Finding:
    code, about, message, count = told
    share = 100 * count.parts / max(1, total)
    return Finding(code, about, message, whole(count.parts), count.subjects, share, count.examples)


@dataclass(slots=True)
class _Names:
    """What the second reading finds.

    Attributes:
        merged: subjects that become the same as others, by hash of that.
        limited: subjects that share a stored subject, by stream and hash of that.
        keys: of partitions, by `entry`.
    """

    merged: dict[int, Count] = field(default_factory=lambda: defaultdict(Count))
    limited: dict[tuple[str, int], Count] = field(default_factory=lambda: defaultdict(Count))
    keys: dict[int, str] = field(default_factory=dict)


class _Run:
    """Everything that counts."""

    def __init__(
        self,
        current: AccountMappings,
        candidate: AccountMappings,
        streams: Sequence[StreamConfig],
        consumers: Sequence[Consumer],
        users: Sequence[User],
        store: Store,
    ) -> None:
        self._candidate, self._streams = candidate, streams
        self.changes = Changes()
        self.collisions = Collisions(store)
        self.way_back = WayBack(candidate)
        self.delivery = Delivery(streams, consumers, store)
        self.access = Access(users)
        self.partitions = Partitions(current, candidate, store)
        self.rules = RuleHits(candidate)
        self.hygiene = Hygiene()

    def add(self, cases: list[Case]) -> None:
        """Count all cases of one subject."""
        for case in cases:
            self.changes.add(case)
            self.access.add(case)
            self.partitions.add(case)
            self.rules.add(case)
            self.hygiene.add(case)
        self.collisions.add(cases)
        self.way_back.add(cases)
        self.delivery.add(cases)

    def names(self, cases: Cases, census: Iterable[CensusRow]) -> _Names:
        """The names behind the hashes that are to be shown; the census is read if there are any."""
        names = _Names()
        merged = frozenset().union(*(one.largest for one in self.collisions.merged))
        limits = self.delivery.limits
        keys = {key for spread in self.partitions.spreads.values() for key in spread.totals.largest}
        if not (merged or limits or keys):
            return names
        for of_subject in cases.of(census):
            subject = of_subject[0].subject
            was = first_subject(of_subject[0].before)
            if merged:
                for becomes, parts in targets(of_subject).items():
                    if (key := hashed(becomes)) in merged:
                        names.merged[key].add(subject, was, becomes, parts)
            for limit in limits:
                stored = self.delivery.stored_as(limit.stream, of_subject)
                for becomes, parts in stored.items():
                    if (key := hashed(becomes)) in limit.largest:
                        names.limited[limit.stream, key].add(subject, was, becomes, parts)
            if keys:
                for name in self.partitions.keys(of_subject):
                    if (key := entry(name)) in keys:
                        names.keys[key] = name
        return names

    def told(self, names: _Names) -> Iterator[Told]:
        """What is worth a finding."""
        yield from self.changes.told()
        yield from self._collisions(names)
        if self.way_back.stuck.subjects:
            told = "no mapping gives these subjects back"
            yield "irreversible", "", told, self.way_back.stuck
        yield from self.delivery.told()
        for limit in self.delivery.limits:
            yield _limit(limit, names)
        yield from self.access.told()
        yield from self._partitions(names)
        yield from self.rules.told()
        yield from self.hygiene.told()
        distinct = self.collisions.distinct
        if distinct.drawn > 2 * max(distinct.before, distinct.after):
            told = (
                f"up to {distinct.drawn:,} distinct subjects, where there are {distinct.before:,}"
            )
            yield "subject-explosion", "", told, Count()
        yield from self._check()

    def _collisions(self, names: _Names) -> Iterator[Told]:
        new, already = self.collisions.merged
        for code, merged in (("collision", new), ("collision-already", already)):
            if not merged.results:
                continue
            told = f"{merged.subjects:,} subjects become {merged.results:,}"
            groups = [names.merged[key] for key in merged.largest]
            if dropped := self._dropped(groups):
                told += f"; lost is {dropped}"
            yield code, "", told, _shown(groups, merged.parts, merged.subjects)

    def _dropped(self, groups: Iterable[Count]) -> str:
        """Which wildcards the mappings of some examples leave out."""
        found: dict[str, None] = {}
        for count in groups:
            for example in count.examples:
                mapping = self._candidate.match(example.subject or "")
                for destination in mapping.destinations if mapping else ():
                    if mapping is None or not destination.subject:
                        continue
                    transform = Transform(mapping.source, destination.subject)
                    used = {t.position for t in transform.tokens if isinstance(t, Wildcard)}
                    for number, position in enumerate(transform.filter.wildcards, 1):
                        if position not in used:
                            found[f"wildcard {number} of {shown(mapping.source)}"] = None
        return ", ".join(list(found)[:EXAMPLES])

    def _partitions(self, names: _Names) -> Iterator[Told]:
        for spread in self.partitions.ordered:
            about = f"mapping {shown(spread.source)} -> {shown(spread.destination)}"
            balance = spread.balance(names.keys)
            if spread.moved.subjects:
                told = f"{spread.totals.moved_keys:,}"
                if balance:
                    told += f" of {balance.keys:,}"
                told += " keys move to another partition"
                yield "partition-moves", about, told, spread.moved
            if balance is None or balance.partitions < 2:
                continue
            empty = sum(not count for count in balance.counts)
            if empty:
                told = f"{empty} of {balance.partitions} partitions get nothing: "
                told += f"there are {balance.keys:,} keys"
                yield "partition-empty", about, told, Count()
            if balance.busiest > UNEVEN:
                told = f"the busiest partition has {balance.busiest:.2f} times the mean"
                if better := balance.better:
                    told += f"; {better} partitions would spread better"
                count = Count(int(max(balance.counts) * PARTS), 0)
                yield "partition-imbalance", about, told, count

    def _check(self) -> Iterator[Told]:
        clusters = {name for name in self.rules.clusters if name}
        for found in check([self._candidate, *self._streams], clusters=clusters):
            code = f"check-{found.code}"
            if code in FROM_CHECK:
                about = " ".join(part for part in (found.place, shown(found.source)) if part)
                count = self.rules.of(found.source) if found.place == MAPPING else Count()
                yield code, about, found.message, count


def _limit(limit: Limit, names: _Names) -> Told:
    told = f"at most {limit.limit:,} messages for each subject: {whole(limit.parts):,} more are "
    told += "refused" if limit.code == "limit-refuses" else "discarded"
    groups = [names.limited[limit.stream, key] for key in limit.largest]
    return (
        limit.code,
        f"stream {shown(limit.stream)}",
        told,
        _shown(groups, limit.parts, limit.subjects),
    )


def _shown(groups: Iterable[Count], parts: int, subjects: int) -> Count:
    """A count whose examples are the largest members of some groups."""
    ordered = sorted(groups, key=lambda count: -count.parts)
    # Two of each group tell what it is; the first group may fill the rest.
    examples = [one for count in ordered for one in count.examples[:2]][:EXAMPLES]
    return Count.of(parts, subjects, examples)
