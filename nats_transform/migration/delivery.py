"""Who gets the messages: streams, their limits, mirrors, sources, republish, and consumers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nats_transform.consumer import Consumer
from nats_transform.errors import shown
from nats_transform.mapping import Outcome
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.case import Case, rise
from nats_transform.migration.count import EXAMPLES, PARTS, Amount, Count, messages, total
from nats_transform.migration.names import Limited, Names, listed, of_groups
from nats_transform.migration.question import Question
from nats_transform.migration.rows import Groups, Largest, Store
from nats_transform.migration.seen import Seen
from nats_transform.network import Facts, Network
from nats_transform.stream import StreamConfig

Condition = tuple[str, ...]
"""The code of a finding, and the streams that it is about."""


class Delivery(Analysis):
    """Counts the messages that streams and consumers get.

    Attributes:
        number: tells this one from those of other layers.
    """

    def __init__(self, question: Question, store: Store, number: int) -> None:
        self.number = number
        self._network = Network(question.streams)
        self._consumers = question.consumers
        self._seen = Seen(question)
        self._with_ingress = {s.name for s in self._network.streams if s.ingress_transform}
        self._with_republish = {s.name for s in self._network.streams if s.republish_transform}
        self._upstreams = {
            (stream.name, upstream.name)
            for stream in self._network.streams
            for upstream in stream.upstreams
            if upstream.external is None
        }
        self._watched: list[tuple[Condition, str]] = [
            *((("ingress-stops", name), name) for name in self._with_ingress),
            *((("republish-stops", name), name) for name in self._with_republish),
            *((("source-stops", *pair), pair[1]) for pair in self._upstreams),
        ]
        self._counts: dict[Condition, Count] = defaultdict(Count)
        self._gone: dict[Consumer, Count] = defaultdict(Count)
        self._more: dict[Consumer, Count] = defaultdict(Count)
        self._left: dict[Consumer, int] = defaultdict(int)
        self._limited = {s.name: s for s in self._network.streams if s.max_msgs_per_subject > 0}
        self._stored: dict[str, tuple[Groups, Groups]] = {
            name: (Groups(store), Groups(store)) for name in self._limited
        }

    def add(self, cases: list[Case], after: Mapping[str, Amount]) -> None:
        if not self._network.streams:
            return
        facts: dict[str | None, Facts] = {}
        for case in cases:
            # For most subjects nothing changes.
            first, differ = None, False
            for outcome, _ in (*case.before, *case.after):
                one = facts.get(outcome.subject)
                if one is None:
                    one = facts[outcome.subject] = self._network.facts(outcome.subject)
                if first is None:
                    first = one
                elif one is not first and not differ:
                    differ = _ways(one) != _ways(first)
            if differ:
                self._capture(case, facts)
                if self._watched:  # no republish, no loop
                    self._conditions(case, facts)
            if self._consumers:
                self._consume(case, facts)
        for name, sides in self._stored.items():
            for groups, stored in zip(sides, self._stored_in(name, cases, facts), strict=True):
                for subject, parts in stored.items():
                    groups.add(cases[0].hashed(subject), parts)

    def _capture(self, case: Case, facts: dict[str | None, Facts]) -> None:
        def streams(outcome: Outcome) -> frozenset[str] | None:
            return None if outcome.subject is None else facts[outcome.subject].captured

        before = [s for outcome, _ in case.before if (s := streams(outcome)) is not None]
        most = max(map(len, before), default=0)
        for captured, outcome, parts in rise(case, streams):
            names = tuple(sorted(captured))
            condition: Condition
            if not captured:
                if not most:
                    continue
                condition = ("not-captured", *sorted(frozenset().union(*before)))
            elif not most:
                condition = ("newly-captured", *names)
            elif len(captured) > most:
                condition = ("captured-twice", *names)
            else:
                condition = ("captured-elsewhere", *names)
            self._counts[condition].add(case, outcome.subject, parts)

    def _conditions(self, case: Case, facts: dict[str | None, Facts]) -> None:
        held = [facts[o.subject] for o, _ in case.before if o.subject is not None]
        for condition, stream in self._watched:
            if not any(_applies(condition, one) for one in held):
                continue

            def stops(
                outcome: Outcome, condition: Condition = condition, stream: str = stream
            ) -> bool | None:
                if outcome.subject is None:
                    return None
                one = facts[outcome.subject]
                stored = any(name == stream for name, _ in one.stored)
                return True if stored and not _applies(condition, one) else None

            for _, outcome, parts in rise(case, stops):
                self._counts[condition].add(case, outcome.subject, parts)
        for name in self._with_republish:

            def loops(outcome: Outcome, name: str = name) -> bool | None:
                subject = outcome.subject
                return True if subject is not None and name in facts[subject].loops else None

            for _, outcome, parts in rise(case, loops):
                self._counts["republish-loop", name].add(case, outcome.subject, parts)

    def _consume(self, case: Case, facts: dict[str | None, Facts]) -> None:
        for consumer in self._consumers:
            before, after = (
                sum(
                    percent
                    for outcome, percent in outcomes
                    if outcome.subject is not None
                    and _gets(consumer, outcome.subject, facts[outcome.subject])
                )
                for outcomes in (case.before, case.after)
            )
            self._left[consumer] += total(after * case.messages)
            if before != after:
                side = self._gone if before > after else self._more
                parts = abs(before - after) * case.messages
                side[consumer].add(case, case.becomes, parts)

    def _stored_in(
        self, stream: str, cases: Iterable[Case], facts: dict[str | None, Facts]
    ) -> tuple[dict[str, Amount], dict[str, Amount]]:
        found: tuple[dict[str, Amount], dict[str, Amount]] = ({}, {})
        for case in cases:
            for sums, outcomes in zip(found, (case.before, case.after), strict=True):
                _add_stored(sums, stream, outcomes, case.messages, facts)
        return found

    def told(self, names: Names) -> Iterator[Told]:
        for limit in self.limits:
            yield limit.told(
                [names.limited[self.number, limit.stream, key] for key in limit.largest]
            )
        for condition, count in self._counts.items():
            code, *streams = condition
            whose = streams[:1] if code == "source-stops" else streams
            about = " and ".join(f"stream {shown(name)}" for name in whose)
            yield code, about, _message(code, [shown(name) for name in streams]), count
        for consumer in self._consumers:
            yield from self._told_of(consumer)
        unseen = [
            shown(f"{one.stream}/{one.name}")
            for one in self._consumers
            if self._gets_nothing(one) and not self._seen.shows_all_of(one)
        ]
        if unseen:
            told = "the archive cannot show whether these consumers get messages: " + listed(unseen)
            yield "consumer-not-seen", "", told, Count()

    def _gets_nothing(self, consumer: Consumer) -> bool:
        """Whether no message of the archive comes to a consumer, today or after the switch."""
        return not (self._left[consumer] or self._gone[consumer].subjects)

    def _told_of(self, consumer: Consumer) -> Iterator[Told]:
        about = f"consumer {shown(consumer.name)} of stream {shown(consumer.stream)}"
        left, gone, more = self._left[consumer], self._gone[consumer], self._more[consumer]
        if gone.subjects:
            code = "consumer-fewer" if left else "consumer-none"
            told = "the consumer will not get these messages"
            told += f"; it will still get {messages(left)}" if left else ", and no others either"
            yield code, about, told, gone
        if more.subjects:
            yield "consumer-more", about, "the consumer will get these messages too", more
        if self._gets_nothing(consumer) and self._seen.shows_all_of(consumer):
            filters = " and ".join(map(shown, consumer.filters))
            told = (
                f"the filter {filters} matches no message of the stream, today or after the switch"
            )
            yield "consumer-never", about, told, Count()

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """The streams that will drop or refuse more messages, when all have been added."""
        found = (self._limit(self._limited[name], *sides) for name, sides in self._stored.items())
        return tuple(limit for limit in found if limit.parts > 0)

    def _limit(self, config: StreamConfig, before: Groups, after: Groups) -> Limit:
        room = config.max_msgs_per_subject * PARTS
        rise = subjects = 0
        largest = Largest(EXAMPLES)
        for _, parts, _ in before.sums():
            rise -= int(np.maximum(0, parts - room).sum())
        for keys, parts, sizes in after.sums():
            over = np.maximum(0, parts - room)
            rise += int(over.sum())
            shared = (over > 0) & (sizes > 1)
            subjects += int(sizes[shared].sum())
            largest.add(keys[shared], over[shared])
        return Limit(
            "limit-refuses" if config.discard_new_per_subject else "limit-discards",
            config.name,
            config.max_msgs_per_subject,
            rise,
            subjects,
            frozenset(largest.keys),
        )

    @property
    def wanted(self) -> Iterator[Limited]:
        """The stored subjects whose names a finding needs."""
        for limit in self.limits:
            yield from ((self.number, limit.stream, key) for key in limit.largest)

    def stored_as(self, stream: str, cases: list[Case]) -> dict[str, Amount]:
        """The subjects under which a stream will store one subject, each with parts of messages."""
        found: dict[str, Amount] = {}
        subjects = {outcome.subject for case in cases for outcome, _ in case.after}
        facts = {s: self._network.facts(s) for s in subjects}
        for case in cases:
            _add_stored(found, stream, case.after, case.messages, facts)
        return found


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of messages per subject that will drop or refuse more messages than today.

    Attributes:
        code: whether the stream discards or refuses messages.
        stream: the name of the stream.
        limit: how many messages the stream keeps of each subject.
        parts: the messages beyond the limit, without those that are beyond it today, in parts.
        subjects: the number of subjects that share a stored subject which is over the limit.
        largest: the hashes of the stored subjects that are furthest over the limit.
    """

    code: str
    stream: str
    limit: int
    parts: int
    subjects: int
    largest: frozenset[int]

    def told(self, groups: Iterable[Count]) -> Told:
        """The finding, with subjects that share a limit."""
        verb = "refused" if self.code == "limit-refuses" else "discarded"
        return (
            self.code,
            f"stream {shown(self.stream)}",
            f"the stream keeps {self.limit:,} messages of each subject, and some subjects become "
            f"one: {messages(self.parts)} more are {verb}",
            of_groups(groups, self.parts, self.subjects),
        )


