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
        "correct what the reason names; the server does not load it as it is",
    ),
    "expired": Code(
        _E,
        "the JWT of the account has expired, so nats-server lets none of its users in",
        "ask the operator to sign the account again, with a later end or with none",
    ),
    "empty-destination": Code(
        _E,
        "a destination is empty: nats-server loads it, and crashes on the first message",
        "name a destination, or remove the entry",
    ),
    "streams-overlap": Code(
        _E,
        "two streams capture some of the same subjects, so nats-server refuses the second (10065)",
        "give the two streams subjects that do not overlap",
    ),
    "republish-loop": Code(
        _E,
        "republished messages come back to the stream that republishes them",
        "republish under a subject that no stream in the circle captures",
    ),
    "remainder-kept": Code(
        _W,
        "the weights add up to less than 100; the rest of the messages keep their subject "
        "(the documentation says that they are lost)",
        "make the weights add up to 100; to lose the rest on purpose, list the source itself "
        "(only possible without `*`)",
    ),
    "lost-elsewhere": Code(
        _W,
        "the source is listed for one cluster, so other clusters lose the messages that "
        "their weights leave over",
        "make the weights add up to 100 in every other cluster, and in the entries without a "
        "cluster",
    ),
    "loss": Code(
        _I,
        "the source is listed and the weights add up to less than 100, so the rest of the "
        "messages are lost",
        "make the weights add up to 100, unless you want to lose messages",
    ),
    "zero-weight": Code(
        _I,
        "a destination has weight 0, so no message goes there",
        "give it a weight, or remove it",
    ),
    "zero-is-all": Code(
        _W,
        "a weight of 0 in an account JWT, or in mappings for the nats command, means 100",
        "to send nothing to the destination, remove it",
        "https://github.com/nats-io/nsc/issues/775",
    ),
    "import-not-mapped": Code(
        _W,
        "a mapping covers what the account imports, and nats-server maps nothing that comes in "
        "through an import",
        "give the import another subject with `to`, or map in the account that exports",
        f"{_ISSUES}/7343",
    ),
    "nobody-publishes": Code(
        _W,
        "mappings at the top of the file are for the account $G, and every user belongs to another "
        "account",
        "put the mappings into the account of their publishers",
        f"{_ISSUES}/6917",
    ),
    "overlap": Code(
        _W,
        "two sources cover some of the same subjects, and nats-server tries mappings in "
        "random order",
        "write sources that do not overlap",
    ),
    "shadowed": Code(
        _W,
        "another mapping covers all of this source; if nats-server tries that one first, "
        "this one never applies",
        "write sources that do not overlap, or make one mapping of the two",
    ),
    "unreachable": Code(
        _W,
        "no subject can reach this transform",
        "correct the source, or remove the transform",
    ),
    "unknown-cluster": Code(
        _E,
        "a mapping names a cluster that you do not run, so the entry never applies",
        "correct the name; nats-server compares it letter by letter",
    ),
    "cluster-without-entry": Code(
        _W,
        "one of your clusters has no entry here, and there is no entry for all clusters",
        "add an entry for the cluster, or one without a cluster",
    ),
    "not-compared": Code(
        _W,
        "the subjects of mappings and streams cover each other too often to compare all of them, "
        "so findings about what they share are missing",
        "start sources with a literal token, so that fewer of them cover the same subjects",
    ),
    "not-chained": Code(
        _W,
        "another mapping covers the result, but nats-server applies only one mapping to a message",
        "write the final subject as the destination",
    ),
    "changes-nothing": Code(
        _W,
        "every destination gives the subject back as it is",
        "remove the mapping, or correct the destination",
    ),
    "maps-into-itself": Code(
        _I,
        "the source covers its own result: if such a message is published again, it is "
        "mapped again",
        "use a destination that the source does not cover, if messages can come back (leaf "
        "nodes, replays)",
    ),
    "system-subjects": Code(
        _W,
        "the source also covers replies (_INBOX.>) or the JetStream API ($JS.>), which then "
        "stop working",
        "start the source with a literal token",
    ),
    "weighted-partition": Code(
        _W,
        "each message draws its destination, so partition() cannot keep the messages of a "
        "key in order",
        "remove the partition, or the weights: use one destination at 100",
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
        "partition() on a source without a wildcard sees one subject, so it always gives the "
        "same number",
        "put the token that differs between messages into the source as `*`",
    ),
    "always-zero": Code(
        _W,
        "partition() or random() with a count of 0 or 1 always gives 0",
        "give the number of partitions",
    ),
    "negative-partition": Code(
        _W,
        "nats-server reads the negative count of a partition() as more than 2 billion partitions",
        "give a count of 1 or more",
    ),
    "wildcards-dropped": Code(
        _W,
        "a wildcard of the source is not in the result, so different subjects become one",
        "put {{wildcard(n)}} into the destination for each `*`",
    ),
    "literal-function": Code(
        _W,
        "a token looks like a function, but nats-server takes it as literal text",
        "make the function the whole token: a function starts and ends at a dot",
    ),
    "text-dropped": Code(
        _W,
        "nats-server drops the text beside a function in the same token",
        "make the function the whole token",
    ),
    "index-not-positive": Code(
        _W,
        "a wildcard index of 0 or below stands for the first token of the subject",
        "count wildcards from 1",
    ),
    "size-without-effect": Code(
        _W,
        "a size or offset of 0 or below leaves the token whole",
        "give a size of 1 or more, or use {{wildcard(n)}}",
    ),
    "split-empty": Code(
        _I,
        "split() leaves an empty token if a token has nothing but delimiters; such a subject "
        "is illegal",
        "make sure that publishers never send such a token",
    ),
    "any-token": Code(
        _W,
        "a source token that starts with `*` and is longer matches any token",
        "write `*` alone, or the literal text without it",
    ),
    "blank": Code(
        _W,
        "a republish subject has a blank, so nobody can subscribe to it",
        "remove the blank",
    ),
    "sourced-twice": Code(
        _W,
        "two sources of one stream cover some of the same subjects, so it stores these "
        "messages twice",
        "write filters that do not overlap, or use one source with several transforms",
    ),
    "same-ids": Code(
        _W,
        "a stream sources several streams and has a duplicate_window, so it drops a message if one "
        "from another stream has the same Nats-Msg-Id",
        "leave duplicate_window out, or use ids that no two of the streams share",
        f"{_ISSUES}/4459",
    ),
    "bucket-source": Code(
        _W,
        "a bucket sources another one and keeps the subjects of that one, so clients do not find "
        "the keys",
        "give the source a transform from the subjects of the one to those of the other",
        f"{_ISSUES}/3557",
    ),
    "republish-interest": Code(
        _I,
        "a stream with interest retention republishes only what one of its consumers wants",
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
        "a mapping moves keys of a key-value bucket or an object store, and its clients look under "
        "the old names alone",
        "write a source that does not cover the bucket; to rename a bucket, make a new one that "
        "sources it",
    ),
    "mirror-filter": Code(
        _W,
        "a mapping moves what a mirror filters by, and nats-server changes no mirror (10055)",
        "make a stream of the mirror, which cannot be undone: update it without `mirror` (servers "
        "from 2.12 on), then let it source the same stream with both subjects, from its last "
        "sequence + 1 on; or make another stream that sources both, and let readers move to it",
    ),
    "service-import": Code(
        _W,
        "a mapping takes requests away from the import of their service, and no import can take "
        "them under their new names",
        "write a source that does not cover the requests",
    ),
    "counter-restarts": Code(
        _W,
        "a mapping moves subjects of a stream with counters, and a counter begins at 0 under a new "
        "name",
        "after the switch, add the old value of each counter under its new name, or write a source "
        "that does not cover counters",
    ),
    "counted-twice": Code(
        _W,
        "a stream adds up the counters of another one, and gives a subject and what a mapping "
        "makes of it one sum: an old value that is added again under the new name counts twice",
        "before the switch, take away under the old name what you add under the new one after it, "
        "or let the counters begin at 0 and go by the sum",
    ),
    "schedule-not-mapped": Code(
        _W,
        "a mapping moves subjects of a stream with message schedules, whose scheduler publishes to "
        "the old ones: no account mapping applies inside a stream",
        "publish the schedules again with their new targets, or rename in the stream, with "
        "`subject_transform`",
    ),
    "batch-split": Code(
        _W,
        "a mapping moves subjects of a stream with atomic batches to another stream, and "
        "nats-server refuses a batch that goes to two streams, or to one that takes none (10176, "
        "10174)",
        "let the stream capture the new subjects too, or send no batches under these subjects",
    ),
    "mapped-twice": Code(
        _W,
        "the mappings on both sides of a leaf node connection change a message, one after the "
        "other, and draw a weight twice",
        "map on one side alone, or write results that the other side does not cover",
    ),
    "caught-by-stream": Code(
        _I,
        "a mapping brings new subjects into a stream",
        "check that the stream should store them",
    ),
    "escapes-export": Code(
        _W,
        "a mapping takes subjects away from an export of the account, or from an import of it",
        "export and import the destination too",
    ),
    "escapes-stream": Code(
        _W,
        "a mapping takes subjects out of the stream that captures their source",
        "add the destination to the subjects of a stream",
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
