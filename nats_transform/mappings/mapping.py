"""Weighted, cluster-scoped account mappings.

Sources: ADR-30 "Weighted and cluster-scoped mappings"; nats-server `AddWeightedMappings` and
`selectMappedSubject` in `server/accounts.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, chain
from typing import NamedTuple

from nats_transform.errors import InvalidMapping, InvalidValue, printable
from nats_transform.mappings.draw import draw_of, mapping_key, message_entropy
from nats_transform.mappings.functions import is_placeholder
from nats_transform.mappings.subject import SEPARATOR, Filter, is_valid_filter, literal_fault
from nats_transform.mappings.transform import Transform, number_wildcards, validate_mapping

DRAWS = 100
"""How many draws there are: nats-server draws a whole number from 0 to 99."""

EMPTY_DESTINATION = "the destination is empty; nats-server crashes on this message"
EMPTY_RESULT = "empty token in the mapped subject; nats-server delivers it to nobody"


class Fate(StrEnum):
    """What a mapping, stream source or mirror does with a message."""

    MAPPED = "mapped"
    """A mapping or transform applied, even if its result is the same subject."""
    UNMATCHED = "unmatched"
    """No source covers the subject, so it passes through unchanged."""
    LOST = "lost"
    """The weights leave a remainder and the source itself is listed, so nats-server drops it."""
    FILTERED = "filtered"
    """A mirror or stream source has transforms or filters and none matches, so it is not taken."""
    INVALID = "invalid"
    """The subject, or the new subject, is not a legal literal one; the outcome has the reason."""


class Outcome(NamedTuple):
    """The new subject of a message, and the mapping that decided it.

    Attributes:
        subject: the resulting subject; None unless the fate is mapped or unmatched.
        fate: what became of the message.
        mapping_source: the source of the mapping that matched, or None.
        mapping_destination: the chosen destination; the source itself if the remainder keeps the
            published subject; None if there is none.
        draw: the draw that chose it, 0 to 99; None if nothing was drawn (no mapping, or one
            destination at 100 %).
        reason: why the fate is invalid; None for all other fates.
    """

    subject: str | None
    fate: Fate
    mapping_source: str | None = None
    mapping_destination: str | None = None
    draw: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """One destination of a mapping.

    Attributes:
        subject: the destination, written as for `Transform`.
        weight: the share of the messages in whole percent, 0 to 100.
        cluster: the cluster that it is for; None for all clusters without an entry of their own.
    """

    subject: str
    weight: int = 100
    cluster: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """One possible end of a mapping in one cluster.

    Attributes:
        destination: the `Outcome.mapping_destination`; None for the part that is lost.
        transform: the transform to the new subject; None for the lost part and for an empty
            destination.
        weight: the part of the draws that choose this share, in percent.
        below: draws below this number choose this share, if they chose no earlier one.
    """

    destination: str | None
    transform: Transform | None
    weight: int
    below: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """A source and its weighted, cluster-scoped destinations, validated as nats-server does.

    Attributes:
        source: the subject, perhaps with wildcards, that the mapping matches.
        destinations: the destinations of messages, with weights that add up to 100 or less.
        filter: the parsed source.
        transforms: the transform to each destination, without the empty ones.

    Examples:
        >>> Mapping("shop.*", [Destination("shop.v1.$1", 98), Destination("shop.v2.$1", 2)])

    Raises:
        InvalidMapping: the weights or destinations are refused; the text says which.
        InvalidTransform: a destination does not make a transform with the source.
    """

    source: str
    destinations: Sequence[Destination]
    filter: Filter = field(init=False, repr=False, compare=False)
    transforms: tuple[Transform, ...] = field(init=False, repr=False, compare=False)
    _by_scope: dict[str | None, tuple[Share, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not is_valid_filter(self.source):
            raise InvalidMapping("source-not-a-subject", source=printable(self.source))
        object.__setattr__(self, "destinations", tuple(self.destinations))
        transforms = self._validate()
        listed = self.by_cluster()
        shares = {cluster: self._shares(some, transforms) for cluster, some in listed.items()}
        known = tuple(filter(None, transforms.values()))
        object.__setattr__(self, "filter", known[0].filter if known else Filter(self.source))
        object.__setattr__(self, "transforms", known)
        object.__setattr__(self, "_by_scope", shares)

    def _validate(self) -> dict[str, Transform | None]:
        transforms: dict[str, Transform | None] = {}
        totals: dict[str, int] = {}
        for destination in self.destinations:
            if destination.subject in transforms:
                raise self._refused(self._twice(destination), destination)
            if not 0 <= destination.weight <= 100:
                raise self._refused("mapping-weight", destination, weight=destination.weight)
            cluster = destination.cluster or ""
            totals[cluster] = totals.get(cluster, 0) + destination.weight
            if totals[cluster] > 100:
                scope = f"cluster {printable(cluster)}" if cluster else "all clusters"
                raise self._refused(
                    "mapping-weights", destination, scope=scope, total=totals[cluster]
                )
            transforms[destination.subject] = validate_mapping(self.source, destination.subject)
        return transforms

    def _twice(self, destination: Destination) -> str:
        """The code for a destination that is listed twice: each has another cure."""
        first = next(e for e in self.destinations if e.subject == destination.subject)
        if first.cluster == destination.cluster:
            return "destination-twice"
        if any(map(is_placeholder, destination.subject.split(SEPARATOR))):
            return "destination-twice-rewrite"
        return "destination-twice-elsewhere"

    def _refused(self, code: str, destination: Destination, **fields: object) -> InvalidMapping:
        mapping, subject = printable(self.source), printable(destination.subject)
        return InvalidMapping(code, mapping=mapping, destination=subject, **fields)

    def by_cluster(self) -> dict[str | None, list[Destination]]:
        """The destinations of each scope: None for the general list, which is always there."""
        listed: dict[str | None, list[Destination]] = {None: []}
        for destination in self.destinations:
            listed.setdefault(destination.cluster or None, []).append(destination)
        return listed

    def _shares(
        self, listed: Sequence[Destination], transforms: dict[str, Transform | None]
    ) -> tuple[Share, ...]:
        if len(listed) == 1 and listed[0].weight == 100:  # as nearly always
            subject = listed[0].subject
            return (Share(subject, transforms[subject], 100, 100),)
        lists_source = self.source in transforms
        entries: list[tuple[str | None, Transform | None, int]] = [
            (d.subject, transforms[d.subject], d.weight) for d in listed
        ]
        rest = 100 - sum(d.weight for d in listed)
        if rest and not lists_source:
            # The server adds the source itself for the remainder, before it sorts.
            entries.append(
                (self.source, Transform(self.source, number_wildcards(self.source)), rest)
            )
        entries.sort(key=lambda entry: entry[2])
        if rest and lists_source:
            entries.append((None, None, rest))
        reached = accumulate(weight for _, _, weight in entries)
        return tuple(
            Share(destination, transform, weight, below)
            for (destination, transform, weight), below in zip(entries, reached, strict=True)
        )

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters that have destinations of their own, in the order of the config."""
        return tuple(cluster for cluster in self._by_scope if cluster)

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """None for the general list, then the clusters that have destinations of their own."""
        return tuple(self._by_scope)

    def ends(self) -> Iterator[Share]:
        """Each share of each scope: all possible ends of a message."""
        return chain.from_iterable(self._by_scope.values())

    @property
    def lists_source(self) -> bool:
        """Whether the source itself is a destination, in which case the remainder is lost."""
        return any(d.subject == self.source for d in self.destinations)

    def shares(self, cluster: str | None = None) -> tuple[Share, ...]:
        """The possible ends in one cluster, in the order in which nats-server tries the draw.

        A cluster without an entry, and None, get the general list.
        """
        return self._by_scope.get(cluster or None, self._by_scope[None])

    def is_drawn(self, cluster: str | None = None) -> bool:
        """Whether a draw is made, which a single destination at 100 % does not need."""
        shares = self.shares(cluster)
        return not (len(shares) == 1 and shares[0].weight == 100 and shares[0].destination)

    def share(self, cluster: str | None, draw: int) -> Share:
        """The end that a draw of 0 to 99 chooses in a cluster."""
        if draw >= 0:
            for share in self.shares(cluster):
                if draw < share.below:
                    return share
        raise InvalidValue("draw-out-of-range", draw=draw, draws=DRAWS - 1)

    def outcome(
        self, share: Share, tokens: Sequence[str], draw: int | None, entropy: int | None
    ) -> Outcome:
        """The outcome of one share for the tokens of a subject that matches."""
        if share.destination is None:
            return Outcome(None, Fate.LOST, self.source, None, draw)
        if share.transform is None:
            return Outcome(
                None, Fate.INVALID, self.source, share.destination, draw, EMPTY_DESTINATION
            )
        subject = share.transform.evaluate(tokens, entropy)
        if share.transform.can_make_empty_token and "" in subject.split(SEPARATOR):
            return Outcome(None, Fate.INVALID, self.source, share.destination, draw, EMPTY_RESULT)
        return Outcome(subject, Fate.MAPPED, self.source, share.destination, draw)


