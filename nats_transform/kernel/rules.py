"""The rules from which tables are made. Each rule has ends, one of which a message comes to.

Account mappings and the transforms of streams differ only in their rules, which `accounts` and
`streams` make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from nats_transform.kernel.filters import Pattern
from nats_transform.mappings.functions import Tail, Token
from nats_transform.mappings.mapping import Fate
from nats_transform.mappings.subject import EMPTY_TOKEN, NO_SUBJECT, WILDCARD_TOKEN

WHOLE_SUBJECT: Sequence[Token] = (Tail(0),)
"""The destination that leaves a subject as it is."""


@dataclass(frozen=True, slots=True)
class State:
    """The part of an outcome that is the same for many messages: all but the subject and the draw.

    Attributes:
        fate, reason: those of the `Outcome`.
        source, destination: `mapping_source` and `mapping_destination` of the `Outcome`.
        rule: 0-based number of the mapping or filter that applied, or None.
    """

    fate: Fate
    reason: str | None = None
    source: str | None = None
    destination: str | None = None
    rule: int | None = None


ILLEGAL_STATES = (
    State(Fate.INVALID, NO_SUBJECT),
    State(Fate.INVALID, EMPTY_TOKEN),
    State(Fate.INVALID, WILDCARD_TOKEN),
)
"""The first states of every program; keep in step with transform.c."""


class Check(IntEnum):
    """The check that a new subject must pass; keep in step with transform.c."""

    ANY_RESULT = 0
    NO_EMPTY_TOKEN = 1
    PUBLISHABLE = 2


@dataclass(frozen=True, slots=True)
class End:
    """A possible result of a rule.

    Attributes:
        state: the state of the message.
        tokens: the destination that makes the new subject; None for no subject.
        below: draws below this number choose this end, if they chose no earlier one.
        check: the check that the new subject must pass.
        failed: the state of the message if the new subject does not pass.
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
    """The ends for subjects that match a pattern.

    Attributes:
        pattern: the pattern; None for a rule that applies only if a taker names it.
        place: the text for `mapping_key` that makes its draws differ from those of other rules.
        ends: the ends in all clusters that `scoped` does not have.
        scoped: the ends in each cluster that has ends of its own.
    """

    pattern: Pattern | None
    place: str
    ends: Ends
    scoped: Mapping[str, Ends] = field(default_factory=dict)
