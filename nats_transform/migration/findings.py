"""What a dry run can find: a stable code each."""

from __future__ import annotations

from dataclasses import dataclass, field

from nats_transform.findings import CODES as CHECK_CODES
from nats_transform.findings import Code, Severity

_E, _W, _I = Severity

CODES: dict[str, Code] = {
    "lost": Code(
        _E,
        "the candidate's weights lose messages that were not lost before",
        "bring the weights to 100",
    ),
    "illegal-result": Code(
        _E,
        "the new subject is not legal: an empty or wildcard token, a blank, or no subject at all",
        "change the destination, or keep such subjects out of its source",
    ),
    "illegal-subject": Code(
        _I,
        "the archive has subjects that are not legal; no mapping takes them",
        "find out who publishes them",
    ),
    "unmatched": Code(
        _W,
        "no mapping of the candidate covers the subject: it stays as it is",
        "add a mapping for these subjects if they belong to the migration",
    ),
    "no-longer-mapped": Code(
        _W,
        "the current mapping covers the subject and the candidate does not",
        "add a mapping for these subjects, or retire their publishers first",
    ),
    "collision": Code(
        _E,
        "different subjects become one, which were apart before",
        "keep in the destination what tells them apart",
    ),
    "collision-already": Code(
        _I,
        "different subjects become one, as they do under the current mapping",
        "nothing changes; know that they cannot be told apart",
    ),
    "irreversible": Code(
        _W,
        "no mapping takes the new subjects back to the old ones",
        "keep every wildcard in the destination, and results of mappings apart",
    ),
    "not-captured": Code(
        _E,
        "a stream stored the message, and no stream does any more",
        "add the new subjects to a stream before the switch",
    ),
    "captured-elsewhere": Code(
        _W,
        "another stream stores the message than before",
        "move the subjects to the stream that is meant to have them",
    ),
    "captured-twice": Code(
        _W,
        "more streams store the message than before",
        "make the streams' subjects disjoint",
    ),
    "newly-captured": Code(
        _I,
        "a stream stores the message, which none did before",
        "check that the stream is meant to store it",
    ),
    "ingress-stops": Code(
        _W,
        "the ingress transform of a stream does not match the new subject",
        "change the source of the stream's subject transform",
    ),
    "source-stops": Code(
        _W,
        "a mirror or stream source filters the message out, which it took before",
        "change the filter or transforms of the mirror or source",
    ),
    "republish-stops": Code(
        _W,
        "a stream does not republish the message any more",
        "change the source of the republish",
    ),
    "republish-loop": Code(
        _E,
        "what a stream republishes comes back to it, without end",
        "republish under a subject that no stream in the circle captures",
    ),
    "limit-discards": Code(
        _E,
        "subjects share a limit of messages per subject: more of them are discarded",
        "raise max_msgs_per_subject, or keep the subjects apart",
    ),
    "limit-refuses": Code(
        _E,
        "subjects share a limit of messages per subject: more new messages are refused",
        "raise max_msgs_per_subject, or keep the subjects apart",
    ),
    "consumer-none": Code(
        _E,
        "a consumer that had messages gets none",
        "change the consumer's filter with the switch",
    ),
    "consumer-fewer": Code(
        _W,
        "a consumer does not get messages that it got before",
        "add the new subjects to the consumer's filter",
    ),
    "consumer-more": Code(
        _W,
        "a consumer gets messages that it did not get before",
        "narrow the consumer's filter",
    ),
    "consumer-never": Code(
        _W,
        "a consumer's filter matches no message that its stream gets, before or after",
        "correct the filter; compare it with the subjects of the stream letter by letter",
    ),
    "export-none": Code(
        _E,
        "an account exports subjects, and gets no messages under them any more",
        "export the new subjects before the switch",
    ),
    "export-fewer": Code(
        _W,
        "an account does not export messages that it exported before",
        "export the new subjects too",
    ),
    "import-none": Code(
        _E,
        "another account imported messages, and gets none of them any more",
        "import the new subjects into that account with the switch",
    ),
    "import-fewer": Code(
        _W,
        "another account does not get messages that it imported before",
        "import the new subjects into that account too",
    ),
    "publish-denied": Code(
        _E,
        "a user may not publish under the new subject, and could under the old",
        "allow the new subjects; nats-server checks the subject after the mapping",
    ),
    "subscribe-denied": Code(
        _E,
        "a user may not subscribe to the new subject, and could to the old",
        "allow the new subjects",
    ),
    "publish-opened": Code(
        _W,
        "a user may publish under the new subject, and could not under the old",
        "deny the new subjects, or narrow what is allowed",
    ),
    "subscribe-opened": Code(
        _W,
        "a user may subscribe to the new subject, and could not to the old",
        "deny the new subjects, or narrow what is allowed",
    ),
    "partition-imbalance": Code(
        _W,
        "the busiest partition has more than twice the mean",
        "partition on a key that spreads better, or take a better count",
    ),
    "partition-empty": Code(
        _W,
        "some partitions get no message",
        "partition on a token with more values, or take fewer partitions",
    ),
    "partition-moves": Code(
        _W,
        "keys move to another partition: read out of order during the switch",
        "let consumers drain the old partitions before the switch",
    ),
    "rule-never-hit": Code(
        _W,
        "no subject of the archive reaches this mapping",
        "correct the source, or remove the mapping",
    ),
    "rule-shadowed": Code(
        _W,
        "other mappings take all subjects that this one covers",
        "make the sources disjoint; nats-server may try either first",
    ),
    "rule-overlap": Code(
        _W,
        "two mappings cover the same subjects; nats-server may try either first",
        "make the sources disjoint",
    ),
    "cluster-not-seen": Code(
        _W,
        "a mapping names a cluster that the archive does not name",
        "correct the name, or give the names of all clusters with --cluster",
    ),
    "rule-one-cluster": Code(
        _I,
        "a mapping is hit in one cluster only, and the archive has several",
        "check that the others are meant to publish none of it",
    ),
    "too-many-tokens": Code(
        _W,
        "the new subject has more than 16 tokens, which slows every server that routes it",
        "make fewer tokens: look at split and slice",
    ),
    "too-long": Code(
        _W,
        "the new subject is longer than 256 bytes",
        "make a shorter subject; put details into headers",
    ),
    "subject-explosion": Code(
        _W,
        "there are more than twice as many distinct subjects as before",
        "take random numbers out of subjects",
    ),
}
"""The codes of a dry run."""

