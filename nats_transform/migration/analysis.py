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
"""What a finding is made from: its code, what it is about, its message and its count."""


class Analysis(ABC):
    """One part of a dry run: it counts subjects and gives findings.

    A `Case` may stand for many subjects that are alike. So an analysis may use the names in it only
    to find the mappings, filters and permissions that cover them, and to compare them with each
    other. If an analysis needs to know anything else, `nats_transform.migration.columns` must tell
    subjects apart by it.
    """

    def add(self, cases: list[Case], after: Mapping[str, Amount]) -> None:
        """Count all cases of one subject, or of many that are alike.

        Args:
            cases: one case for each cluster.
            after: the subjects that it becomes, each with parts of its messages.
        """
        for case in cases:
            self.add_case(case)

    def add_case(self, case: Case) -> None:
        """Count one case; an analysis that looks at all cases together overrides `add`."""
        raise NotImplementedError

    @abstractmethod
    def told(self, names: Names) -> Iterator[Told]:
        """The findings, which are complete when all subjects have been added."""
