"""The findings of a dry run. Each kind of finding has a code that never changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from nats_transform.lint.findings import CODES as CHECK_CODES
from nats_transform.lint.findings import Code, Severity, on_page

_E, _W, _I = Severity

_CODES = {
    "lost": Code(
        _E,
        "the candidate's weights lose messages that aren't lost today",
        "make the weights add up to 100",
    ),
    "illegal-result": Code(
        _E,
        "the new subject is illegal: it is missing, or has an empty token, a wildcard or a blank",
        "change the destination, or write a source that doesn't cover such subjects",
    ),
    "illegal-subject": Code(
        _I,
        "the archive has illegal subjects that no mapping covers",
        "find out who publishes them",
    ),
    "unmatched": Code(
        _W,
        "no mapping of the candidate covers the subject, so it doesn't change",
        "add a mapping for these subjects if they are part of the migration",
    ),
    "no-longer-mapped": Code(
        _W,
        "the current mapping covers the subject, but the candidate doesn't",
        "add a mapping for these subjects, or stop their publishers first",
    ),
    "collision": Code(
        _E,
        "subjects that are different today become one",
        "keep the token in which they differ in the destination",
    ),
    "collision-already": Code(
        _I,
        "different subjects become one, as they do under the current mapping",
        "nothing to do: these subjects are one subject already",
    ),
    "irreversible": Code(
        _W,
        "no mapping can turn the new subjects back into the old ones",
        "use every wildcard unchanged in the destination, as {{wildcard(n)}} even beside the "
        "pieces of a token that is cut, and don't let two mappings produce the same subject",
    ),
    "not-captured": Code(
        _E,
        "a stream stores the message today, but no stream will",
        "add the new subjects to a stream before the switch",
    ),
    "captured-elsewhere": Code(
        _W,
        "another stream will store the message",
        "give the subjects to the stream that should have them",
    ),
    "captured-twice": Code(
        _W,
        "more streams capture the message than today, which nats-server doesn't allow",
        "give the streams subjects that don't overlap",
    ),
    "newly-captured": Code(
        _I,
        "a stream will store the message, but none does today",
        "check that the stream should store it",
    ),
    "condition-fails": Code(
        _W,
        "publishers expect a last sequence of a subject that gets a new name. The new name has "
        "none yet, so nats-server refuses what they publish (10071)",
        "pause these publishers during the switch, then let them read the last sequence under the "
        "new name. Or write a source that doesn't cover what they publish",
    ),
    "ids-forgotten": Code(
        _W,
        "messages with a Nats-Msg-Id will move to another stream, whose duplicate window doesn't "
        "know their IDs, so retries around the switch are stored twice",
        "let publishers finish their retries before the switch, or keep the subjects in one stream",
    ),
    "schedule-target-moves": Code(
        _W,
        "scheduled messages have a target or source that gets a new name, but still publish to the "
        "old one, or what came last under it",
        "publish the schedules again with the new names, or rename in the stream with "
        "`subject_transform`",
    ),
    "header-not-mapped": Code(
        _W,
        "a header names subjects that get new names, and mappings don't change headers",
        "before the switch, make sure that readers of the header know both names",
    ),
    "ingress-stops": Code(
        _W,
        "a stream's subject transform doesn't match the new subject",
        "change the source of that subject transform",
    ),
    "republish-stops": Code(
        _W,
        "a stream republishes the message today, but no longer will",
        "change the source of the republish",
    ),
    "limit-discards": Code(
        _E,
        "several subjects become one and share a limit of messages per subject, so more messages "
        "are discarded",
        "raise max_msgs_per_subject, or keep the subjects apart",
    ),
    "limit-refuses": Code(
        _E,
        "several subjects become one and share a limit of messages per subject, so more new "
        "messages are refused",
        "raise max_msgs_per_subject, or keep the subjects apart",
    ),
    "consumer-none": Code(
        _E,
        "a consumer gets messages today, but will get none",
        "change the consumer's filter together with the switch",
    ),
    "consumer-fewer": Code(
        _W,
        "a consumer will miss some of the messages that it gets today",
        "add the new subjects to the consumer's filter",
    ),
    "consumer-more": Code(
        _W,
        "a consumer will get messages that it doesn't get today",
        "narrow the consumer's filter",
    ),
    "consumer-never": Code(
        _W,
        "a consumer's filter matches no message of its stream, today or after the switch",
        "compare the filter with the stream's subjects, letter by letter",
    ),
    "consumer-not-seen": Code(
        _I,
        "the archive has no message for these consumers, but their streams get messages from "
        "elsewhere too",
        "try the candidate on the archives of these streams too",
    ),
    "export-none": Code(
        _E,
        "an account exports messages today, but will export none",
        "export the new subjects before the switch",
    ),
    "export-fewer": Code(
        _W,
        "an account will no longer export some of the messages that it exports today",
        "export the new subjects too",
    ),
    "import-none": Code(
        _E,
        "another account imports messages today, but will get none",
        "import the new subjects into that account together with the switch",
    ),
    "import-fewer": Code(
        _W,
        "another account will miss some of the messages that it imports today",
        "import the new subjects into that account too",
    ),
    "publish-denied": Code(
        _E,
        "a user may publish under the old subject, but not under the new one",
        "allow the new subjects: nats-server checks the subject after the mapping",
    ),
    "subscribe-denied": Code(
        _E,
        "a user may subscribe to the old subject, but not to the new one",
        "allow the new subjects",
    ),
    "publish-opened": Code(
        _W,
        "a user may publish under the new subject, but not under the old one",
        "deny the new subjects, or allow fewer",
    ),
    "subscribe-opened": Code(
        _W,
        "a user may subscribe to the new subject, but not to the old one",
        "deny the new subjects, or allow fewer",
    ),
    "partition-imbalance": Code(
        _W,
        "the busiest partition has more than twice the average",
        "partition on a key that spreads better, or choose another count",
    ),
    "partition-empty": Code(
        _W,
        "some partitions get no messages",
        "partition on a token with more values, or use fewer partitions",
    ),
    "partition-moves": Code(
        _W,
        "keys move to another partition, so their messages can be read out of order during "
        "the switch",
        "let consumers finish the old partitions before the switch",
    ),
    "rule-not-seen": Code(
        _I,
        "the archive can't have subjects for these mappings: its stream captures none of them, or "
        "its configuration wasn't given",
        "give the account's streams, and try these mappings on the archives of the streams that "
        "capture their subjects",
    ),
    "rule-never-hit": Code(
        _W,
        "no subject in the archive reaches this mapping",
        "correct the source, or remove the mapping",
    ),
    "rule-shadowed": Code(
        _W,
        "other mappings take all the subjects that this one covers",
        "write sources that don't overlap: nats-server may try either first",
    ),
    "rule-overlap": Code(
        _W,
        "two mappings cover the same subjects, and nats-server may try either first",
        "write sources that don't overlap",
    ),
    "cluster-not-seen": Code(
        _W,
        "a mapping names a cluster that the archive doesn't name",
        "correct the name, or name all your clusters with --cluster",
    ),
    "rule-one-cluster": Code(
        _I,
        "only one cluster uses a mapping, but the archive names several",
        "check that no other cluster should publish such messages",
    ),
    "too-many-tokens": Code(
        _W,
        "the new subject has more than 16 tokens, which slows every server that routes it",
        "use fewer tokens: look at split and slice",
    ),
    "too-long": Code(
        _W,
        "the new subject is longer than 256 bytes",
        "write a shorter subject, and put details into headers",
    ),
    "letter-case": Code(
        _I,
        "new subjects differ only in upper and lower case, which nats-server tells apart",
        "choose one spelling: publishers may have mistyped some",
    ),
    "subject-explosion": Code(
        _W,
        "there will be more than twice as many distinct subjects as today",
        "remove random numbers from subjects",
    ),
    # Between two mappings these are certain; `check` knows only one of them.
    "mirror-filter": replace(CHECK_CODES["mirror-filter"], severity=_E),
    "service-import": replace(CHECK_CODES["service-import"], severity=_E),
    "stream-refused": Code(
        _E,
        "nats-server refuses a stream that captures both the old and the new subjects",
        "choose new subjects that this stream can capture beside the old ones",
    ),
    "streams-overlap": Code(
        _E,
        "two streams that make room for the new subjects would capture the same ones, which "
        "nats-server refuses (10065)",
        "give the two streams subjects that don't overlap",
    ),
    "consumer-filters-overlap": Code(
        _E,
        "with room for the new subjects, one filter of a consumer would cover another, which "
        "nats-server refuses (10138)",
        "choose new subjects that don't overlap the old ones",
    ),
    "work-queue-overlap": Code(
        _E,
        "two consumers of a work queue would get the same subjects, which nats-server refuses "
        "(10100)",
        "keep the token in which their filters differ in the destination",
    ),
}
_AS_IN_CHECK = (
    "republish-loop",
    "bucket-moves",
    "counter-restarts",
    "counted-twice",
    "source-stops",
    "schedule-not-mapped",
    "batch-split",
    "mapped-twice",
)
CODES = on_page("dry-run", _CODES | {code: CHECK_CODES[code] for code in _AS_IN_CHECK})
"""The codes of a dry run."""

REFUSED = frozenset(
    ("stream-refused", "streams-overlap", "consumer-filters-overlap", "work-queue-overlap")
)
"""The codes of what nats-server refuses. A user cannot accept these in a plan."""

STOPS_PLAN = frozenset(
    """batch-split captured-elsewhere captured-twice check-not-chained check-not-compared
    condition-fails consumer-fewer consumer-more counted-twice counter-restarts export-fewer
    import-fewer ingress-stops irreversible mapped-twice partition-moves publish-opened
    republish-stops rule-overlap rule-shadowed schedule-not-mapped schedule-target-moves
    source-stops subscribe-opened""".split()  # noqa: SIM905 - reads better so
)
"""Findings that are only warnings in a dry run, but that no order of steps makes safe."""

MEASURED = frozenset(
    """refused expired overlap shadowed loss lost-elsewhere few-keys wildcards-dropped
    escapes-stream escapes-export caught-by-stream republish-loop bucket-moves mirror-filter
    service-import source-stops counted-twice counter-restarts mapped-twice schedule-not-mapped
    batch-split""".split()  # noqa: SIM905 - reads better so
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
