"""The interface of the analyses of a dry run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, TypeAlias

from nats_transform.migration.count import Count
from nats_transform.migration.database import Database

Told: TypeAlias = tuple[str, str, str, Count]
"""What a finding is made from: its code, what it is about, its message and its count."""


class Analysis(ABC):
    """One part of a dry run: queries over the tables, and the text of the findings.

    Attributes:
        name: the name of the analysis.
        is_layered: whether it looks at streams, consumers, users or other accounts, which differ
            between the layers of a question.
        kinds: a query for kinds of ends; the table `rises` has those that become likelier, and with
            which end and percent. Columns: `layer`, `code`, `about` and `kind` (numbers), `way`,
            `side`, `number`, `percent`.
        gains: a query for the ends that are counted, with the percent of their messages. Columns:
            `layer`, `code`, `about`, `way`, `number` of an end after the switch, `percent`.
    """

    name: ClassVar[str]
    is_layered: ClassVar[bool] = False
    kinds: ClassVar[str] = ""
    gains: ClassVar[str] = ""

    def prepare(self, database: Database) -> None:  # noqa: B027 - most need none
        """Make the small tables that the queries need."""

    @abstractmethod
    def findings(self, database: Database, layer: int) -> Iterator[Told]:
        """The findings in a layer. `database.counts` has the sums of `gains`."""
