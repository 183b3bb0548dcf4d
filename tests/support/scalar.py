"""A dry run subject by subject, by the scalar library: what one over tables must find."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

from nats_transform.config.permissions import Allowance
from nats_transform.errors import shown
from nats_transform.mappings.functions import Random, fnv1a
from nats_transform.mappings.mapping import AccountMappings, Fate, Mapping, Outcome
from nats_transform.mappings.subject import (
    encode,
    is_valid_publish_subject,
    literal_fault,
    subscribes,
)
from nats_transform.mappings.symbolic import reversed_mappings
from nats_transform.migration import Question
from nats_transform.streams.features import CARRIED_WITH, features, sums
from nats_transform.streams.network import Network, Via, republisher
from nats_transform.streams.stream import StreamConfig
from tests.support.dry_runs import CensusRow

Ends = list[tuple[Outcome, int]]
Kind = Callable[[Outcome], Hashable]


@dataclass(frozen=True, slots=True)
class Facts:
    """The streams that a subject comes to, and what they do with it.

    Attributes:
        captured: the streams that capture the published subject.
        stored: each stream that stores it, by any way, with the stored subject; None stands for the
            subject itself.
        ingress: the streams whose ingress transform applies.
        taken: pairs of a stream and the stream that it takes the message from.
        republished: the streams that republish it.
        loops: the streams whose republish brings it round without end.
        caught: pairs of a stream and the stream whose republished message it captures.
        raw: those of `taken` whose transforms do not apply.
        repeated: the streams that store it several times.
        copies: each stream that republishes it, with the subject.
    """

    captured: frozenset[str] = frozenset()
    stored: frozenset[tuple[str, str | None]] = frozenset()
    ingress: frozenset[str] = frozenset()
    taken: frozenset[tuple[str, str]] = frozenset()
    republished: frozenset[str] = frozenset()
    loops: frozenset[str] = frozenset()
    caught: frozenset[tuple[str, str]] = frozenset()
    raw: frozenset[tuple[str, str]] = frozenset()
    repeated: frozenset[str] = frozenset()
    copies: frozenset[tuple[str, str]] = frozenset()

    def texts(self, subject: str | None, copied: str | None) -> set[str]:
        """The subject, or those under which a stream republishes it."""
        if copied is None:
            return set() if subject is None else {subject}
        return {text for name, text in self.copies if name == copied}


def facts_of(network: Network, subject: str | None) -> Facts:
    """The facts of a subject. They are empty if nobody gets the message."""
    if subject is None:
        return Facts()
    arrivals = network.arrivals(subject)
    stored = [arrival for arrival in arrivals if not arrival.repeats]
    pairs = [(a, (a.stream, arrivals[a.origin].stream)) for a in arrivals if a.origin is not None]
    times = Counter(a.stream for a in stored)
    return Facts(
        captured=frozenset(a.stream for a in arrivals if a.via is Via.CAPTURE),
        stored=frozenset((a.stream, None if a.subject == subject else a.subject) for a in stored),
        ingress=frozenset(a.stream for a in stored if a.is_mapped),
        taken=frozenset(pair for a, pair in pairs if a.via is not Via.REPUBLISH),
        caught=frozenset(pair for a, pair in pairs if a.via is Via.REPUBLISH),
        raw=frozenset(
            pair
            for a, pair in pairs
            if not a.taken.mapping_destination and any(r.transform for r in network.rules(a))
        ),
        repeated=frozenset(name for name in times if times[name] > 1),
        copies=frozenset((a.stream, a.republished.subject) for a in stored if a.republished),
        republished=frozenset(a.stream for a in stored if a.republished is not None),
        loops=frozenset(republisher(arrivals, a) for a in arrivals if a.repeats) - {""},
    )


@dataclass
class Tally:
    """Hundredths of messages, and subjects."""

    parts: int = 0
    subjects: set[str | None] = field(default_factory=set)

    def add(self, subject: str | None, parts: int) -> None:
        self.parts += parts
        self.subjects.add(subject)

    @property
    def numbers(self) -> tuple[float, int]:
        return self.parts / 100, len(self.subjects)


class Mapped:
    """One side of the comparison."""

    def __init__(self, mappings: AccountMappings) -> None:
        self.mappings = mappings.mappings

    def covering(self, subject: str) -> list[int]:
        tokens = subject.split(".")
        return [n for n, mapping in enumerate(self.mappings) if mapping.filter.covers(tokens)]

    def tokens(self, subject: str) -> Sequence[str]:
        """The tokens that mapping functions get; none if nats-server does not split the subject."""
        covering = self.covering(subject)
        is_whole = covering[:1] == [0] and self.mappings[0].source == subject
        return () if is_whole else subject.split(".")

    def ends(self, row: CensusRow, side: int) -> Ends:
        if row.subject is None or literal_fault(row.subject):
            return [(Outcome(None, Fate.INVALID), 100)]
        covering = self.covering(row.subject)
        if not covering:
            return [(Outcome(row.subject, Fate.UNMATCHED), 100)]
        mapping, tokens = self.mappings[covering[0]], self.tokens(row.subject)
        ends = [
            (mapping.outcome(share, tokens, None, None), share.weight)
            for share in mapping.shares(row.cluster)
            if share.weight
        ]
        if row.chosen is None:
            return ends
        return [(end, 100) for end, _ in ends if end.mapping_destination == row.chosen[side]]

    def numbers(self, end: Outcome) -> int:
        """How many subjects the `random()` of an end makes, which share its messages equally."""
        return max(
            (
                prod(max(1, abs(one.count)) for one in transform.tokens if isinstance(one, Random))
                for mapping in self.mappings
                for transform in mapping.transforms
                if (mapping.source, transform.destination)
                == (end.mapping_source, end.mapping_destination)
            ),
            default=1,
        )

    def partitions(self, subject: str, ends: Ends) -> list[tuple[Any, str, int, int]]:
        """Rule, key, hash and percent of each end with a `partition()`."""
        found = []
        for end, percent in ends:
            for mapping in self.mappings:
                for transform in mapping.transforms if mapping.source == end.mapping_source else ():
                    if transform.partition and transform.destination == end.mapping_destination:
                        key = transform.partition.key(self.tokens(subject))
                        rule = (mapping.source, transform.destination, transform.partition)
                        found.append((rule, key, fnv1a(encode(key)), percent))
        return found


def rises(before: Ends, after: Ends, kind: Kind) -> dict[Any, int]:
    """The kinds of outcome that become likelier, with the percent of the gain."""
    gains: Counter[Hashable] = Counter()
    for sign, ends in ((-1, before), (1, after)):
        for end, percent in ends:
            if (name := kind(end)) is not None:
                gains[name] += sign * percent
    return {name: gain for name, gain in gains.items() if gain > 0}


def among(facts: dict[str | None, Facts], how: str, what: Hashable) -> Kind:
    """Says of an outcome whether one of its facts has something."""
    return lambda end: what in getattr(facts[end.subject], how) or None


def stays(end: Outcome, before: Ends, facts: dict[str | None, Facts], stream: str) -> bool:
    """Whether a stream stores a message under a name that it has today."""

    def names(one: Outcome) -> set[str | None]:
        stored = facts[one.subject].stored
        return {text or one.subject for name, text in stored if name == stream}

    return not names(end).isdisjoint({name for one, _ in before for name in names(one)})


def undo(mappings: Sequence[Mapping], subject: str) -> str:
    tokens = subject.split(".")
    for number, mapping in enumerate(mappings):
        if mapping.filter.covers(tokens):
            whole = number == 0 and mapping.source == subject
            (share,) = mapping.shares()
            return (
                share.transform.evaluate(() if whole else tokens, None) if share.transform else ""
            )
    return subject


class Change(NamedTuple):
    """What becomes of the messages of a row today and under the candidate, with all facts."""

    row: CensusRow
    before: Ends
    after: Ends
    facts: dict[str | None, Facts]


class Oracle:
    """The counts of a dry run in one layer of a question."""

    def __init__(self, census: Iterable[CensusRow], question: Question) -> None:
        self.question, self.network = question, question.network
        self.current, self.candidate = Mapped(question.current), Mapped(question.candidate)
        self.back = reversed_mappings(question.candidate.mappings).mappings
        self.tallies: dict[tuple[str, Hashable], Tally] = defaultdict(Tally)
        self.left: Counter[Hashable] = Counter()
        self.changed = Tally()
        self.changes: dict[tuple[Any, Any], Tally] = defaultdict(Tally)
        self.flows: Counter[tuple[str | None, str | None]] = Counter()
        self.fates: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self.results: tuple[dict[str, dict[str | None, int]], ...] = (
            defaultdict(Counter), defaultdict(Counter))  # fmt: skip
        self.today: dict[str | None, set[str]] = defaultdict(set)
        # The changed results by their text without capitals.
        self.changed_results: dict[bytes, set[str]] = defaultdict(set)
        self.keys: dict[Any, Counter[tuple[str, int]]] = defaultdict(Counter)
        self.moved: dict[Any, set[str]] = defaultdict(set)
        self.stored: dict[tuple[str, int], dict[str, dict[str | None, int]]] = defaultdict(
            lambda: defaultdict(Counter)
        )
        # How many subjects a stored text stands for, because it has a `random()`.
        self.numbers: dict[tuple[str, int, str], int] = defaultdict(lambda: 1)
        self.clusters: set[str | None] = set()
        self.makers: dict[str | None, int] = {}
        self.rows = list(census)
        for row in self.rows:
            self._add(row)

    def tally(self, code: str, about: Hashable, row: CensusRow, percent: int) -> None:
        self.tallies[code, about].add(row.subject, percent * row.messages)

    def gains(self, code: str, about: Hashable, change: Change, kind: Kind) -> None:
        """Tallies the messages of each kind of outcome that becomes likelier."""
        for gain in rises(change.before, change.after, kind).values():
            self.tally(code, about, change.row, gain)

    def _add(self, row: CensusRow) -> None:
        before, after = self.current.ends(row, 0), self.candidate.ends(row, 1)
        self.clusters.add(row.cluster)
        for side, ends in enumerate((before, after)):
            for end, percent in ends:
                self.fates[side][end.fate] += percent * row.messages
                if end.subject is not None:
                    self.results[side][end.subject][row.subject] += percent * row.messages
        if row.subject is None or literal_fault(row.subject):
            self.tally("illegal-subject", "", row, 100)
            return
        covering = self.candidate.covering(row.subject)
        self.makers[row.subject] = covering[0] if covering else -1
        self.today[row.subject] |= {end.subject for end, _ in before if end.subject is not None}
        was = max(before, key=lambda one: one[1])[0].subject
        for end, _ in after:
            if end.subject is not None and was not in (None, end.subject):
                self.changed_results[encode(end.subject).lower()].add(end.subject)
        facts = {end.subject: facts_of(self.network, end.subject) for end, _ in (*before, *after)}
        change = Change(row, before, after, facts)
        self._change(change, covering)
        self._partition(change)
        for copied in (None, *(stream.name for stream in self.network.streams)):
            self._access(change, copied)
            self._share(change, copied)
        self._deliver(change)
        for stream in self.network.streams if self.question.streams else ():
            self._pass_on(change, stream)
        self._headers(change)
        for first, *others in [covering] if covering else []:
            self.tally("hit", first, row, 100)
            self.tallies["cluster", (first, row.cluster)].add(row.subject, 0)
            for other in others:
                self.tally("covered", other, row, 100)
                self.tally("pair", (first, other), row, 100)

    def _change(self, change: Change, covering: list[int]) -> None:
        row, before, after, _ = change

        def rule(end: Outcome) -> Any:
            return end.mapping_source and (end.mapping_source, end.mapping_destination)

        ends = {(end.subject,): end for end, _ in sorted(after, key=lambda one: one[1])}
        best: dict[Any, tuple[int, Outcome]] = {}
        for end, percent in after:
            if (end.subject,) not in best or percent > best[end.subject,][0]:
                best[end.subject,] = percent, end
        for name, gain in rises(before, after, lambda end: (end.subject,)).items():
            assert name in ends
            self.changed.add(row.subject, gain * row.messages)
            pair = rule(before[0][0]), rule(best[name][1])
            self.changes[pair].add(row.subject, gain * row.messages)

        def fault(end: Outcome) -> str | None:
            if end.fate is Fate.LOST:
                return "lost"
            illegal = end.subject is not None and not is_valid_publish_subject(end.subject)
            return "illegal-result" if illegal or end.fate is Fate.INVALID else None

        for code, gain in rises(before, after, fault).items():
            self.tally(code, "", row, gain)
        if not covering and before[0][0].mapping_source is not None:
            self.tally("no-longer-mapped", "", row, 100)
        elif not covering and not (row.subject or "").startswith("$"):
            self.tally("unmatched", "", row, 100)
        for one, percent in before:
            for other, more in after:
                ways = tuple(
                    None if e.subject is None else ".".join(e.subject.split(".")[:2])
                    for e in (one, other)
                )
                self.flows[ways[0], ways[1]] += percent * more * row.messages // 100
        for end, percent in after:
            if end.subject is not None and undo(self.back, end.subject) != row.subject:
                self.tally("irreversible", "", row, percent)
        many, long = "too-many-tokens", "too-long"
        self.gains(many, "", change, lambda end: (end.subject or "").count(".") >= 16 or None)
        self.gains(long, "", change, lambda end: len(encode(end.subject or "")) > 256 or None)

    def _partition(self, change: Change) -> None:
        row, before, after, _ = change
        subject = row.subject or ""
        numbers: Counter[int] = Counter()
        for rule, _, hash_, percent in self.current.partitions(subject, before):
            numbers[rule[2].number(hash_)] += percent
        kept = [one for one in after if one[0].subject is not None]
        for rule, key, hash_, percent in self.candidate.partitions(subject, kept):
            self.keys[rule][key, hash_] += percent * row.messages
            more = percent - numbers[rule[2].number(hash_)]
            if numbers.total() and more > 0:
                self.tally("moves", rule[:2], row, more)
                self.moved[rule].add(key)

    def _access(self, change: Change, copied: str | None) -> None:
        row, before, after, facts = change
        for number, user in enumerate(self.question.users):
            for verb, side in (("publish", user.publish), ("subscribe", user.subscribe)):
                if side == Allowance() or (copied and verb == "publish"):
                    continue

                def may(end: Outcome, side: Allowance = side) -> bool | None:
                    texts = facts[end.subject].texts(end.subject, copied)
                    return any(map(side.allows, texts)) if texts else None

                for allowed, gain in rises(before, after, may).items():
                    if (not allowed) in {may(end) for end, _ in before}:
                        code = f"{verb}-{'opened' if allowed else 'denied'}"
                        self.tally(code, (number, copied), row, gain)

    def _share(self, change: Change, copied: str | None) -> None:
        row, before, after, facts = change

        def percent(ends: Ends, filters: list[str]) -> int:
            return sum(
                percent
                for end, percent in ends
                for texts in [facts[end.subject].texts(end.subject, copied)]
                if any(subscribes(f, text) for f in filters for text in texts)
            )

        for one in dict.fromkeys(self.question.shared):
            was, alone = (percent(ends, [one.subject]) for ends in (before, after))
            group = [o.subject for o in self.question.shared if o.importer == one.importer]
            had, has = (percent(ends, group) for ends in (before, after))
            self.left[one] += (has if was else alone) * row.messages
            if has < was:
                self.tally("shared fewer", (one, copied), row, was - has)
            if alone > had:
                self.tally("shared more", (one, copied), row, alone - had)

    def _deliver(self, change: Change) -> None:
        row, before, after, facts = change
        held = [facts[end.subject].captured for end, _ in before if end.subject is not None]
        most = max(map(len, held), default=0)

        def captured(end: Outcome) -> frozenset[str] | None:
            return None if end.subject is None else facts[end.subject].captured

        for streams, gain in rises(before, after, captured).items():
            if streams or most:
                elsewhere = "captured-twice" if len(streams) > most else "captured-elsewhere"
                newly = elsewhere if most else "newly-captured"
                names = streams or frozenset().union(*held)
                code = newly if streams else "not-captured"
                self.tally(code, tuple(sorted(names)), row, gain)
        for number, consumer in enumerate(self.question.consumers):
            shares = [
                sum(
                    percent
                    for end, percent in ends
                    if end.subject is not None
                    and any(
                        name == consumer.stream
                        and consumer.wants(end.subject if stored is None else stored)
                        for name, stored in facts[end.subject].stored
                    )
                )
                for ends in (before, after)
            ]
            self.left["consumer", number] += shares[1] * row.messages
            if shares[0] != shares[1]:
                code = "gone" if shares[0] > shares[1] else "more"
                self.tally(code, number, row, abs(shares[0] - shares[1]))

    def _pass_on(self, change: Change, stream: StreamConfig) -> None:
        """What a stream does with the messages, and what others do with those that it stores."""
        row, before, after, facts = change
        name = stream.name
        held = any(name in facts[end.subject].captured for end, _ in before)
        known = {end.subject for end, _ in before}
        for code in features(stream):
            for end, percent in after:
                moves = end.subject is not None and end.subject not in known
                is_kept = (
                    name in facts[end.subject].captured
                    if code == "batch-split"
                    else stays(end, before, facts, name)
                )
                if moves and self._carries(row, code) and not is_kept and held:
                    self.tally(code, (name,), row, percent)
        for end, percent in after if sums(stream) else ():
            feeds = {feed for other, feed in facts[end.subject].taken if other == name}
            is_taken = any(
                stays(end, [(one, 100)], facts, name)
                and any(other == name for other, _ in facts[one.subject].taken)
                for one, _ in before
            )
            is_new = end.subject is not None and end.subject not in known
            is_apart = any(not stays(end, before, facts, feed) for feed in feeds)
            if is_new and is_taken and is_apart and self._carries(row, "counted-twice"):
                self.tally("counted-twice", (name,), row, percent)
        if stream.ingress_transform:
            self._stop(change, "ingress-stops", name, "ingress", name)
        if stream.republish_transform:
            self._stop(change, "republish-stops", name, "republished", name)
            self.gains(
                "republish-loop", (name,), change,
                lambda end: (end.subject and name in facts[end.subject].loops) or None,
            )  # fmt: skip
        for feed in {one.name for one in stream.upstreams if one.external is None}:
            pair = name, feed
            self._stop(change, "source-stops", feed, "taken", pair)
            if any(pair in facts[end.subject].taken for end, _ in before):
                self.gains("source-stops", (*pair, "raw"), change, among(facts, "raw", pair))
            if any(other == feed for end, _ in before for other, _ in facts[end.subject].stored):
                self.gains("source-starts", pair, change, among(facts, "taken", pair))
        for other in self.network.streams:
            if other.republish_transform:
                pair = name, other.name
                self._stop(change, "republish-escapes", other.name, "caught", pair)
        self.gains("stored-twice", (name,), change, among(facts, "repeated", name))
        for side, ends in enumerate((before, after)):
            for end, percent in ends:
                for other, stored in facts[end.subject].stored:
                    if other == name and end.subject is not None:
                        text = end.subject if stored is None else stored
                        self.stored[name, side][text][row.subject] += percent * row.messages
                        of = (self.current, self.candidate)[side].numbers(end)
                        numbers = self.numbers[name, side, text]
                        self.numbers[name, side, text] = max(numbers, of)

    def _stop(self, change: Change, code: str, where: str, how: str, what: Hashable) -> None:
        """Tallies what no longer happens to messages that a stream still stores.

        Args:
            change: the messages.
            code: of the finding.
            where: the stream that must store them, or republish them if others catch them there.
            how: the fact, such as `taken`.
            what: what must be in that fact.
        """
        facts = change.facts

        def stops(end: Outcome) -> bool | None:
            fact = facts[end.subject]
            stores = where in (fact.republished if how == "caught" else dict(fact.stored))
            return (stores and what not in getattr(fact, how)) or None

        if any(what in getattr(facts[end.subject], how) for end, _ in change.before):
            self.gains(code, what if isinstance(what, tuple) else (what,), change, stops)

    def _carries(self, row: CensusRow, code: str) -> bool:
        """Whether a message carries what a finding is about, if any message does."""
        word = CARRIED_WITH.get(code)
        are_known = any(word in (one.carries or "").split() for one in self.rows)
        return not are_known or word in (row.carries or "").split()

    def _headers(self, change: Change) -> None:
        row, before, after, facts = change
        carries = (row.carries or "").split()
        known = {end.subject for end, _ in before}
        held = {name for end, _ in before for name in facts[end.subject].captured}
        for end, percent in after:
            has_history = any(stays(end, before, facts, s) for s in facts[end.subject].captured)
            is_new = end.subject is not None and end.subject not in known and not has_history
            if "counter" in carries and is_new and not self.question.streams:
                self.tally("counter-restarts", "", row, percent)
            if "condition" in carries and is_new:
                self.tally("condition-fails", "", row, percent)
            for name in facts[end.subject].captured - held if "id" in carries and held else ():
                self.tally("ids-forgotten", (name,), row, percent)

    def limits(self) -> dict[str, tuple[float, int]]:
        """For each stream the messages beyond its limit besides today's, and their subjects."""
        found = {}
        for stream in self.network.streams:
            if (limit := 100 * stream.max_msgs_per_subject) <= 0:
                continue
            over = [
                (side, of, sum(of.values()) - limit * self.numbers[stream.name, side, text])
                for side in (0, 1)
                for text, of in self.stored[stream.name, side].items()
            ]
            rise = sum((1 if side else -1) * max(0, parts) for side, _, parts in over)
            shared = sum(len(of) for side, of, parts in over if side and len(of) > 1 and parts > 0)
            if rise > 0:
                found[stream.name] = rise / 100, shared
        return found

    def letter_case(self) -> tuple[float, int]:
        """The messages and subjects whose results differ only in the case of letters."""
        twins = [
            of
            for text, of in self.results[1].items()
            if len(self.changed_results[encode(text).lower()]) > 1
        ]
        return sum(sum(of.values()) for of in twins) / 100, len({one for of in twins for one in of})

    def collisions(self) -> Counter[tuple[bool, int, int]]:
        """The subjects that share a result, by whether that is new and the mappings."""
        found: Counter[tuple[bool, int, int]] = Counter()
        for subjects in self.results[1].values():
            if len(subjects) < 2:
                continue
            today = Counter(was for subject in subjects for was in self.today[subject])
            is_new = max(today.values(), default=0) != len(subjects)
            makers = [self.makers[subject] for subject in subjects]
            found[is_new, min(makers), max(makers)] += len(subjects)
        return found


