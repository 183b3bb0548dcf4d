"""The interface of the analyses of a dry run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from nats_transform.migration.count import Amount, Count

if TYPE_CHECKING:
    from nats_transform.migration.case import Case
    from nats_transform.migration.names import Names

Told: TypeAlias = tuple[str, str, str, Count]
"""A finding to be: its code, what it is about, its message and its count."""


class Analysis(ABC):
    """One thing that a dry run looks at: it counts subjects and says what is worth a finding.

    What it does with a subject may depend on its names only through the mappings, filters and
    permissions that cover them and on which of them are equal, because it may be told of many
    subjects at once that are alike in this (`Case`). What else it needs to know is for
    `nats_transform.migration.columns` to tell subjects apart by.
    """

    @abstractmethod
    def add(self, cases: list[Case], after: Mapping[str, Amount]) -> None:
        """Count all cases of one subject, or of many that are alike.

        Args:
            cases: one for each cluster.
            after: the subjects that it becomes, with parts of its messages.
        """

    @abstractmethod
    def told(self, names: Names) -> Iterator[Told]:
        """The findings; complete once all is added."""
