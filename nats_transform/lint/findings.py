"""The findings of `check`. Each kind has a code that never changes, a meaning and a cure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """The configuration does not work: it is refused, crashes the server, or makes a loop."""
    WARNING = "warning"
    """The configuration works, but probably not as intended."""
    INFO = "info"
    """The configuration works, and this may be intended."""

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Code:
    """The meaning of a code.

    Attributes:
        severity: the severity of every finding with this code.
        about: what the configuration does.
        cure: what to do, in one line.
        link: an issue in which somebody reported it; "" if there is none.
        page: the address of its explanation.
    """

    severity: Severity
    about: str
    cure: str
    link: str = ""
    page: str = ""


PAGE = "https://example.com/OWNER/nats-transform/reference/findings/"  # where the site is
"""The page that `scripts/pages.py` makes of all codes."""


def on_page(command: str, codes: Mapping[str, Code]) -> dict[str, Code]:
    """The codes of a command, each with the address of its explanation."""
    return {code: replace(rule, page=f"{PAGE}#{command}-{code}") for code, rule in codes.items()}


_E, _W, _I = Severity
_ISSUES = "https://github.com/nats-io/nats-server/issues"

_CODES = {
    "refused": Code(
        _E,
        "nats-server refuses this configuration",
        "fix what the reason names, so that the server loads it",
    ),
    "expired": Code(
        _E,
        "the account's JWT has expired, so nats-server lets in none of its users",
        "ask the operator to sign the account again, with a later expiry or with none",
    ),
    "empty-destination": Code(
        _E,
        "a destination is empty: nats-server loads it, but crashes on the first message",
        "name a destination, or remove the entry",
    ),
    "streams-overlap": Code(
        _E,
        "two streams capture some of the same subjects, so nats-server refuses the second (10065)",
        "give the two streams subjects that don't overlap",
    ),
    "republish-loop": Code(
        _E,
        "republished messages come back to the stream that republishes them",
        "republish under a subject that no stream in the loop captures",
    ),
    "remainder-kept": Code(
        _W,
        "the weights add up to less than 100, so the other messages keep their subject (the "
        "documentation says they are lost)",
        "make the weights add up to 100. To lose the others on purpose, list the source itself "
        "(only possible without `*`)",
    ),
    "lost-elsewhere": Code(
        _W,
        "the source is listed for one cluster, so other clusters lose the messages that their "
        "weights leave over",
        "make the weights add up to 100 in every other cluster, and in the entries without a "
        "cluster",
    ),
    "loss": Code(
        _I,
        "the source is listed and the weights add up to less than 100, so the other messages are "
        "lost",
        "make the weights add up to 100, unless you want to lose messages",
    ),
    "zero-weight": Code(
        _I,
        "a destination has weight 0, so it gets no messages",
        "give it a weight, or remove it",
    ),
    "zero-is-all": Code(
        _W,
        "a weight of 0 means 100 in an account JWT and in mappings for the nats command",
        "if the destination should get nothing, remove it",
        "https://github.com/nats-io/nsc/issues/775",
    ),
    "import-not-mapped": Code(
        _W,
        "a mapping covers imported subjects, but nats-server doesn't map what arrives through an "
        "import",
        "rename the subjects in the import with `to`, or map them in the account that exports them",
        f"{_ISSUES}/7343",
    ),
    "nobody-publishes": Code(
        _W,
        "mappings at the top of the file are for the account $G, but every user belongs to "
        "another account",
        "move the mappings into the account of their publishers",
        f"{_ISSUES}/6917",
    ),
    "overlap": Code(
        _W,
        "two sources cover some of the same subjects, and nats-server tries mappings in "
        "random order",
        "write sources that don't overlap",
    ),
    "shadowed": Code(
        _W,
        "another mapping covers all of this source: if nats-server tries that one first, this one "
        "never applies",
        "write sources that don't overlap, or merge the two mappings",
    ),
    "unreachable": Code(
        _W,
        "no subject can reach this transform",
        "correct the source, or remove the transform",
    ),
    "unknown-cluster": Code(
        _E,
        "a mapping names a cluster that you don't run, so the entry never applies",
        "correct the name: upper and lower case matter",
    ),
    "cluster-without-entry": Code(
        _W,
        "one of your clusters has no entry here, and no entry is for all clusters",
        "add an entry for the cluster, or one without a cluster",
    ),
    "not-compared": Code(
        _W,
        "mappings and streams overlap too often to compare them all, so findings about what they "
        "share are missing",
        "start sources with a literal token, so that fewer of them overlap",
    ),
    "not-chained": Code(
        _W,
        "another mapping covers the result, but nats-server applies only one mapping to a message",
        "use the final subject as the destination",
    ),
    "changes-nothing": Code(
        _W,
        "every destination returns the subject unchanged",
        "remove the mapping, or correct the destination",
    ),
    "maps-into-itself": Code(
        _I,
        "the source covers its own result, so a message that is published again is mapped again",
        "if messages can come back (leaf nodes, replays), use a destination that the source "
        "doesn't cover",
    ),
    "system-subjects": Code(
        _W,
        "the source also covers replies (_INBOX.>) or the JetStream API ($JS.>), which then "
        "stop working",
        "start the source with a literal token",
    ),
    "weighted-partition": Code(
        _W,
        "each message draws its destination, so partition() can't keep the messages of a key in "
        "order",
        "remove the partition, or use one destination at 100",
    ),
    "random-order": Code(
        _W,
        "each message draws its own random(), so the messages of one subject lose their order",
        "use partition(), which always gives a key the same number",
    ),
    "few-keys": Code(
        _W,
        "partition() has fewer keys than partitions, so some partitions stay empty",
        "partition on a token with more values, or on several tokens",
    ),
    "one-key": Code(
        _W,
        "partition() on a source without a wildcard sees one subject, so it always returns the "
        "same number",
        "write `*` in the source for the token that differs between messages",
    ),
    "always-zero": Code(
        _W,
        "partition() or random() with a count of 0 or 1 always returns 0",
        "set the number of partitions",
    ),
    "negative-partition": Code(
        _W,
        "nats-server reads the negative count of a partition() as more than 2 billion partitions",
        "use a count of 1 or more",
    ),
    "wildcards-dropped": Code(
        _W,
        "the result lacks a wildcard of the source, so different subjects become one",
        "put {{wildcard(n)}} into the destination for each `*`",
    ),
    "literal-function": Code(
        _W,
        "a token looks like a function, but nats-server reads it as literal text",
        "make the function the whole token, from dot to dot",
    ),
    "text-dropped": Code(
        _W,
        "nats-server drops text beside a function in the same token",
        "make the function the whole token",
    ),
    "index-not-positive": Code(
        _W,
        "a wildcard index of 0 or less stands for the first token of the subject",
        "count wildcards from 1",
    ),
    "size-without-effect": Code(
        _W,
        "a size or offset of 0 or less leaves the token whole",
        "use a size of 1 or more, or {{wildcard(n)}}",
    ),
    "split-empty": Code(
        _I,
        "split() makes an illegal subject with an empty token if a token has nothing but "
        "delimiters",
        "make sure that publishers never send such a token",
    ),
    "any-token": Code(
        _W,
        "a source token that starts with `*` but is longer matches any token",
        "write `*` alone, or the literal text without it",
    ),
    "blank": Code(
        _W,
        "a republish subject contains a blank, so nobody can subscribe to it",
        "remove the blank",
    ),
    "sourced-twice": Code(
        _W,
        "two sources of one stream cover some of the same subjects, so it stores these messages "
        "twice",
        "write filters that don't overlap, or use one source with several transforms",
    ),
    "same-ids": Code(
        _W,
        "a stream with a duplicate_window sources several streams, so it drops a message if "
        "another of them had the same Nats-Msg-Id",
        "leave out duplicate_window, or use IDs that no two of the streams share",
        f"{_ISSUES}/4459",
    ),
    "bucket-source": Code(
        _W,
        "a bucket sources another bucket and keeps its subjects, so clients don't find the keys",
        "give the source a transform that renames the other bucket's subjects to this bucket's",
        f"{_ISSUES}/3557",
    ),
    "republish-interest": Code(
        _I,
        "a stream with interest retention republishes only messages that one of its consumers "
        "wants",
        "use another retention if everything must be republished",
        f"{_ISSUES}/5003",
    ),
    "republish-caught": Code(
        _W,
        "another stream captures what this stream republishes",
        "republish under subjects of their own, unless you want the copy",
    ),
    "bucket-moves": Code(
        _E,
        "a mapping moves keys of a key-value bucket or an object store, but its clients look only "
        "under the old names",
        "write a source that doesn't cover the bucket. To rename a bucket, make a new one that "
        "sources it",
    ),
    "mirror-filter": Code(
        _W,
        "a mapping moves subjects that a mirror filters by, and nats-server doesn't let you "
        "change a mirror (10055)",
        "turn the mirror into a stream, which cannot be undone: update it without `mirror` "
        "(servers from 2.12 on), then let it source the same stream with both subjects, starting "
        "at its last sequence + 1. Or make another stream that sources both, and move the readers "
        "there",
    ),
    "source-stops": Code(
        _W,
        "a mirror or stream source takes or renames the message today, but no longer will",
        "change the filter or transforms of the mirror or source, or the filter of the consumer "
        "that it reads",
    ),
    "service-import": Code(
        _W,
        "a mapping moves requests away from their service import, and no import can take them "
        "under their new names",
        "write a source that doesn't cover the requests",
    ),
    "counter-restarts": Code(
        _W,
        "a mapping moves subjects of a stream with counters, and a counter starts at 0 under a "
        "new name",
        "after the switch, add each counter's old value under its new name, or write a source "
        "that doesn't cover counters",
    ),
    "counted-twice": Code(
        _W,
        "a stream adds up another stream's counters and keeps one sum for a subject and its new "
        "name: an old value that you add again under the new name counts twice",
        "before the switch, subtract under the old name what you will add under the new one, or "
        "let the counters start at 0 and rely on the sum",
    ),
    "schedule-not-mapped": Code(
        _W,
        "a mapping moves subjects of a stream with message schedules, but the scheduler still "
        "publishes to the old ones: account mappings don't apply inside a stream",
        "publish the schedules again with their new targets, or rename in the stream with "
        "`subject_transform`",
    ),
    "batch-split": Code(
        _W,
        "a mapping moves subjects of a stream with atomic batches to another stream, and "
        "nats-server refuses a batch that goes to two streams, or to one that doesn't allow "
        "batches (10176, 10174)",
        "let the stream capture the new subjects too, or send no batches under these subjects",
    ),
    "mapped-twice": Code(
        _W,
        "both sides of a leaf node connection map a message, one after the other, and draw a "
        "weight twice",
        "map on one side only, or choose results that the other side doesn't cover",
    ),
    "caught-by-stream": Code(
        _I,
        "a mapping moves new subjects into a stream",
        "check that the stream should store them",
    ),
    "escapes-export": Code(
        _W,
        "a mapping moves subjects out of an export of the account, or out of another account's "
        "import",
        "export and import the destination too",
    ),
    "escapes-stream": Code(
        _W,
        "a mapping moves subjects out of the stream that captures their source",
        "add the destination to a stream's subjects",
    ),
}
CODES = on_page("check", _CODES)
"""The codes of `check`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a configuration.

    Attributes:
        code: a key of `CODES`.
        message: the finding in one line.
        source, destination: those of the transform or mapping that it is about, or "".
        place: the mapping that it is about, or the part of a stream.
        path: the file, if there is one.
        line, column: the place in the file, counted from 1, if it is known.
        severity, cure: the severity and the cure of the code.
        help: the address of the explanation of the code.
    """

    code: str
    message: str
    source: str = ""
    destination: str = ""
    place: str = ""
    path: str = ""
    line: int | None = None
    column: int | None = None
    # Pydantic leaves fields without `init` out of a schema if they have no default.
    severity: Severity = field(init=False, default=Severity.ERROR)
    cure: str = field(init=False, default="")
    help: str = field(init=False, default="")

    def __post_init__(self) -> None:
        rule = CODES[self.code]
        object.__setattr__(self, "severity", rule.severity)
        object.__setattr__(self, "cure", rule.cure)
        object.__setattr__(self, "help", rule.page)
