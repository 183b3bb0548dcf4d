"""The result of a dry run."""

from __future__ import annotations

from dataclasses import dataclass

from nats_transform.mappings.mapping import Mapping
from nats_transform.migration.findings import Example, MigrationFinding

OTHER = "(other)"
"""This stands for all prefixes with few messages, if there are too many to show each."""


@dataclass(frozen=True, slots=True)
class Change:
    """The messages that one rule maps today and another rule would map.

    Attributes:
        before, after: the source and destination of the rules; None if no mapping applies.
        messages, subjects: how many messages and subjects there are.
        share: the messages in percent of all messages.
        examples: the largest examples.
    """

    before: str | None
    after: str | None
    messages: float
    subjects: int
    share: float
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages from one prefix of the namespace to another.

    Attributes:
        before, after: the first tokens under the current mapping and under the candidate; None if
            nobody gets the messages.
        messages: how many messages there are.
        uncaptured: how many of them a stream stores today and none would store.
        merged: how many others would share their subject with those of other subjects.
    """

    before: str | None
    after: str | None
    messages: float
    uncaptured: float = 0
    merged: float = 0


@dataclass(frozen=True, slots=True)
class Branch:
    """A token of the namespace with what is below it.

    Attributes:
        token: the token; the whole namespace is the branch "".
        messages: how many messages the subjects of the branch have.
        lost: how many of them nobody would get; 0 under the candidate, where they have no subject.
        uncaptured, merged: as in a flow.
        branches: what is below it, the largest first.
        left_out: how many smaller branches there are besides.
    """

    token: str
    messages: float
    lost: float
    uncaptured: float
    merged: float
    branches: tuple[Branch, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    """How many different values the tokens at one place of the subjects have.

    Attributes:
        level: the place of the token, 1 for the first.
        before, after: distinct values, at most `hygiene.MOST_VALUES`.
    """

    level: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Balance:
    """How one `partition()` spreads the messages.

    Attributes:
        source, destination: the source and destination of the mapping.
        partitions: the number of partitions.
        counts: the number of messages of each partition, from partition 0 on.
        keys: the number of distinct keys.
        busiest: the messages of the busiest partition, divided by the mean.
        largest: the largest keys, each with its partition and its messages.
        nearby: other numbers of partitions near this one, each with its `busiest`.
    """

    source: str
    destination: str
    partitions: int
    counts: tuple[float, ...]
    keys: int
    busiest: float
    largest: tuple[tuple[str, int, float], ...]
    nearby: tuple[tuple[int, float], ...]

    @property
    def better(self) -> int | None:
        """The nearby number of partitions that spreads clearly better, if there is one."""
        count, busiest = min(self.nearby, key=lambda pair: pair[1])
        return count if busiest < 0.9 * self.busiest else None


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run.

    Attributes:
        messages, subjects: the numbers of messages and subjects of the census.
        changed_messages, changed_subjects: how many of them have another result; where weights
            decide, the expected number.
        subjects_before, subjects_after: the number of distinct results.
        bytes: the size of the payloads.
        clusters: the clusters that the census names.
        fates_before, fates_after: the number of messages of each fate.
        findings: the findings as things are, worst first, then largest first.
        with_room: what would be found if streams, and then everything else, had room for the new
            subjects; without what `findings` has.
        changes: the changes, one for each pair of rules, largest first.
        flows: the flows between prefixes of subjects, largest first.
        trees: the namespace under the current mapping and under the candidate.
        partitions: the balance of the first `partition()` of each destination of the candidate.
        levels: the number of distinct tokens at each level.
        reverse: the mappings that undo the candidate, as far as it can be undone.
        is_reversible: whether `reverse` gives every subject back.
    """

    messages: int
    subjects: int
    changed_messages: float
    changed_subjects: int
    subjects_before: int
    subjects_after: int
    bytes: int
    clusters: tuple[str, ...]
    fates_before: dict[str, float]
    fates_after: dict[str, float]
    findings: tuple[MigrationFinding, ...]
    with_room: tuple[MigrationFinding, ...]
    changes: tuple[Change, ...]
    flows: tuple[Flow, ...]
    trees: tuple[Branch, Branch]
    partitions: tuple[Balance, ...]
    levels: tuple[Level, ...]
    reverse: tuple[Mapping, ...]
    is_reversible: bool