@dataclass(frozen=True, slots=True)
class AccountMappings:
    """The mappings of one account, in order: the first whose source covers a subject applies.

    nats-server keeps the mappings of a file in random order, so chance decides between mappings
    that overlap. Here the order is that of the file. If two mappings have the same source, the
    later one counts, in the place of the first.
    """

    mappings: Sequence[Mapping]

    def __post_init__(self) -> None:
        by_source = {mapping.source: mapping for mapping in self.mappings}
        object.__setattr__(self, "mappings", tuple(by_source.values()))

    def match(self, subject: str) -> Mapping | None:
        """The mapping that applies to a literal subject, or None."""
        tokens = subject.split(SEPARATOR)
        for mapping in self.mappings:
            if mapping.filter.covers(tokens):
                return mapping
        return None

    def apply(
        self, subject: str, cluster: str | None = None, draw: int = 0, entropy: int = 0
    ) -> Outcome:
        """The outcome of a message under a draw.

        Args:
            subject: the published subject.
            cluster: name of the cluster it is published in, if any.
            draw: 0 to 99, the number that nats-server would have drawn.
            entropy: 64 bits that decide each `random()`.
        """
        return self._apply(subject, cluster, lambda mapping: (draw, entropy))

    def replay(
        self,
        subject: str | None,
        cluster: str | None = None,
        *,
        stream: str | None,
        seq: int | None,
        seed: int = 0,
    ) -> Outcome:
        """The outcome of a message of an archive: `apply` with the draw of the message.

        Args:
            subject: the published subject; without one the message is invalid.
            cluster: name of the cluster it was published in, if any.
            stream: the stream the message is in.
            seq: its sequence there.
            seed: the seed of the run.
        """

        def chance(mapping: Mapping) -> tuple[int, int]:
            entropy = message_entropy(stream, seq, mapping_key(seed, mapping.source))
            return draw_of(entropy), entropy

        return self._apply(subject, cluster, chance)

    def outcomes(self, subject: str, cluster: str | None = None) -> list[tuple[Outcome, int]]:
        """Every possible outcome with its exact probability in percent; they add up to 100.

        The draw of each outcome is None. A `random()` stays in the subject as it is written,
        because each of its numbers is equally likely.
        """
        if fault := literal_fault(subject):
            return [(Outcome(None, Fate.INVALID, reason=fault), 100)]
        return self.outcomes_of(self.match(subject), subject, cluster)

    def outcomes_of(
        self, mapping: Mapping | None, subject: str, cluster: str | None = None
    ) -> list[tuple[Outcome, int]]:
        """`outcomes` of a legal subject whose mapping, as `match` gives it, is known."""
        if mapping is None:
            return [(Outcome(subject, Fate.UNMATCHED), 100)]
        tokens = self._tokens(mapping, subject)
        return [
            (mapping.outcome(share, tokens, None, None), share.weight)
            for share in mapping.shares(cluster)
            if share.weight
        ]

    def _apply(
        self,
        subject: str | None,
        cluster: str | None,
        chance: Callable[[Mapping], tuple[int, int]],
    ) -> Outcome:
        fault = literal_fault(subject)
        if subject is None or fault is not None:
            return Outcome(None, Fate.INVALID, reason=fault)
        mapping = self.match(subject)
        if mapping is None:
            return Outcome(subject, Fate.UNMATCHED)
        draw, entropy = chance(mapping)
        share = mapping.share(cluster, draw)
        shown = draw if mapping.is_drawn(cluster) else None
        return mapping.outcome(share, self._tokens(mapping, subject), shown, entropy)

    def _tokens(self, mapping: Mapping, subject: str) -> list[str]:
        # nats-server cuts a subject only when it meets a mapping that is not this very literal, so
        # partition(n) of a literal source that is tried first hashes an empty key. The source `*a`
        # is a literal too, but covers other subjects, which are cut.
        if mapping is self.mappings[0] and mapping.source == subject:
            return []
        return subject.split(SEPARATOR)