def _add_stored(
    sums: dict[str, Amount],
    stream: str,
    outcomes: Iterable[tuple[Outcome, int]],
    messages: Amount,
    facts: Mapping[str | None, Facts],
) -> None:
    """Add the parts that a stream stores to the sum of the subject that it stores them under."""
    for outcome, percent in outcomes:
        if outcome.subject is None:
            continue
        for name, stored in facts[outcome.subject].stored:
            if name == stream:
                subject = outcome.subject if stored is None else stored
                sums[subject] = sums.get(subject, 0) + percent * messages


def _gets(consumer: Consumer, subject: str, facts: Facts) -> bool:
    """Whether a consumer gets a message with a subject; the facts are those of the subject."""
    return any(
        stream == consumer.stream and consumer.wants(subject if stored is None else stored)
        for stream, stored in facts.stored
    )


def _ways(facts: Facts) -> tuple[frozenset[Any], ...]:
    """The facts of a subject, without the names that it is stored under."""
    return facts.captured, facts.ingress, facts.taken, facts.republished, facts.loops


def _applies(condition: Condition, facts: Facts) -> bool:
    code, stream, *upstream = condition
    match code:
        case "ingress-stops":
            return stream in facts.ingress
        case "republish-stops":
            return stream in facts.republished
        case _:
            return (stream, upstream[0]) in facts.taken


def _message(code: str, names: list[str]) -> str:
    all_of_them = " and ".join(names)
    match code:
        case "not-captured":
            return f"no stream will store these messages; today they are stored in {all_of_them}"
        case "captured-elsewhere":
            return f"these messages will be stored in {all_of_them}"
        case "captured-twice":
            return (
                f"{all_of_them} capture the same messages; nats-server refuses one of the streams"
            )
        case "newly-captured":
            return f"{all_of_them} will store these messages, and no stream stores them today"
        case "ingress-stops":
            return f"the subject transform of stream {all_of_them} will not match these messages"
        case "source-stops":
            return f"stream {names[0]} will not take these messages from {names[1]}"
        case "republish-stops":
            return f"stream {all_of_them} will not republish these messages"
        case _:
            return f"{all_of_them} republishes these messages, and they come back to it without end"
