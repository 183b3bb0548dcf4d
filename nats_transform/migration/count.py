"""Counting, in exact hundredths of a message because weights are percent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from xxhash import xxh3_64_intdigest

from nats_transform.migration.findings import Example
from nats_transform.subject import encode

EXAMPLES = 5
"""The largest so many are kept."""

PARTS = 100
"""Parts of a message."""


def whole(parts: int) -> float:
    """Messages of some parts; a whole number where it is one."""
    return parts // PARTS if parts % PARTS == 0 else parts / PARTS


def messages(parts: int) -> str:
    """So many messages in words: exact where it is a whole number, else as people round it."""
    if parts % PARTS == 0:
        count = parts // PARTS
        return f"{count:,} message{'' if count == 1 else 's'}"
    return f"about {rounded(parts / PARTS):,} messages"


def rounded(count: float) -> int:
    """A count to four digits, as people say it: 360,692.98 is about 360,700."""
    digits = len(str(int(count)))
    return int(round(count, 4 - digits)) if digits > 4 else round(count)


@dataclass(slots=True)
class Count:
    """Messages and distinct subjects, with the largest as examples.

    Subjects must be added one after the other: all additions of a subject in a row.
    """

    parts: int = 0
    subjects: int = 0
    _last: object = field(default=None, repr=False)
    _largest: list[tuple[int, str, str, Example]] = field(default_factory=list, repr=False)

    def add(self, subject: str | None, before: str | None, after: str | None, parts: int) -> None:
        """Count parts of the messages of a subject."""
        self.parts += parts
        if (subject,) != self._last or not self.subjects:
            self.subjects += 1
            self._last = (subject,)
        if len(self._largest) == EXAMPLES and parts < -self._largest[-1][0]:
            return  # the most frequent case
        # Ties go by name, so that the order of the rows makes no difference.
        place = (-parts, subject or "", after or "")
        full = len(self._largest) == EXAMPLES
        if full and place >= self._largest[-1][:3]:
            return
        if all(place != other[:3] for other in self._largest):
            self._largest.append((*place, Example(subject, before, after, whole(parts))))
            self._largest.sort(key=itemgetter(slice(3)))
            del self._largest[EXAMPLES:]

    def merge(self, other: Count) -> None:
        """Add a count of other subjects."""
        self.parts += other.parts
        self.subjects += other.subjects
        self._largest = sorted([*self._largest, *other._largest], key=itemgetter(slice(3)))
        del self._largest[EXAMPLES:]

    @classmethod
    def of(cls, parts: int, subjects: int, examples: Iterable[Example]) -> Count:
        """A count that is known already."""
        entries = [(0, f"{n}", "", example) for n, example in enumerate(examples)]
        return cls(parts, subjects, _largest=entries)

    @property
    def examples(self) -> tuple[Example, ...]:
        """The largest, largest first."""
        return tuple(example for *_, example in self._largest)


def hashed(text: str) -> int:
    """64 bits of a text, the same in every run."""
    return xxh3_64_intdigest(encode(text))
