"""Counting, in exact hundredths of a message because weights are percent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from nats_transform.migration.findings import Example
from nats_transform.subject import encode

if TYPE_CHECKING:
    from nats_transform.migration.case import Case

Amount: TypeAlias = int | NDArray[np.int64]
"""A number for one subject, or an array with a number for each of many subjects that are alike."""

EXAMPLES = 5
"""How many of the largest subjects are kept as examples."""

PARTS = 100
"""How many parts a message has. Weights are percent, so a share is a whole number of parts."""


def whole(parts: int) -> float:
    """A number of parts as messages; an int if they are whole messages."""
    return parts // PARTS if parts % PARTS == 0 else parts / PARTS


def total(amount: Amount) -> int:
    """The sum over all subjects."""
    return amount if isinstance(amount, int) else int(amount.sum())


def messages(parts: int) -> str:
    """A number of messages in words: exact if it is whole, otherwise rounded to four digits."""
    if 0 < parts < PARTS:
        return "fewer than 1 message"
    is_whole = parts % PARTS == 0
    count = parts // PARTS if is_whole else rounded(parts / PARTS)
    return f"{'' if is_whole else 'about '}{count:,} message{'' if count == 1 else 's'}"


def rounded(count: float) -> int:
    """A count rounded to four digits: 360,692.98 is about 360,700."""
    digits = len(str(int(count)))
    return int(round(count, 4 - digits)) if digits > 4 else round(count)


@dataclass(slots=True)
class Count:
    """The number of messages and distinct subjects, with the largest subjects as examples.

    All additions of a subject must follow one another.
    """

    parts: int = 0
    subjects: int = 0
    _last: object = field(default=None, repr=False, compare=False)
    _largest: list[tuple[int, str, str, Example]] = field(default_factory=list, repr=False)

    def add(self, case: Case, after: str | None, parts: Amount) -> None:
        """Count parts of the messages of a case.

        Args:
            case: the subject, or those that are alike.
            after: the subject that it becomes.
            parts: the parts of the messages of each subject.
        """
        if isinstance(parts, int):
            self._add_one(case.subject, case.was, after, parts)
            return
        alike = case.alike
        assert alike is not None  # noqa: S101 - only then there are several
        self.parts += int(parts.sum())
        if self._last is not alike:
            self.subjects += len(parts)
            self._last = alike
        for row in _largest(parts):
            subject, was, becomes = (
                alike.text(text, row) for text in (case.subject, case.was, after)
            )
            self._show(subject, was, becomes, int(parts[row]))

    def _add_one(
        self, subject: str | None, before: str | None, after: str | None, parts: int
    ) -> None:
        self.parts += parts
        if (subject,) != self._last or not self.subjects:
            self.subjects += 1
            self._last = (subject,)
        self._show(subject, before, after, parts)

    def _show(self, subject: str | None, before: str | None, after: str | None, parts: int) -> None:
        """Keep a subject as an example if it is among the largest."""
        if len(self._largest) == EXAMPLES and parts < -self._largest[-1][0]:
            return  # usually the subject is too small, so this comes first
        # Equal counts are ordered by name, so that the order of the rows makes no difference.
        place = (-parts, subject or "", after or "")
        full = len(self._largest) == EXAMPLES
        if full and place >= self._largest[-1][:3]:
            return
        if all(place != other[:3] for other in self._largest):
            self._largest.append((*place, Example(subject, before, after, whole(parts))))
            self._largest.sort(key=itemgetter(slice(3)))
            del self._largest[EXAMPLES:]

    @classmethod
    def of(cls, parts: int, subjects: int, examples: Iterable[Example]) -> Count:
        """A count with numbers that are already known."""
        entries = [(0, f"{n}", "", example) for n, example in enumerate(examples)]
        return cls(parts, subjects, _largest=entries)

    @property
    def examples(self) -> tuple[Example, ...]:
        """The examples, largest first."""
        return tuple(example for *_, example in self._largest)


def _largest(parts: NDArray[np.int64]) -> list[int]:
    """The positions of the largest numbers; of equal numbers the first ones count."""
    least = np.partition(parts, -EXAMPLES)[-EXAMPLES] if len(parts) > EXAMPLES else parts.min()
    above, equal = np.flatnonzero(parts > least), np.flatnonzero(parts == least)
    return [*above.tolist(), *equal[: EXAMPLES - len(above)].tolist()]


def hashed(text: str) -> int:
    """The 64-bit hash of a text, which is the same in every run."""
    return xxh3_64_intdigest(encode(text))
