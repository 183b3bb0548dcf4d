"""A dry run: what a candidate mapping would do to the subjects that were really there.

Subjects are read twice, in parts that may be anywhere, and never kept: what is kept of each is
hashes and counts, in a file if there are too many for memory. The second reading finds the names of
the largest groups only. Weights count as exact shares.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, Protocol

from nats_transform.check import MAPPING, check
from nats_transform.consumer import Consumer
from nats_transform.functions import Wildcard
from nats_transform.mapping import AccountMappings
from nats_transform.mapping import Mapping as SubjectMapping
from nats_transform.migration.case import Cases, CensusRow, by_subject
from nats_transform.migration.changes import Change, Changes, Flow, Told, shown
from nats_transform.migration.collisions import Collisions, WayBack, targets
from nats_transform.migration.count import EXAMPLES, PARTS, Count, hashed, whole
from nats_transform.migration.delivery import Delivery, Limit
from nats_transform.migration.findings import FROM_CHECK, MigrationFinding
from nats_transform.migration.hygiene import Hygiene, Level
from nats_transform.migration.merge import Counted, merged
from nats_transform.migration.partitions import UNEVEN, Balance, Partitions, entry, upper
from nats_transform.migration.permissions import Access, User
from nats_transform.migration.rows import Store
from nats_transform.migration.rules import RuleHits
from nats_transform.stream import StreamConfig


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
    findings: tuple[MigrationFinding, ...]
    changes: tuple[Change, ...]
    flows: tuple[Flow, ...]
    partitions: tuple[Balance, ...]
    levels: tuple[Level, ...]
    reverse: tuple[SubjectMapping, ...]
    is_reversible: bool


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about the subjects.

    Attributes:
        candidate: the mappings to try.
        current: the mappings there are; none leaves every subject as it is.
        streams: of the account; those of the archive's own account.
        consumers: of these streams.
        users: with permissions.
        clusters: the names of all clusters; none: those that the census names.
    """

    candidate: AccountMappings
    current: AccountMappings
    streams: tuple[StreamConfig, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    users: tuple[User, ...] = ()
    clusters: tuple[str, ...] = ()


class Parts(Protocol):
    """A census in parts, wherever they are; all rows of a subject are in one, in a row."""

    def each(self, work: Callable[[Iterable[CensusRow]], Any]) -> Iterable[Any]:
        """What some work gives for each part; it and what it gives can be pickled."""


def dry_run(
    census: Iterable[CensusRow],
    candidate: AccountMappings,
    current: AccountMappings | None = None,
    *,
    streams: Sequence[StreamConfig] = (),
    consumers: Sequence[Consumer] = (),
    users: Sequence[User] = (),
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
        candidate, current, streams, consumers, users: as in `Question`.
    """
    question = Question(
        candidate,
        current or AccountMappings(()),
        tuple(streams),
        tuple(consumers),
        tuple(users),
    )
    return dry_run_of_parts(_Whole(census), question)


@dataclass(frozen=True, slots=True)
class _Whole:
    """A census in one part."""

    census: Iterable[CensusRow]

    def each(self, work: Callable[[Iterable[CensusRow]], Any]) -> Iterable[Any]:
        yield work(self.census)


def dry_run_of_parts(census: Parts, question: Question, overflow: BinaryIO | None = None) -> DryRun:
    """What a candidate would do to the subjects of a census that is in parts.

    Args:
        census: the parts; they are read twice.
        question: what is asked.
        overflow: an empty file, to read and write, for what would get too much for memory; without,
            memory takes about 100 bytes for each subject.
    """
    run = _Run(question, Store(overflow))
    for counts in census.each(partial(_counts, question)):
        run.merge(counts)
    names, wanted = _Names(), run.wanted
    if wanted:
        for found in census.each(partial(_names, question, wanted)):
            names.merge(found)
    total = run.messages * PARTS
    findings = [_finding(told, total) for told in run.told(names)]
    findings.sort(key=lambda f: (f.severity.rank, -f.messages, f.code, f.about))
    fates_before, fates_after = run.changes.fates()
    distinct = run.collisions.distinct
    balances = [spread.balance(names.keys) for spread in run.partitions.ordered]
    return DryRun(
        messages=run.messages,
        subjects=run.subjects,
        changed_messages=whole(run.changes.changed.parts),
        changed_subjects=run.changes.changed.subjects,
        subjects_before=distinct.before,
        subjects_after=distinct.after,
        bytes=run.bytes,
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


def _counts(question: Question, part: Iterable[CensusRow]) -> dict[str, Any]:
    """What there is to count in a part."""
    run = _Run(question, Store())
    with _no_search_for_cycles():
        run.read(part)
    return run.counts


def _names(question: Question, wanted: _Wanted, part: Iterable[CensusRow]) -> _Names:
    """The names that a part has for some hashes."""
    with _no_search_for_cycles():
        return _Run(question, Store()).names(wanted, part)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Without Python's collector, which finds nothing here and takes a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _without_current(row: CensusRow) -> CensusRow:
    """A row as if there were no current mappings."""
    return row if row.chosen is None else row._replace(chosen=(None, row.chosen[1]))


def _finding(told: Told, total: int) -> MigrationFinding:
    code, about, message, count = told
    share = 100 * count.parts / max(1, total)
    return MigrationFinding(
        code, about, message, whole(count.parts), count.subjects, share, count.examples
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The hashes whose names are to be shown.

    Attributes:
        merged: of what subjects become.
        limits: with hashes of stored subjects.
        keys: of partitions, as `entry`.
    """

    merged: frozenset[int]
    limits: tuple[Limit, ...]
    keys: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.merged or self.limits or self.keys)


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

    def merge(self, other: _Names) -> None:
        """Add what was found in another part."""
        merged(self.merged, other.merged)
        merged(self.limited, other.limited)
        merged(self.keys, other.keys)


class _Run(Counted):
    """Everything that counts."""

    COUNTED = ("messages", "subjects", "bytes")

    def __init__(self, question: Question, store: Store) -> None:
        current, self._candidate = question.current, question.candidate
        self._streams = question.streams
        self._cases = Cases(current, self._candidate)
        self.messages = self.subjects = self.bytes = 0
        self.changes = Changes()
        self.collisions = Collisions(store)
        self.way_back = WayBack(self._candidate)
        self.delivery = Delivery(question.streams, question.consumers, store)
        self.access = Access(question.users)
        self.partitions = Partitions(current, self._candidate, store)
        self.rules = RuleHits(self._candidate)
        self.hygiene = Hygiene()
        self._counters: dict[str, Counted] = {
            "changes": self.changes,
            "collisions": self.collisions,
            "way_back": self.way_back,
            "delivery": self.delivery,
            "access": self.access,
            "partitions": self.partitions,
            "rules": self.rules,
            "hygiene": self.hygiene,
        }

    @property
    def counts(self) -> dict[str, Any]:
        """What was counted, by what counts it."""
        return super().counts | {name: one.counts for name, one in self._counters.items()}

    def merge(self, counts: Mapping[str, Any]) -> None:
        """Add what was counted of other subjects."""
        super().merge(counts)
        for name, one in self._counters.items():
            one.merge(counts[name])

    def read(self, census: Iterable[CensusRow]) -> None:
        """Count all subjects of a census."""
        for cases in self._cases.of(census):
            self.subjects += 1
            for case in cases:
                self.messages += case.messages
                self.bytes += case.bytes
                self.changes.add(case)
                self.access.add(case)
                self.partitions.add(case)
                self.rules.add(case)
                self.hygiene.add(case)
            after = targets(cases)
            self.collisions.add(cases, after)
            self.way_back.add(cases, after)
            self.delivery.add(cases)

    @property
    def wanted(self) -> _Wanted:
        """The hashes whose names are to be shown; to be asked when all is added."""
        return _Wanted(
            frozenset().union(*(one.largest for one in self.collisions.merged)),
            self.delivery.limits,
            frozenset().union(*(one.totals.largest for one in self.partitions.ordered)),
        )

    def names(self, wanted: _Wanted, census: Iterable[CensusRow]) -> _Names:
        """The names behind the hashes."""
        names = _Names()
        uppers = {key >> 32 for key in wanted.keys}
        # What a subject is under the current mapping is asked of the few that are shown.
        after = Cases(AccountMappings(()), self._candidate)
        for subject, group in by_subject(census):
            if wanted.keys and (found := after.candidate.mapped(subject)):
                for name in self.partitions.keys(found[0].source, found[1]):
                    if upper(name) in uppers and (key := entry(name)) in wanted.keys:
                        names.keys[key] = name
            if not (wanted.merged or wanted.limits):
                continue
            rows = list(group)
            cases = after.of_subject(subject, map(_without_current, rows))
            if wanted.merged:
                for becomes, parts in targets(cases).items():
                    if (key := hashed(becomes)) in wanted.merged:
                        was = self._cases.of_subject(subject, rows)[0].was
                        names.merged[key].add(subject, was, becomes, parts)
            for limit in wanted.limits:
                for becomes, parts in self.delivery.stored_as(limit.stream, cases).items():
                    if (key := hashed(becomes)) in limit.largest:
                        was = self._cases.of_subject(subject, rows)[0].was
                        names.limited[limit.stream, key].add(subject, was, becomes, parts)
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
        for code, one in (("collision", new), ("collision-already", already)):
            if not one.results:
                continue
            told = f"{one.subjects:,} subjects become {one.results:,}"
            groups = [names.merged[key] for key in one.largest]
            if dropped := self._dropped(groups):
                told += f"; lost is {dropped}"
            yield code, "", told, _shown(groups, one.parts, one.subjects)

    def _dropped(self, groups: Iterable[Count]) -> str:
        """Which wildcards the mappings of some examples leave out."""
        found: dict[str, None] = {}
        for count in groups:
            for example in count.examples:
                mapping = self._candidate.match(example.subject or "")
                for transform in mapping.transforms if mapping else ():
                    used = {t.position for t in transform.tokens if isinstance(t, Wildcard)}
                    for number, position in enumerate(transform.filter.wildcards, 1):
                        if position not in used:
                            found[f"wildcard {number} of {shown(transform.source)}"] = None
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
