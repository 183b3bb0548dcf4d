"""What the tables are made from: rules, each with the ends that it can bring a message to.

Account mappings and the transforms of streams differ in their rules only; `accounts` and `streams`
make these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from nats_transform.functions import Tail, Token
from nats_transform.kernel.filters import Pattern
from nats_transform.mapping import Fate
from nats_transform.subject import EMPTY_TOKEN, NO_SUBJECT, WILDCARD_TOKEN

WHOLE_SUBJECT: Sequence[Token] = (Tail(0),)
"""The destination that leaves a subject as it is."""


@dataclass(frozen=True, slots=True)
class State:
    """What is told about a message, besides its new subject and its draw.

    Attributes:
        fate, reason: as in `Outcome`.
        source, destination: `mapping_source` and `mapping_destination` of the `Outcome`.
        rule: 0-based number of the mapping or filter that applied, or None.
    """

    fate: Fate
    reason: str | None = None
    source: str | None = None
    destination: str | None = None
    rule: int | None = None


NOT_LITERAL = (
    State(Fate.INVALID, NO_SUBJECT),
    State(Fate.INVALID, EMPTY_TOKEN),
    State(Fate.INVALID, WILDCARD_TOKEN),
)
"""The first states of every program; keep in step with transform.c."""


class Check(IntEnum):
    """What a new subject must pass; keep in step with transform.c."""

    ANY_RESULT = 0
    NO_EMPTY_TOKEN = 1
    PUBLISHABLE = 2


@dataclass(frozen=True, slots=True)
class End:
    """Where a message can come to.

    Attributes:
        state: what is told about it.
        tokens: the destination that makes the new subject; None for no subject.
        below: taken by draws below this that no earlier end took.
        check: what the new subject must pass.
        failed: what is told instead if it does not pass.
    """

    state: State
    tokens: Sequence[Token] | None = None
    below: int = 100
    check: Check = Check.ANY_RESULT
    failed: State | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """All ends of a rule in one cluster, in the order in which the draw tries them."""

    ends: Sequence[End]
    is_drawn: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to the subjects that look like a pattern.

    Attributes:
        pattern: of the subjects; None for a rule that applies only where a taker names it.
        place: what tells its draws from those of other rules, for `mapping_key`.
        ends: wherever `scoped` says nothing else.
        scoped: by cluster.
    """

    pattern: Pattern | None
    place: str
    ends: Ends
    scoped: Mapping[str, Ends] = field(default_factory=dict)
