"""Findings of `check`: a stable code each, with what it is about and the cure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """It does not work: refused, crashes the server, or loops."""
    WARNING = "warning"
    """It works, and probably not as meant."""
    INFO = "info"
    """It may be meant; know that it is so."""

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Code:
    """What one code means.

    Attributes:
        severity: of every finding with the code.
        about: what the configuration does, for the table in docs/check.md.
        cure: what to do, one line.
    """

    severity: Severity
    about: str
    cure: str


_E, _W, _I = Severity

CODES: dict[str, Code] = {
    "refused": Code(
        _E,
        "nats-server refuses this configuration",
        "mend what the reason names; the server would not load it",
    ),
    "expired": Code(
        _E,
        "the JWT of the account has expired: nats-server lets none of its users in",
        "have the operator sign the account again, with a later end or none",
    ),
    "empty-destination": Code(
        _E,
        "a destination is empty: nats-server loads it and crashes on the first message",
        "name a destination, or remove the entry",
    ),
    "streams-overlap": Code(
        _E,
        "two streams capture some of the same subjects: nats-server refuses the second (10065)",
        "make the subjects of the streams disjoint",
    ),
    "republish-loop": Code(
        _E,
        "republished messages come back to the stream that republishes them",
        "republish under a subject that no stream in the circle captures",
    ),
    "remainder-kept": Code(
        _W,
        "weights below 100: the rest keeps the published subject (the documentation says lost)",
        "bring the weights to 100; a source without `*` loses the rest if it is listed itself",
    ),
    "lost-elsewhere": Code(
        _W,
        "the source is listed for one cluster, so what other clusters leave over is lost there",
        "bring the weights of every other cluster, and of the entries without one, to 100",
    ),
    "loss": Code(
        _I,
        "the source is listed and the weights stay below 100: the rest is lost",
        "bring the weights to 100 if no loss is meant",
    ),
    "zero-weight": Code(
        _I,
        "a destination has weight 0 and is never chosen",
        "give it a weight, or remove it",
    ),
    "overlap": Code(
        _W,
        "two sources cover some of the same subjects; nats-server tries mappings in random order",
        "make the sources disjoint",
    ),
    "shadowed": Code(
        _W,
        "another mapping covers all of this source; where it is tried first, this one is dead",
        "make the sources disjoint, or fold the one into the other",
    ),
    "unreachable": Code(
        _W,
        "no subject can reach this transform",
        "correct the source, or remove the transform",
    ),
    "unknown-cluster": Code(
        _E,
        "a cluster name that no known cluster has: its entries never apply",
        "correct the name; nats-server compares it letter by letter",
    ),
    "cluster-without-entry": Code(
        _W,
        "a known cluster has no entry here and there is none for all clusters",
        "add an entry for the cluster, or one without a cluster",
    ),
    "not-chained": Code(
        _W,
        "a result is covered by another mapping, which is not applied to it: one mapping a message",
        "write the final subject as the destination",
    ),
    "changes-nothing": Code(
        _W,
        "every destination gives the subject back as it is",
        "remove it, or correct the destination",
    ),
    "maps-into-itself": Code(
        _I,
        "a result is covered by its own source: published again, it is mapped again",
        "use a destination outside the source if messages can come back (leaf nodes, replays)",
    ),
    "system-subjects": Code(
        _W,
        "the source also covers replies (_INBOX.>) or the JetStream API ($JS.>), which breaks them",
        "start the source with a literal token",
    ),
    "weighted-partition": Code(
        _W,
        "weights are drawn for each message, so partition() cannot keep the order of a key",
        "take the partition out, or the weights: use one destination at 100",
    ),
    "random-order": Code(
        _W,
        "random() is drawn for each message, so messages of one subject lose their order",
        "use partition(), which gives a key the same number each time",
    ),
    "few-keys": Code(
        _W,
        "partition() over fewer distinct keys than partitions: some stay empty",
        "partition on a token with more values, or on several tokens",
    ),
    "one-key": Code(
        _W,
        "partition() over a source without a wildcard: one subject, so one partition",
        "put the token that tells messages apart into the source as `*`",
    ),
    "always-zero": Code(
        _W,
        "partition() or random() of 0 or 1 always gives 0",
        "give the number of partitions",
    ),
    "negative-partition": Code(
        _W,
        "partition() of a negative count is read as more than 2 billion partitions",
        "give a count of 1 or more",
    ),
    "wildcards-dropped": Code(
        _W,
        "a wildcard of the source is not in the result: distinct subjects merge",
        "put {{wildcard(n)}} into the destination for each `*`",
    ),
    "literal-function": Code(
        _W,
        "a token looks like a function and is taken literally",
        "make the function the whole token: a function starts and ends at a dot",
    ),
    "text-dropped": Code(
        _W,
        "text beside a function in the same token is dropped",
        "make the function the whole token",
    ),
    "index-not-positive": Code(
        _W,
        "a wildcard index of 0 or below stands for the subject's first token",
        "count wildcards from 1",
    ),
    "size-without-effect": Code(
        _W,
        "a size or offset of 0 or below leaves the token whole",
        "give a size of 1 or more, or use {{wildcard(n)}}",
    ),
    "split-empty": Code(
        _I,
        "split() of a token of delimiters only leaves an empty token: the subject is illegal",
        "make sure that publishers never send such a token",
    ),
    "any-token": Code(
        _W,
        "a source token that starts with `*` but is longer matches any token",
        "write `*` alone, or the literal without it",
    ),
    "blank": Code(
        _W,
        "a republish subject has a blank, with which nobody can subscribe to it",
        "take the blank out",
    ),
    "sourced-twice": Code(
        _W,
        "two sources of one stream cover some of the same subjects: those are stored twice",
        "make the filters disjoint, or use one source with several transforms",
    ),
    "republish-caught": Code(
        _W,
        "what a stream republishes is captured by another stream",
        "republish under subjects of their own if the copy is not meant",
    ),
    "caught-by-stream": Code(
        _I,
        "a mapping brings new subjects into a stream",
        "check that the stream is meant to store them",
    ),
    "escapes-export": Code(
        _W,
        "a mapping takes subjects away from an export of the account, or an import from it",
        "export and import the destination too",
    ),
    "escapes-stream": Code(
        _W,
        "a mapping takes subjects out of the stream that captures their source",
        "add the destination to the subjects of a stream",
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a configuration.

    Attributes:
        code: a key of `CODES`.
        message: what is so here, one line.
        source, destination: of the transform or mapping it is about, or "".
        place: where that stands: a mapping, or which part of which stream.
        path: the file, where it came from one.
        line: 1-based line in it, where known.
        severity, cure: of the code.
    """

    code: str
    message: str
    source: str = ""
    destination: str = ""
    place: str = ""
    path: str = ""
    line: int | None = None
    severity: Severity = field(init=False)
    cure: str = field(init=False)

    def __post_init__(self) -> None:
        rule = CODES[self.code]
        object.__setattr__(self, "severity", rule.severity)
        object.__setattr__(self, "cure", rule.cure)
