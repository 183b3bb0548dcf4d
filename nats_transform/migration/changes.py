"""Counts the subjects whose result differs between the mappings, and their messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from nats_transform.errors import shown
from nats_transform.mapping import Fate, Outcome
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.case import Case, rise
from nats_transform.migration.count import Count, total, whole
from nats_transform.migration.findings import Example
from nats_transform.migration.names import Names
from nats_transform.subject import SEPARATOR, is_valid_publish_subject

_MOST_PREFIXES = 20_000
OTHER = "(other)"
"""This stands for all prefixes with few messages, if there are too many to show each."""


@dataclass(frozen=True, slots=True)
class Change:
    """The messages that one rule maps today and another rule would map.

    Attributes:
        before, after: the source and destination of the rules; None if no mapping applies.
        messages, subjects: how many messages and subjects there are.
        share: the messages in percent of all messages.
        examples: the largest examples.
    """

    before: str | None
    after: str | None
    messages: float
    subjects: int
    share: float
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages from one prefix of the namespace to another.

    Attributes:
        before, after: the first tokens under the current mapping and under the candidate; None if
            nobody gets the messages.
        messages: how many messages there are.
    """

    before: str | None
    after: str | None
    messages: float


class Changes(Analysis):
    """Counts the subjects and messages that change."""

    def __init__(self) -> None:
        self._changes: dict[tuple[str | None, str | None], Count] = defaultdict(Count)
        self._codes: dict[str, Count] = defaultdict(Count)
        self._flow: Counter[tuple[str | None, str | None]] = Counter()
        self._fates: tuple[Counter[Fate], Counter[Fate]] = (Counter(), Counter())
        self.changed = Count()

    def add_case(self, case: Case) -> None:
        for counter, outcomes in zip(self._fates, (case.before, case.after), strict=True):
            for outcome, percent in outcomes:
                counter[outcome.fate] += total(percent * case.messages)
        if case.before[0][0].fate is Fate.INVALID and case.before[0][0].mapping_source is None:
            self._codes["illegal-subject"].add(case, None, case.parts)
            return
        rule = _rule(case.before[0][0])
        for _, outcome, parts in rise(case, _result):
            self._changes[rule, _rule(outcome)].add(case, outcome.subject, parts)
            self.changed.add(case, outcome.subject, parts)
        for code, outcome, parts in rise(case, _fault):
            self._codes[code].add(case, outcome.subject, parts)
        if not case.covering:
            mapped = case.before[0][0].mapping_source is not None
            if mapped:
                self._codes["no-longer-mapped"].add(case, case.becomes, case.parts)
            # Subjects of the server itself ($KV.>, $O.>) belong to no namespace that moves.
            elif not (case.subject or "").startswith("$"):
                self._codes["unmatched"].add(case, case.becomes, case.parts)
        self._add_flow(case)

    def _add_flow(self, case: Case) -> None:
        starts = [(prefix(before.subject), before, percent) for before, percent in case.before]
        for after, other in case.after:
            end = prefix(after.subject)
            for start, before, one in starts:
                parts = one * other * case.messages // 100
                if case.alike is None or isinstance(parts, int):
                    self._flow[start, end] += total(parts)
                else:
                    self._flow.update(case.alike.flow(before.subject, after.subject, parts))
        self._fold()

    def told(self, names: Names) -> Iterator[Told]:
        for code, count in self._codes.items():
            yield code, "", _MESSAGES[code], count

    def changes(self, total: int) -> tuple[Change, ...]:
        """The changes, one for each pair of rules, the largest first."""
        ordered = sorted(self._changes.items(), key=lambda item: (-item[1].parts, _names(item[0])))
        return tuple(
            Change(
                before,
                after,
                whole(count.parts),
                count.subjects,
                100 * count.parts / max(1, total),
                count.examples,
            )
            for (before, after), count in ordered
        )

    def flows(self) -> tuple[Flow, ...]:
        """The flows between prefixes, the largest first."""
        ordered = sorted(self._flow.items(), key=lambda item: (-item[1], _names(item[0])))
        return tuple(Flow(*way, whole(parts)) for way, parts in ordered)

    def fates(self) -> tuple[dict[str, float], dict[str, float]]:
        """The number of messages of each fate, before and after."""
        before, after = (
            {fate.value: whole(counter[fate]) for fate in Fate if counter[fate]}
            for counter in self._fates
        )
        return before, after

    def _fold(self) -> None:
        if len(self._flow) <= _MOST_PREFIXES:
            return
        kept = self._flow.most_common(_MOST_PREFIXES // 2)
        rest = self._flow.total() - sum(parts for _, parts in kept)
        self._flow = Counter(dict(kept))
        self._flow[OTHER, OTHER] += rest


_MESSAGES = {
    "lost": "the weights of the candidate lose these messages",
    "illegal-result": "the candidate makes these subjects illegal",
    "illegal-subject": "these archived subjects are not legal",
    "unmatched": "no mapping of the candidate covers these subjects",
    "no-longer-mapped": "the current mapping covers these subjects, and the candidate does not",
}


def prefix(subject: str | None) -> str | None:
    """The first two tokens of a subject, or the only one."""
    if subject is None:
        return None
    # Quicker than to split and join.
    after = subject.find(SEPARATOR, subject.find(SEPARATOR) + 1)
    return subject if after < 0 else subject[:after]


def _names(pair: tuple[str | None, str | None]) -> tuple[str, str]:
    return pair[0] or "", pair[1] or ""


def _result(outcome: Outcome) -> tuple[str | None]:
    # In a tuple, because None is a result too: nobody gets the message.
    return (outcome.subject,)


def _fault(outcome: Outcome) -> str | None:
    if outcome.fate is Fate.LOST:
        return "lost"
    if outcome.fate is Fate.INVALID:
        return "illegal-result"
    if outcome.subject is not None and not is_valid_publish_subject(outcome.subject):
        return "illegal-result"
    return None


def _rule(outcome: Outcome) -> str | None:
    source = outcome.mapping_source
    return None if source is None else _ruled(source, outcome.mapping_destination)


@lru_cache(maxsize=2**14)  # every subject asks for the same few
def _ruled(source: str, destination: str | None) -> str:
    if destination == source:  # the remainder of the weights, or the source among its destinations
        return f"{shown(source)}, which keeps the subject"
    return f"{shown(source)} -> {'nobody' if destination is None else shown(destination)}"