MEASURED = frozenset(
    """refused expired overlap shadowed loss lost-elsewhere few-keys wildcards-dropped
    escapes-stream escapes-export caught-by-stream republish-loop""".split()  # noqa: SIM905 - reads better so
)
"""Codes of `check` that a dry run replaces with what it counts."""

FROM_CHECK = {f"check-{code}": rule for code, rule in CHECK_CODES.items() if code not in MEASURED}
"""The codes of `check` that a dry run passes on."""

ALL = CODES | FROM_CHECK


@dataclass(frozen=True, slots=True)
class Example:
    """A subject that shows a finding.

    Attributes:
        subject: as in the archive.
        before: what the current mapping makes of it; None is nothing.
        after: what the candidate makes of it; None is nothing.
        messages: how many it has; expected, where weights decide.
    """

    subject: str | None
    before: str | None
    after: str | None
    messages: float


@dataclass(frozen=True, slots=True)
class MigrationFinding:
    """One thing to know before the switch.

    Attributes:
        code: a key of `ALL`.
        about: the mapping, stream, consumer or user; "" for the whole candidate.
        message: what is so here, one line.
        messages: how many it concerns; expected, where weights decide.
        subjects: distinct subjects of the archive that it concerns.
        share: percent of all messages.
        examples: the largest.
        severity, cure: of the code.
    """

    code: str
    about: str
    message: str
    messages: float = 0
    subjects: int = 0
    share: float = 0.0
    examples: tuple[Example, ...] = ()
    severity: Severity = field(init=False)
    cure: str = field(init=False)

    def __post_init__(self) -> None:
        rule = ALL[self.code]
        object.__setattr__(self, "severity", rule.severity)
        object.__setattr__(self, "cure", rule.cure)
