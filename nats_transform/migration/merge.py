"""What was counted of some subjects, added to what was counted of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from nats_transform.migration.count import Count
from nats_transform.migration.rows import Table


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
