"""The codes of obstacles to a plan that are not findings of a dry run. Codes never change."""

from __future__ import annotations

from nats_transform.findings import Code, Severity
from nats_transform.plan.model import Blocked

_E = Severity.ERROR

CODES: dict[str, Code] = {
    "stream-refused": Code(
        _E,
        "nats-server refuses a stream that has room for the old and the new subjects",
        "choose new subjects that this stream can have besides the old ones",
    ),
    "streams-overlap": Code(
        _E,
        "with room for the new subjects two streams would capture the same ones, which nats-server "
        "refuses (10065)",
        "give the two streams subjects that do not overlap",
    ),
    "consumer-filters-overlap": Code(
        _E,
        "with room for the new subjects one filter of a consumer would cover another one, which "
        "nats-server refuses (10138)",
        "choose new subjects that do not overlap with the old ones",
    ),
    "work-queue-overlap": Code(
        _E,
        "two consumers of a work queue would get the same subjects, which nats-server refuses "
        "(10100)",
        "keep in the destination the token in which their filters differ",
    ),
    "mirror-filter": Code(
        _E,
        "a mirror filters by the old subjects, and nats-server changes no mirror (10055)",
        "make another stream that sources the same stream with both subjects, and let readers move "
        "to it",
    ),
    "bucket-moves": Code(
        _E,
        "a mapping moves keys of a key-value bucket or an object store, and its clients look under "
        "the old names alone",
        "write a source that does not cover the bucket; to rename a bucket, make a new one that "
        "sources it",
    ),
    "service-import": Code(
        _E,
        "a mapping takes requests away from the import of their service, and no import can take "
        "them under their new names",
        "write a source that does not cover the requests",
    ),
}

REFUSED = frozenset(
    ("stream-refused", "streams-overlap", "consumer-filters-overlap", "work-queue-overlap")
)
"""The codes of what nats-server refuses. A user cannot accept these."""


def blocked(code: str, about: str, message: str) -> Blocked:
    """An obstacle with one of these codes."""
    return Blocked(code=code, about=about, message=message, cure=CODES[code].cure)
