"""Canary stages: mappings that send a share of the messages the new way, and the rest the old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nats_transform.functions import Partition
from nats_transform.mapping import AccountMappings, Destination, Mapping
from nats_transform.subject import collide
from nats_transform.transform import number_wildcards

STAGES = (2, 10, 50, 100)


@dataclass(frozen=True, slots=True)
class Stage:
    """The mappings of one stage.

    Attributes:
        percent: the share of the messages that go the new way.
        mappings: what the account has in this stage.
        split: the sources of which a part goes the new way.
        at_once: the sources that go the new way as a whole, with the reason: no weights can split
            them.
    """

    percent: int
    mappings: AccountMappings
    split: tuple[str, ...] = ()
    at_once: tuple[tuple[str, str], ...] = ()


def stages(
    current: AccountMappings, candidate: AccountMappings, percents: Sequence[int] = STAGES
) -> list[Stage]:
    """The stages of a switch; the last one is the candidate itself, as it is written.

    A source of which the old or the new way has weights of its own, or that overlaps with another
    source that changes, is not split: it moves with the first stage.
    """
    before = {mapping.source: mapping for mapping in current.mappings}
    after = {mapping.source: mapping for mapping in candidate.mappings}
    changed = [
        source
        for source in dict.fromkeys([*after, *before])
        if before.get(source) != after.get(source)
    ]
    whole = {
        source: why for source in changed if (why := _undivided(source, changed, before, after))
    }
    found = []
    for percent in percents:
        if percent == 100:
            found.append(Stage(100, candidate))
            continue
        made = []
        for source in dict.fromkeys([*after, *before]):
            if source not in changed or source in whole:
                mapping = after.get(source)
            else:
                mapping = _split(source, before.get(source), after.get(source), percent)
            if mapping is not None:
                made.append(mapping)
        split = tuple(source for source in changed if source not in whole)
        found.append(Stage(percent, AccountMappings(made), split, tuple(whole.items())))
    # A stage in which nothing is split is the candidate already.
    return [stage for stage in found if stage.percent == 100 or len(whole) < len(changed)]


def _undivided(
    source: str, changed: Sequence[str], before: dict[str, Mapping], after: dict[str, Mapping]
) -> str:
    """Why no weights can split this source; "" if they can."""
    others = {*before, *after} - {source}
    if overlapping := [other for other in others if collide(source, other)]:
        return f"it shares subjects with {min(overlapping)}"
    for mapping in (before.get(source), after.get(source)):
        if mapping is not None and not _is_plain(mapping):
            return "it has weights of its own"
        if mapping is not None and any(
            isinstance(token, Partition) for one in mapping.transforms for token in one.tokens
        ):
            return "the messages of a key would be in two partitions at the same time"
    return ""


def _is_plain(mapping: Mapping) -> bool:
    """Whether every message of every cluster goes to the one destination."""
    match mapping.destinations:
        case (Destination(weight=100, cluster=None),):
            return True
    return False


def _split(source: str, old: Mapping | None, new: Mapping | None, percent: int) -> Mapping:
    def way(mapping: Mapping | None) -> str:
        return mapping.destinations[0].subject if mapping is not None else number_wildcards(source)

    return Mapping(source, [Destination(way(new), percent), Destination(way(old), 100 - percent)])
