"""What was counted of some subjects, added to what was counted of others."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from nats_transform.migration.count import Amount, Count
from nats_transform.migration.rows import Table

if TYPE_CHECKING:
    from nats_transform.migration.case import Case
    from nats_transform.migration.names import Names

Told: TypeAlias = tuple[str, str, str, Count]
"""Code, what it is about, message, count: what becomes a finding."""


class Counted:
    """Something that counts subject by subject, anywhere: its counts travel and are added up."""

    COUNTED: ClassVar[tuple[str, ...]]
    """The attributes that are counts."""

    @property
    def counts(self) -> dict[str, Any]:
        """What was counted, as plain values, `Count` and tables."""
        return {name: getattr(self, name) for name in self.COUNTED}

    def merge(self, counts: Mapping[str, Any]) -> None:
        """Add what was counted of other subjects."""
        for name in self.COUNTED:
            setattr(self, name, merged(getattr(self, name), counts[name]))


class Analysis(Counted):
    """One thing that a dry run looks at: it counts subjects and says what is worth a finding."""

    @abstractmethod
    def add(self, cases: list[Case], after: Mapping[str, Amount]) -> None:
        """Count all cases of one subject.

        Args:
            cases: one for each cluster.
            after: the subjects that it becomes, with parts of its messages.
        """

    @abstractmethod
    def told(self, names: Names) -> Iterator[Told]:
        """What is worth a finding; to be asked when all is added."""


def merged(into: Any, other: Any) -> Any:
    """Both together; `into` is changed where it can be."""
    match into:
        case Count() | Table():
            into.merge(other)
        case Counter():
            into.update(other)
        case dict():
            for key, value in other.items():
                into[key] = merged(into[key], value) if key in into else value
        case set():
            into |= other
        case tuple():
            return tuple(merged(one, more) for one, more in zip(into, other, strict=True))
        case int():
            return into + other
        case _:  # a name, which is the same wherever it was found
            return into
    return into