def findings(oracle: Oracle) -> dict[tuple[str, str], tuple[float, int]]:
    """The findings that depend on the layer or on counts, with messages and subjects."""
    found: dict[tuple[str, str], tuple[float, int]] = {}
    question = oracle.question
    for (code, about), tally in oracle.tallies.items():
        text = ""
        if code in ("hit", "covered", "pair", "cluster"):
            continue
        if code in ("gone", "more"):
            consumer = question.consumers[about]  # type: ignore[call-overload]
            text = f"consumer {shown(consumer.name)} of stream {shown(consumer.stream)}"
            left = oracle.left["consumer", about]
            code = "consumer-more" if code == "more" else f"consumer-{'fewer' if left else 'none'}"
        elif code.startswith("shared"):
            share = about[0]  # type: ignore[index]
            kind, change = "import" if share.importer else "export", code.removeprefix("shared ")
            change = change if change == "more" or oracle.left[share] else "none"
            code, text = f"{kind}-{change}", shown(str(share))
        elif code.startswith(("publish", "subscribe")):
            text = f"user {shown(question.users[about[0]].name)}"  # type: ignore[index]
        elif code == "moves":
            code, text = "partition-moves", f"mapping {shown(about[0])} -> {shown(about[1])}"  # type: ignore[index]
        elif isinstance(about, tuple):
            of_another = ("source-stops", "source-starts", "republish-escapes")
            names = about[:1] if code in of_another else about
            text = " and ".join(f"stream {shown(name)}" for name in names)
        found[code, text] = tally.numbers
    for stream in oracle.network.streams:
        if stream.name in oracle.limits():
            code = "limit-refuses" if stream.discard_new_per_subject else "limit-discards"
            found[code, f"stream {shown(stream.name)}"] = oracle.limits()[stream.name]
    found["letter-case", ""] = oracle.letter_case()
    return found
