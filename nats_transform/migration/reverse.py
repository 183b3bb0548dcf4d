"""The mapping that undoes another, where there is one."""

from __future__ import annotations

from collections.abc import Iterable

from nats_transform.errors import InvalidMapping, InvalidTransform
from nats_transform.functions import Literal, Partition, Random, Tail, Wildcard
from nats_transform.mapping import AccountMappings, Destination, Mapping
from nats_transform.subject import ANY_TAIL, ANY_TOKEN, SEPARATOR
from nats_transform.transform import Transform


def reverse(transform: Transform) -> Mapping | None:
    """The mapping from the results of a transform back to its subjects.

    More can be undone than `Transform.reverse` does: a partition or random number is dropped, and
    a wildcard may stand twice. A wildcard that is left out, or only in pieces, cannot come back.
    """
    tokens: list[str] = []
    numbers: dict[int, int] = {}
    wildcards = 0
    for token in transform.tokens:
        match token:
            case Literal(text):
                tokens.append(text)
            case Tail():
                tokens.append(ANY_TAIL)
            case Wildcard(position):
                wildcards += 1
                numbers.setdefault(position, wildcards)
                tokens.append(ANY_TOKEN)
            case Partition() | Random():
                wildcards += 1
                tokens.append(ANY_TOKEN)
            case _:
                return None
    if any(position not in numbers for position in transform.filter.wildcards):
        return None
    destination = SEPARATOR.join(
        f"${numbers[position]}" if token == ANY_TOKEN else token
        for position, token in enumerate(transform.filter.tokens)
    )
    try:
        return Mapping(SEPARATOR.join(tokens), [Destination(destination)])
    except (InvalidMapping, InvalidTransform):
        return None  # a literal of the source reads as something else in a destination


def reversed_mappings(mappings: Iterable[Mapping]) -> AccountMappings:
    """The mappings that undo others, as far as they can be undone.

    Whether they give every subject back is a question to the subjects: results of two mappings
    can be covered by each other's.
    """
    found: dict[str, Mapping] = {}
    for mapping in mappings:
        for transform in mapping.transforms:
            backward = reverse(transform)
            if backward is not None:
                found.setdefault(backward.source, backward)
        # What the weights leave keeps its subject; nothing to undo.
    return AccountMappings(list(found.values()))
