"""Whether new subjects keep to the recommended limits, and how many values each level has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from nats_transform.mapping import Outcome
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.case import Case, rise
from nats_transform.migration.count import Count
from nats_transform.migration.names import Names
from nats_transform.subject import SEPARATOR, encode

MOST_TOKENS = 16
"""The highest number of tokens that the documentation of NATS recommends."""

MOST_BYTES = 256
"""Longer subjects are legal, but they cost every server that routes them."""

MOST_VALUES = 10_000
"""Up to this many values of a level are counted; if there are more, it is `at least` this many."""

_LEVELS = 16


@dataclass(frozen=True, slots=True)
class Level:
    """How many different values the tokens at one place of the subjects have.

    Attributes:
        level: the place of the token, 1 for the first.
        before, after: distinct values, at most `MOST_VALUES`.
    """

    level: int
    before: int
    after: int


class Hygiene(Analysis):
    """Counts subjects that are too long, and values by level."""

    def __init__(self) -> None:
        self._counts: dict[str, Count] = defaultdict(Count)
        self._values: tuple[dict[int, set[str]], dict[int, set[str]]] = (
            defaultdict(set),
            defaultdict(set),
        )

    def add_case(self, case: Case) -> None:
        is_long = False
        for levels, outcomes in zip(self._values, (case.before, case.after), strict=True):
            for outcome, _ in outcomes:
                subject = outcome.subject
                if subject is None:
                    continue
                tokens = subject.split(SEPARATOR)
                # A character has at most 4 bytes.
                is_long |= len(tokens) > MOST_TOKENS or 4 * len(subject) > MOST_BYTES
                for level, token in enumerate(tokens[:_LEVELS]):
                    values = levels[level]
                    if len(values) >= MOST_VALUES:
                        continue
                    for one in case.alike.tokens(subject, level) if case.alike else (token,):
                        values.add(one)
                        if len(values) == MOST_VALUES:
                            break
        if not is_long:
            return
        for code, kind in _KINDS.items():
            for _, outcome, parts in rise(case, kind):
                self._counts[code].add(case, outcome.subject, parts)

    def told(self, names: Names) -> Iterator[Told]:
        for code, count in self._counts.items():
            yield code, "", _MESSAGES[code], count

    def levels(self) -> tuple[Level, ...]:
        """The values of each level."""
        before, after = self._values
        reached = max([*before, *after], default=-1) + 1
        return tuple(Level(n + 1, len(before[n]), len(after[n])) for n in range(reached))


def _too_many(outcome: Outcome) -> bool | None:
    subject = outcome.subject
    return True if subject is not None and subject.count(SEPARATOR) >= MOST_TOKENS else None


def _too_long(outcome: Outcome) -> bool | None:
    subject = outcome.subject
    return True if subject is not None and len(encode(subject)) > MOST_BYTES else None


_KINDS = {"too-many-tokens": _too_many, "too-long": _too_long}

_MESSAGES = {
    "too-many-tokens": f"these new subjects have more than {MOST_TOKENS} tokens",
    "too-long": f"these new subjects are longer than {MOST_BYTES} bytes",
}
