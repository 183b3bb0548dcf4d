"""The findings of a dry run. Each kind of finding has a code that never changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from nats_transform.lint.findings import CODES as CHECK_CODES
from nats_transform.lint.findings import Severity, codes

CODES = codes("dry-run")
"""The codes of a dry run."""

REFUSED = frozenset(("stream-refused", "streams-overlap", "work-queue-overlap", "import-cycle"))
"""The codes of what nats-server refuses. A user cannot accept these in a plan."""

STOPS_PLAN = frozenset(
    """batch-split captured-elsewhere captured-twice check-not-chained check-not-compared
    condition-fails consumer-fewer consumer-more counted-twice counter-restarts export-fewer
    export-more import-fewer import-more ingress-stops irreversible mapped-twice partition-moves
    publish-opened republish-escapes republish-stops rule-overlap rule-shadowed
    schedule-not-mapped schedule-target-moves source-starts source-stops stored-twice
    subscribe-opened""".split()  # noqa: SIM905 - reads better so
)
"""Findings that are only warnings in a dry run, but that no order of steps makes safe."""

MEASURED = frozenset(
    """refused expired overlap shadowed loss lost-elsewhere few-keys wildcards-dropped
    escapes-stream escapes-export caught-by-stream republish-loop bucket-moves mirror-filter
    service-import source-stops counted-twice counter-restarts mapped-twice schedule-not-mapped
    batch-split import-cycle""".split()  # noqa: SIM905 - reads better so
)
"""The codes of `check` for which a dry run has findings of its own, with counts of messages."""

FROM_CHECK = {f"check-{code}": rule for code, rule in CHECK_CODES.items() if code not in MEASURED}
"""The codes of `check` that a dry run passes on."""

ALL = CODES | FROM_CHECK


class Layer(StrEnum):
    """What a finding assumes."""

    NOW = "now"
    """Everything is as the configuration says."""
    ROOM = "room"
    """Streams capture the new subjects besides the old ones."""
    BOTH = "both"
    """Sources, republish, consumers, permissions, exports and imports have room for them too."""

    @property
    def words(self) -> str:
        """What is assumed, as the start of a sentence."""
        return {
            Layer.NOW: "as things are",
            Layer.ROOM: "if the streams captured the new subjects too",
            Layer.BOTH: "if consumers, users and other accounts had room for the new subjects too",
        }[self]


@dataclass(frozen=True, slots=True)
class Example:
    """A subject that shows a finding.

    Attributes:
        subject: the subject in the archive.
        before: the subject that the current mapping makes of it; None if it makes none.
        after: the subject that the candidate makes of it; None if it makes none.
        messages: how many messages it has; where weights decide, the expected number.
    """

    subject: str | None
    before: str | None
    after: str | None
    messages: float


@dataclass(frozen=True, slots=True)
class MigrationFinding:
    """One thing to know before the switch.

    Attributes:
        code: the code of the finding, a key of `ALL`.
        about: the mapping, stream, consumer or user; "" for the whole candidate.
        message: the finding in one line.
        messages: how many messages it concerns; where weights decide, the expected number.
        subjects: how many distinct subjects of the archive it concerns.
        share: the messages in percent of all messages.
        examples: the largest examples.
        layer: what the finding assumes.
        stops_plan: whether there is no plan with this finding, unless somebody accepts it.
        severity, cure: the severity and the cure of the code.
        help: the address of the explanation of the code.
    """

    code: str
    about: str
    message: str
    messages: float = 0
    subjects: int = 0
    share: float = 0.0
    examples: tuple[Example, ...] = ()
    layer: Layer = Layer.NOW
    stops_plan: bool = False
    severity: Severity = field(init=False)
    cure: str = field(init=False)
    help: str = field(init=False)

    def __post_init__(self) -> None:
        rule = ALL[self.code]
        object.__setattr__(self, "severity", rule.severity)
        object.__setattr__(self, "cure", rule.cure)
        object.__setattr__(self, "help", rule.page)
