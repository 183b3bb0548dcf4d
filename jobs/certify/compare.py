"""Compares what a server made of messages with what the kernel and `Network` predict.

A server draws by chance. So what it delivered must be one of the possible results of the kernel,
and each count of draws must agree with its weight. What streams store is predicted from what the
server delivered, so that one fault shows once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import pyarrow as pa

from jobs.certify.result import CertifiedUser, Divergence, Drawn
from jobs.certify.server import Tried
from nats_transform.audit.statistics import intervals
from nats_transform.config.permissions import User
from nats_transform.kernel import compile_mappings
from nats_transform.mappings.functions import Random
from nats_transform.mappings.mapping import AccountMappings, Destination, Share
from nats_transform.mappings.mapping import Mapping as SubjectMapping
from nats_transform.mappings.subject import decode
from nats_transform.mappings.unresolved import may_be
from nats_transform.streams.network import Network
from nats_transform.streams.stream import StreamConfig

_NOBODY = "nobody"
_MOST_SUBJECTS = 2_000  # that users try
_ERROR = 1e-6
"""The probability that right draws of a mapping count as wrong."""


@dataclass
class Messages:
    """Messages of one cluster, in the order of the archive."""

    stream: str
    cluster: str | None
    seqs: list[int] = field(default_factory=list)
    subjects: list[bytes] = field(default_factory=list)


class Prediction:
    """What becomes of some messages.

    Args:
        messages: the messages.
        mappings: the mappings.
        streams: the streams of the server.
        seed: decides our draws.

    Attributes:
        subjects: the subject that each message gets with our draw; None if nobody gets it.
        fates: how many messages have each fate.
    """

    def __init__(
        self,
        messages: Messages,
        mappings: AccountMappings,
        streams: Sequence[StreamConfig],
        seed: int,
    ) -> None:
        self._messages, self._mappings, self._network = messages, mappings, Network(streams)
        self._streams = [stream.name for stream in streams]
        subjects = pa.array(messages.subjects, pa.binary())
        place = {"stream": messages.stream, "seq": pa.array(messages.seqs, pa.int64())}
        ours = compile_mappings(mappings, seed).apply(subjects, cluster=messages.cluster, **place)
        self.subjects: list[bytes | None] = ours.column("mapped_subject").to_pylist()
        fates = ours.column("fate").value_counts().to_pylist()
        self.fates = {fate["values"]: fate["counts"] for fate in fates}
        self._sources = [s and decode(s) for s in ours.column("mapping_source").to_pylist()]
        self._shares = {
            mapping.source: [share for share in mapping.shares(messages.cluster) if share.weight]
            for mapping in mappings.mappings
        }
        most = max(map(len, self._shares.values()), default=1)
        # What the kernel makes of every message with each destination in turn.
        self._results: list[list[bytes | None]] = []
        for number in range(most):
            decided = [_decided(m, self._shares[m.source], number) for m in mappings.mappings]
            program = compile_mappings(AccountMappings(decided), seed)
            self._results.append(program.run(subjects, **place).subjects.to_pylist())
        self._random = {
            mapping.source
            for mapping in mappings.mappings
            if any(isinstance(token, Random) for t in mapping.transforms for token in t.tokens)
        }
        self._arrivals = lru_cache(2**16)(self._arrive)

    def _arrive(self, subject: bytes) -> Sequence[tuple[str, str]]:
        return [
            (arrival.stream, arrival.subject)
            for arrival in self._network.arrivals(decode(subject))
            if arrival.subject is not None and not arrival.repeats
        ]

    def stored(self, delivered: Sequence[bytes | None]) -> Mapping[str, int]:
        """How many messages each stream stores, from the subjects that they are delivered under."""
        counts = Counter(dict.fromkeys(self._streams, 0))
        for subject, times in Counter(filter(None, delivered)).items():
            for stream, _ in self._arrivals(subject):
                counts[stream] += times
        return counts

    def compare(
        self,
        delivered: Sequence[bytes | None],
        stored: Mapping[str, Sequence[tuple[int, bytes]]],
        evidence: Evidence,
    ) -> None:
        """Add what the server made of the messages to what was found."""
        self._compare_delivered(delivered, evidence)
        expected: dict[str, list[tuple[int, str]]] = {name: [] for name in self._streams}
        for number, subject in enumerate(delivered):
            if subject is not None:
                for stream, to in self._arrivals(subject):
                    expected[stream].append((number, to))
        for name, predicted in expected.items():
            self._compare_stream(name, predicted, stored[name], evidence)

    def _compare_delivered(self, delivered: Sequence[bytes | None], evidence: Evidence) -> None:
        counts: dict[str, tuple[list[int], list[int]]] = {
            source: ([0] * len(shares), [0] * len(shares))
            for source, shares in self._shares.items()
            if len(shares) > 1
        }
        for number, (seen, ours, source) in enumerate(
            zip(delivered, self.subjects, self._sources, strict=True)
        ):
            count = len(self._shares[source]) if source is not None else 1
            results = [result[number] for result in self._results[:count]]
            if source in self._random and source is not None:
                ways = self._patterns(number)
                fits = [[_fits(way, result) for way in ways] for result in (seen, ours, *results)]
                are_right = all(map(any, fits))
                wanted = " or ".join(way or _NOBODY for way in ways)
                drawn = [row.index(True) for row in fits[:2] if sum(row) == 1]
            else:
                are_right = seen in results and ours in results
                wanted = " or ".join(dict.fromkeys(map(_text, (ours, *results))))
                is_clear = are_right and len(set(results)) == count
                drawn = [results.index(subject) for subject in (seen, ours)] if is_clear else []
            if not are_right:
                kind = "delivery" if None in (seen, *results) else "subject"
                evidence.add(kind, source or "", self._messages, number, wanted, _text(seen))
                counts.pop(source or "", None)  # it would show once more as other draws
            elif source in counts and len(drawn) == 2:
                for side, place in enumerate(drawn):
                    counts[source][side][place] += 1
        for source, (theirs, own) in counts.items():
            evidence.drawn += _drawn(
                source, self._messages.cluster, self._shares[source], theirs, own
            )

    def _patterns(self, number: int) -> list[str | None]:
        """The possible results of a message, with `random()` as it is written."""
        subject = decode(self._messages.subjects[number])
        outcomes = self._mappings.outcomes(subject, self._messages.cluster)
        return [outcome.subject for outcome, _ in outcomes]

    def some_subjects(self) -> list[int]:
        """Numbers of messages with different subjects, evenly spread; not too many."""
        first: dict[bytes, int] = {}
        for number, subject in enumerate(self._messages.subjects):
            first.setdefault(subject, number)
        numbers = list(first.values())
        return numbers[:: -(-len(numbers) // _MOST_SUBJECTS)]

    def compare_user(
        self, numbers: Sequence[int], user: User, tried: Tried, evidence: Evidence
    ) -> None:
        """Add what a user may do to what was found; `numbers` are those of the messages."""
        for place, number in enumerate(numbers):
            seen = tried.published[place]
            ways = self._patterns(number)
            # nats-server maps a message before it looks for the permission to publish it.
            allowed = [way for way in ways if way is not None and user.publish.allows(way)]
            if seen is None:
                is_right = len(allowed) < len(ways)
            else:
                is_right = any(_fits(way, seen) for way in allowed)
            if not is_right:
                results = (way or _NOBODY for way in ways)
                wanted = " or ".join(results) if allowed else "refused"
                what = "refused" if seen is None else _text(seen)
                evidence.add("publish", user.name, self._messages, number, wanted, what)
            to = tried.others[place]
            if to is None or to not in tried.asked:
                continue
            may = user.subscribe.allows(decode(to))
            if may != (place in tried.got):
                words = ("not got", f"got as {decode(to)}")
                evidence.add(
                    "subscribe", user.name, self._messages, number, words[may], words[not may]
                )
        published = sum(subject is not None for subject in tried.published)
        evidence.users.append(
            CertifiedUser(
                user.name, self._messages.cluster, len(numbers), published, len(tried.got)
            )
        )

    def _compare_stream(
        self,
        name: str,
        predicted: Sequence[tuple[int, str]],
        seen: Sequence[tuple[int, bytes]],
        evidence: Evidence,
    ) -> None:
        before = evidence.streams.get(name, (0, 0))
        evidence.streams[name] = before[0] + len(predicted), before[1] + len(seen)
        theirs = [(number, decode(subject)) for number, subject in seen]
        if sorted(predicted) == sorted(theirs):
            return
        ways: dict[int, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for side, rows in enumerate((predicted, theirs)):
            for number, subject in rows:
                ways[number][side].append(subject)
        for number, (ours, its) in ways.items():
            if sorted(ours) == sorted(its):
                continue
            evidence.add(
                "stored" if ours and its else "stream",
                name,
                self._messages,
                number,
                ", ".join(ours) or "not stored",
                ", ".join(its) or "not stored",
            )


@dataclass
class Evidence:
    """What the comparison of all clusters found.

    Attributes:
        streams: for each stream how many messages it should hold and does.
    """

    drawn: list[Drawn] = field(default_factory=list)
    streams: dict[str, tuple[int, int]] = field(default_factory=dict)
    users: list[CertifiedUser] = field(default_factory=list)
    _parted: dict[tuple[str, str], Divergence] = field(default_factory=dict)

    def add(
        self, kind: str, about: str, messages: Messages, number: int, predicted: str, seen: str
    ) -> None:
        """Add a message for which the server and the prediction part."""
        before = self._parted.get((kind, about))
        subject = decode(messages.subjects[number])
        divergence = Divergence(
            kind=kind,
            about=about,
            messages=1 + (before.messages if before else 0),
            seq=messages.seqs[number],
            subject=subject,
            cluster=messages.cluster,
            predicted=predicted,
            seen=seen,
        )
        if (
            before is not None
            and before.subject is not None
            and (len(before.subject), before.subject) <= (len(subject), subject)
        ):  # the shorter subject is the example
            divergence = replace(before, messages=divergence.messages)
        self._parted[kind, about] = divergence

    def divergences(self) -> Iterator[Divergence]:
        """The ways in which the server and the prediction part, the draws last."""
        yield from sorted(self._parted.values(), key=lambda d: (d.kind, d.about))
        for draw in self.drawn:
            if not draw.holds:
                to = _NOBODY if draw.destination is None else draw.destination
                yield Divergence(
                    kind="draws",
                    about=draw.source,
                    messages=draw.messages,
                    seq=None,
                    subject=None,
                    cluster=draw.cluster,
                    predicted=f"{draw.weight} % to {to}, {draw.ours:,} with our draws",
                    seen=f"{draw.server:,} of {draw.messages:,}",
                )


def _decided(mapping: SubjectMapping, shares: Sequence[Share], number: int) -> SubjectMapping:
    """A mapping in which every draw chooses one share; of too few shares the last."""
    share = shares[min(number, len(shares) - 1)]
    if share.destination is None:
        return SubjectMapping(mapping.source, [Destination(mapping.source, 0)])
    if any(d.subject == share.destination for d in mapping.destinations):
        return SubjectMapping(mapping.source, [Destination(share.destination)])
    return SubjectMapping(mapping.source, [])  # what is left over keeps its subject


def _drawn(
    source: str,
    cluster: str | None,
    shares: Sequence[Share],
    theirs: Sequence[int],
    own: Sequence[int],
) -> list[Drawn]:
    """The draws of a mapping; their bounds are for `_ERROR` over all of them."""
    total = sum(theirs)
    if not total:
        return []
    confidence = 1 - _ERROR / (2 * len(shares))
    low, high = intervals([*theirs, *own], [total] * 2 * len(shares), confidence)
    drawn = []
    for place, share in enumerate(shares):
        places = (place, place + len(shares))
        drawn.append(
            Drawn(
                source=source,
                cluster=cluster,
                destination=share.destination,
                weight=share.weight,
                messages=total,
                server=theirs[place],
                ours=own[place],
                low=float(100 * low[place]),
                high=float(100 * high[place]),
                holds=all(low[n] <= share.weight / 100 <= high[n] for n in places),
            )
        )
    return drawn


def _fits(pattern: str | None, subject: bytes | None) -> bool:
    if pattern is None or subject is None:
        return pattern is None and subject is None
    return may_be(pattern, decode(subject))


def _text(subject: bytes | None) -> str:
    return _NOBODY if subject is None else decode(subject)
