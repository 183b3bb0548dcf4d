"""Canary stages: mappings that send a share of the messages the new way, the rest the old way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nats_transform.mappings.functions import Wildcard
from nats_transform.mappings.mapping import AccountMappings, Destination, Mapping
from nats_transform.mappings.subject import SEPARATOR
from nats_transform.mappings.subject_index import SubjectIndex
from nats_transform.mappings.transform import Transform, number_wildcards

STAGES = (2, 10, 50, 100)


@dataclass(frozen=True, slots=True)
class Stage:
    """The mappings of one stage.

    Attributes:
        percent: the share of the messages that go the new way.
        mappings: the mappings of the account in this stage.
        split: the sources whose messages go the new way in part.
        at_once: the sources whose messages all go the new way, each with the reason why no weights
            can split it.
        cluster: the cluster whose messages are split. Those of the clusters before it all go the
            new way. None splits the messages of all clusters.
    """

    percent: int
    mappings: AccountMappings
    split: tuple[str, ...] = ()
    at_once: tuple[tuple[str, str], ...] = ()
    cluster: str | None = None


def stages(
    current: AccountMappings,
    candidate: AccountMappings,
    percents: Sequence[int] = STAGES,
    clusters: Sequence[str] = (),
) -> list[Stage]:
    """The stages of a switch. The last one is the candidate itself, as it is written.

    A source whose messages go the same way before and after is in every stage as the candidate
    writes it. A source is not split if its old or new mapping has weights of its own, or if it
    overlaps with another source that changes. Such a source moves as a whole with the first stage.

    Args:
        current, candidate: the mappings before and after the switch.
        percents: the shares of the messages, of which the last is 100.
        clusters: the clusters that move one after the other. A source whose destination has no
            wildcard moves in all clusters together with the last of them: nats-server accepts each
            text of a destination only once, and only a wildcard can be written in several ways.
    """
    before = {mapping.source: mapping for mapping in current.mappings}
    after = {mapping.source: mapping for mapping in candidate.mappings}
    ways = {source: (before.get(source), after.get(source)) for source in (after | before)}
    changed = [source for source, pair in ways.items() if not _is_one_way(source, *pair)]
    index = SubjectIndex(ways)
    whole = {s: why for s in changed if (why := _undivided(s, index, *ways[s]))}
    split = dict.fromkeys(source for source in changed if source not in whole)
    writable = {source for source in split if _is_writable(source, *ways[source])}
    planned = []
    for number, cluster in enumerate(clusters or (None,), 1):
        is_last = number >= len(clusters)
        for percent in percents:
            if percent == 100 and is_last:
                planned.append(Stage(100, candidate))
                continue
            mappings = []
            for source, (old, new) in ways.items():
                if source not in split:
                    mapping = new
                elif cluster is not None and source in writable:
                    mapping = _clustered(source, old, new, percent, clusters[:number])
                else:
                    is_now = cluster is None or is_last
                    mapping = _split(source, old, new, percent) if is_now else old
                if mapping is not None:
                    mappings.append(mapping)
            here = tuple(s for s in split if cluster is None or is_last or s in writable)
            planned.append(
                Stage(percent, AccountMappings(mappings), here, tuple(whole.items()), cluster)
            )
    # A stage in which nothing moves is left out.
    befores = [current, *(stage.mappings for stage in planned)]
    return [
        stage
        for stage, last in zip(planned, befores, strict=False)
        if stage is planned[-1] or (split and stage.mappings != last)
    ]


def _undivided(source: str, sources: SubjectIndex, old: Mapping | None, new: Mapping | None) -> str:
    """Why no weights can split this source; "" if they can."""
    overlapping = {sources.filters[number] for number in sources.colliding(source)} - {source}
    if overlapping:
        return f"it shares subjects with {min(overlapping)}"
    for mapping in (old, new):
        if mapping is not None and not _is_plain(mapping):
            return "it has weights of its own"
        if mapping is not None and any(transform.partition for transform in mapping.transforms):
            return "a key's messages would be in two partitions at once"
    return ""


def _is_plain(mapping: Mapping) -> bool:
    """Whether every message of every cluster goes to the same destination."""
    match mapping.destinations:
        case (Destination(weight=100, cluster=None),):
            return True
    return False


def _is_one_way(source: str, old: Mapping | None, new: Mapping | None) -> bool:
    """Whether nothing changes; two equal ways in one mapping would be refused as listed twice."""
    if old == new:
        return True
    if not all(mapping is None or _is_plain(mapping) for mapping in (old, new)):
        return False
    before, after = (Transform(source, _way(source, mapping)).tokens for mapping in (old, new))
    return before == after


def _split(source: str, old: Mapping | None, new: Mapping | None, percent: int) -> Mapping:
    ways = [Destination(_way(source, new), percent), Destination(_way(source, old), 100 - percent)]
    return Mapping(source, ways)


def _way(source: str, mapping: Mapping | None) -> str:
    return mapping.destinations[0].subject if mapping is not None else number_wildcards(source)


def _clustered(
    source: str, old: Mapping | None, new: Mapping | None, percent: int, clusters: Sequence[str]
) -> Mapping:
    """A mapping for clusters that move one after the other.

    All messages go the new way in all clusters but the last, and a share of them does in the last.
    In clusters that are not listed, all go the old way.
    """
    after, before = _way(source, new), _way(source, old)
    destinations = [
        Destination(_spelt(source, after, n), 100, cluster)
        for n, cluster in enumerate(clusters[:-1])
    ]
    destinations.append(
        Destination(_spelt(source, after, len(destinations)), percent, clusters[-1])
    )
    if old is not None:
        destinations.append(Destination(before, 100))
    if percent < 100:
        text = _spelt(source, before, int(old is not None))
        destinations.append(Destination(text, 100 - percent, clusters[-1]))
    return Mapping(source, destinations)


def _is_writable(source: str, old: Mapping | None, new: Mapping | None) -> bool:
    """Whether both ways can be written several times in one mapping."""
    return all(_spelt(source, way, 1) != way for way in (_way(source, old), _way(source, new)))


def _spelt(source: str, destination: str, zeros: int) -> str:
    """The same destination with some zeros in its first wildcard: `$1`, `$01`, `$001`."""
    transform = Transform(source, destination)
    tokens = destination.split(SEPARATOR)
    for place, token in enumerate(transform.tokens):
        if isinstance(token, Wildcard):
            number = transform.filter.wildcards.index(token.position) + 1
            tokens[place] = f"${'0' * zeros}{number}" if zeros else tokens[place]
            return SEPARATOR.join(tokens)
    return destination
