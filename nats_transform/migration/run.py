"""A dry run: what a candidate mapping would do to the subjects of an archive.

The subjects are read twice, in parts, and are not kept. Only hashes and counts of them are, and
those go into a file if they are too many for memory. The second reading finds the names of the
largest groups. Weights count as exact shares.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from nats_transform.mapping import Mapping as SubjectMapping
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.case import Case, Matcher
from nats_transform.migration.changes import Change, Changes, Flow
from nats_transform.migration.collisions import Collisions, WayBack, targets
from nats_transform.migration.count import PARTS, total, whole
from nats_transform.migration.delivery import Delivery
from nats_transform.migration.findings import MigrationFinding
from nats_transform.migration.hygiene import Hygiene, Level
from nats_transform.migration.lints import checked
from nats_transform.migration.names import Names, Wanted
from nats_transform.migration.partitions import Balance, Partitions, entry, upper
from nats_transform.migration.permissions import Access
from nats_transform.migration.question import Question
from nats_transform.migration.rows import Store
from nats_transform.migration.rules import RuleHits
from nats_transform.migration.sharing import Sharing

_A = TypeVar("_A", bound=Analysis)


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run.

    Attributes:
        messages, subjects: the numbers of messages and subjects of the census.
        changed_messages, changed_subjects: how many of them have another result; where weights
            decide, the expected number.
        subjects_before, subjects_after: the number of distinct results.
        bytes: the size of the payloads.
        clusters: the clusters that the census names.
        fates_before, fates_after: the number of messages of each fate.
        findings: the findings, worst first, then largest first.
        changes: the changes, one for each pair of rules, largest first.
        flows: the flows between prefixes of subjects, largest first.
        partitions: the balance of every `partition()` of the candidate.
        levels: the number of distinct tokens at each level.
        reverse: the mappings that undo the candidate, as far as it can be undone.
        is_reversible: whether `reverse` gives every subject back.
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


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Turns off Python's garbage collector, which finds nothing here and takes 10 % of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _finding(told: Told, total: int) -> MigrationFinding:
    code, about, message, count = told
    share = 100 * count.parts / max(1, total)
    return MigrationFinding(
        code, about, message, whole(count.parts), count.subjects, share, count.examples
    )


ANALYSES: dict[str, Callable[[Question, Store], Analysis]] = {
    "changes": lambda question, store: Changes(),
    "collisions": lambda question, store: Collisions(question.candidate, store),
    "way_back": lambda question, store: WayBack(question.candidate),
    "delivery": lambda question, store: Delivery(question.streams, question.consumers, store),
    "sharing": lambda question, store: Sharing(question.shared),
    "access": lambda question, store: Access(question.users),
    "partitions": lambda question, store: Partitions(question.current, question.candidate, store),
    "rules": lambda question, store: RuleHits(question.candidate),
    "hygiene": lambda question, store: Hygiene(),
}
"""All analyses. A new analysis needs a module of its own and a line here."""


class Run:
    """All analyses of one question."""

    def __init__(self, question: Question, store: Store) -> None:
        self._question = question
        self._candidate = Matcher(question.candidate)
        self.messages = self.subjects = self.bytes = 0
        self._analyses = {name: make(question, store) for name, make in ANALYSES.items()}

    def of(self, kind: type[_A]) -> _A:
        """The analysis of a class."""
        return next(one for one in self._analyses.values() if isinstance(one, kind))

    def read(self, subjects: Iterable[list[Case]]) -> None:
        """Count subjects, or groups that are alike."""
        adds = [one.add for one in self._analyses.values()]
        for cases in subjects:
            self.subjects += 1 if cases[0].alike is None else len(cases[0].alike)
            for case in cases:
                self.messages += total(case.messages)
                self.bytes += total(case.bytes)
            after = targets(cases)
            for add in adds:
                add(cases, after)

    @property
    def wanted(self) -> Wanted:
        """The hashes whose names are to be shown, when all subjects have been read."""
        return Wanted(
            frozenset().union(*(one.largest for one in self.of(Collisions).merged)),
            frozenset(
                (limit.stream, key) for limit in self.of(Delivery).limits for key in limit.largest
            ),
            frozenset().union(*(one.totals.largest for one in self.of(Partitions).ordered)),
        )

    def name(self, wanted: Wanted, subjects: Iterable[list[Case]], names: Names) -> None:
        """Add the names behind the hashes, of subjects or of groups that are alike."""
        uppers = {key >> 32 for key in wanted.keys}
        limited = {stream for stream, _ in wanted.limited}
        delivery, partitions = self.of(Delivery), self.of(Partitions)
        for cases in subjects:
            first = cases[0]
            # The names of keys of groups have been added already.
            if wanted.keys and not first.alike and (found := self._candidate.mapped(first.subject)):
                for name in partitions.keys(found[0].source, found[1]):
                    if upper(name) in uppers and (key := entry(name)) in wanted.keys:
                        names.keys[key] = name
            if wanted.merged:
                for becomes, parts in targets(cases).items():
                    for key, some, of_some in first.with_hash(becomes, parts, wanted.merged):
                        names.merged[key].add(some, becomes, of_some)
            for stream in limited:
                keys = {key for name, key in wanted.limited if name == stream}
                for becomes, parts in delivery.stored_as(stream, cases).items():
                    for key, some, of_some in first.with_hash(becomes, parts, keys):
                        names.limited[stream, key].add(some, becomes, of_some)

    def found(self, names: Names) -> DryRun:
        """The result of the dry run, when all subjects have been read."""
        total = self.messages * PARTS
        findings = [_finding(told, total) for told in self.told(names)]
        findings.sort(key=lambda f: (f.severity.rank, -f.messages, f.code, f.about))
        changes, way_back = self.of(Changes), self.of(WayBack)
        fates_before, fates_after = changes.fates()
        distinct = self.of(Collisions).distinct
        balances = [spread.balance(names.keys) for spread in self.of(Partitions).ordered]
        return DryRun(
            messages=self.messages,
            subjects=self.subjects,
            changed_messages=whole(changes.changed.parts),
            changed_subjects=changes.changed.subjects,
            subjects_before=distinct.before,
            subjects_after=distinct.after,
            bytes=self.bytes,
            clusters=tuple(sorted(name for name in self.of(RuleHits).clusters if name)),
            fates_before=fates_before,
            fates_after=fates_after,
            findings=tuple(findings),
            changes=changes.changes(total),
            flows=changes.flows(),
            partitions=tuple(balance for balance in balances if balance is not None),
            levels=self.of(Hygiene).levels(),
            reverse=tuple(way_back.mappings.mappings),
            is_reversible=not way_back.stuck.subjects,
        )

    def told(self, names: Names) -> Iterator[Told]:
        """The findings, worst first."""
        for one in self._analyses.values():
            yield from one.told(names)
        yield from checked(self._question, self.of(RuleHits))
