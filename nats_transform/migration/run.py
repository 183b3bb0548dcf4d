"""A dry run: what a candidate mapping would do to the subjects of an archive.

The subjects are read twice, in parts, and are not kept. Only hashes and counts of them are, and
those go into a file if they are too many for memory. The second reading finds the names of the
largest groups. Weights count as exact shares.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from nats_transform.findings import Severity
from nats_transform.mapping import Mapping as SubjectMapping
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.case import Case, Matcher
from nats_transform.migration.changes import Change, Changes, Flow
from nats_transform.migration.collisions import Collisions, WayBack, targets
from nats_transform.migration.count import PARTS, Count, total, whole
from nats_transform.migration.delivery import Delivery
from nats_transform.migration.findings import ALL, STOPS_PLAN, Layer, MigrationFinding
from nats_transform.migration.hygiene import Hygiene, Level
from nats_transform.migration.layers import Layers, layers
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
        findings: the findings as things are, worst first, then largest first.
        with_room: what would be found if streams, and then everything else, had room for the new
            subjects; without what `findings` has.
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
    with_room: tuple[MigrationFinding, ...]
    changes: tuple[Change, ...]
    flows: tuple[Flow, ...]
    partitions: tuple[Balance, ...]
    levels: tuple[Level, ...]
    reverse: tuple[SubjectMapping, ...]
    is_reversible: bool


ANALYSES: tuple[Callable[[Question, Store], Analysis], ...] = (
    lambda question, store: Changes(),
    lambda question, store: Collisions(question.candidate, store),
    lambda question, store: WayBack(question.candidate),
    lambda question, store: Partitions(question.current, question.candidate, store),
    lambda question, store: RuleHits(question),
    lambda question, store: Hygiene(),
)
"""The analyses of the mappings. A new analysis needs a module of its own and a line here."""

LAYERED: tuple[
    tuple[Callable[[Question], object], Callable[[Question, Store, int], Analysis]], ...
] = (
    (attrgetter("streams", "consumers"), Delivery),
    (attrgetter("shared"), lambda question, store, number: Sharing(question.shared)),
    (attrgetter("users"), lambda question, store, number: Access(question.users)),
)
"""The analyses of what depends on subjects, each with the part of the question that it looks at.
They are made again for a layer in which that part differs."""


class Run:
    """All analyses of one question.

    Attributes:
        layers: the question as it is asked, and with room for the new subjects.
    """

    def __init__(self, question: Question, store: Store) -> None:
        self._question = question
        self.layers = layers(question)
        self._candidate = Matcher(question.candidate)
        self.messages = self.subjects = self.bytes = 0
        self._plain = [make(question, store) for make in ANALYSES]
        self._layered: dict[Layer, list[Analysis]] = {layer: [] for layer in Layer}
        self._analyses = [*self._plain]
        for part, make in LAYERED:
            known: list[tuple[object, Analysis]] = []
            for layer, asked in self.layers.questions.items():
                same = (analysis for looks_at, analysis in known if looks_at == part(asked))
                analysis = next(same, None) or make(asked, store, len(known))
                known.append((part(asked), analysis))
                self._layered[layer].append(analysis)
            self._analyses += dict.fromkeys(analysis for _, analysis in known)

    def of(self, kind: type[_A]) -> _A:
        """The analysis of a class; of a layered one that of the question as it is asked."""
        return next(self._all(kind))

    def _all(self, kind: type[_A]) -> Iterator[_A]:
        return (analysis for analysis in self._analyses if isinstance(analysis, kind))

    def read(self, subjects: Iterable[list[Case]]) -> None:
        """Count subjects, or groups that are alike."""
        adds = [one.add for one in self._analyses]
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
            frozenset(one for delivery in self._all(Delivery) for one in delivery.wanted),
            frozenset().union(*(one.totals.largest for one in self.of(Partitions).ordered)),
        )

    def name(self, wanted: Wanted, subjects: Iterable[list[Case]], names: Names) -> None:
        """Add the names behind the hashes, of subjects or of groups that are alike."""
        uppers = {key >> 32 for key in wanted.keys}
        limited: dict[tuple[Delivery, str], set[int]] = defaultdict(set)
        for delivery in self._all(Delivery):
            for number, stream, key in wanted.limited:
                if number == delivery.number:
                    limited[delivery, stream].add(key)
        partitions = self.of(Partitions)
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
            for (delivery, stream), keys in limited.items():
                for becomes, parts in delivery.stored_as(stream, cases).items():
                    for key, some, of_some in first.with_hash(becomes, parts, keys):
                        names.limited[delivery.number, stream, key].add(some, becomes, of_some)

    def found(self, names: Names) -> DryRun:
        """The result of the dry run, when all subjects have been read."""
        total = self.messages * PARTS
        findings = self._findings(names, total)
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
            findings=tuple(one for one in findings if one.layer is Layer.NOW),
            with_room=tuple(one for one in findings if one.layer is not Layer.NOW),
            changes=changes.changes(total),
            flows=changes.flows(),
            partitions=tuple(balance for balance in balances if balance is not None),
            levels=self.of(Hygiene).levels(),
            reverse=tuple(way_back.mappings.mappings),
            is_reversible=not way_back.stuck.subjects,
        )

    def _findings(self, names: Names, total: int) -> list[MigrationFinding]:
        """The findings, those of a layer only if no layer before it has them; worst first."""
        told = {layer: list(self._told(layer, names)) for layer in Layer}
        always = [told for one in self._plain for told in one.told(names)]
        always += checked(self._question, self.of(RuleHits))
        also = {one[:2] for one in always}
        always += (one for one in _obstacles(self.layers, Layer.NOW) if one[:2] not in also)
        lasting = {one[:2] for one in (*always, *told[Layer.BOTH])}
        known: set[tuple[str, str]] = set()
        findings = []
        for layer in Layer:
            here = [*(always if layer is Layer.NOW else ()), *told[layer]]
            for code, about, message, count in here:
                severity = ALL[code].severity
                stops = severity is Severity.ERROR or code in STOPS_PLAN
                is_new = (code, about) not in known
                if layer is Layer.NOW or (
                    is_new and (stops if layer is Layer.BOTH else severity is not Severity.INFO)
                ):
                    findings.append(
                        MigrationFinding(
                            code,
                            about,
                            message,
                            whole(count.parts),
                            count.subjects,
                            100 * count.parts / max(1, total),
                            count.examples,
                            layer,
                            stops and (code, about) in lasting,
                        )
                    )
            known |= {one[:2] for one in here}
        layers = list(Layer)
        return sorted(
            findings,
            key=lambda f: (layers.index(f.layer), f.severity.rank, -f.messages, f.code, f.about),
        )

    def _told(self, layer: Layer, names: Names) -> Iterator[Told]:
        for analysis in self._layered[layer]:
            yield from analysis.told(names)
        if layer is not Layer.NOW:
            yield from _obstacles(self.layers, layer)


def _obstacles(layers: Layers, layer: Layer) -> Iterator[Told]:
    return ((*obstacle[:3], Count()) for obstacle in layers.obstacles[layer])
