"""Streams, consumers, users and shares of an account before, during and after a migration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from typing import Any

from nats_transform.check import check
from nats_transform.consumer import Consumer
from nats_transform.errors import InvalidStream
from nats_transform.migration import Question, User
from nats_transform.migration.permissions import Allowance
from nats_transform.plan.codes import blocked
from nats_transform.plan.flows import republish_with, republished, sources_with, sources_without
from nats_transform.plan.model import Blocked, Change
from nats_transform.plan.moves import Move
from nats_transform.plan.room import (
    exports_with,
    imports_with,
    is_gone,
    narrowed,
    services_with,
    services_without,
    shares_without,
    stuck_services,
    user_with,
    widened,
)
from nats_transform.sharing import Entry, SharedStream, Shares, shared_streams
from nats_transform.stream import StreamConfig, parse_stream
from nats_transform.subject import ANY_TAIL, collide, is_subset

FLOWS = ("subjects", "sources", "republish")
"""The fields of a stream that a plan changes."""

_BUCKETS = ("$KV.>", "$O.>")


@dataclass(frozen=True, slots=True)
class Around:
    """Everything of an account, except its mappings, that depends on subjects.

    Attributes:
        streams, consumers, users: the streams, consumers and users of the account.
        names: the names by which accounts call this account.
        shares: the exports and imports of each account, by its name.
    """

    streams: tuple[StreamConfig, ...]
    consumers: tuple[Consumer, ...]
    users: tuple[User, ...]
    names: tuple[str, ...] = ()
    shares: Mapping[str, Shares] = field(default_factory=dict)

    @property
    def shared(self) -> tuple[SharedStream, ...]:
        """The streams that the account exports, with the imports of other accounts."""
        return shared_streams(self.names, self.shares.items())

    def asked_of(self, question: Question) -> Question:
        """The same question with these streams, consumers, users and shares."""
        return replace(
            question,
            streams=self.streams,
            consumers=self.consumers,
            users=self.users,
            shared=self.shared if self.shares else question.shared,
        )


class Refused(Exception):
    """nats-server refuses a stream that has room for both names."""

    def __init__(self, blocked: Blocked) -> None:
        self.blocked = blocked
        super().__init__(blocked.message)


def wide(around: Around, moves: Sequence[Move]) -> Around:
    """Everything changed so that both the old and the new names are in use.

    Raises:
        Refused: nats-server would refuse a stream with both names.
    """
    by_name = {stream.name: stream for stream in around.streams}
    republishing = [
        _stream_with(stream, republish=republish_with(stream, moves)) for stream in around.streams
    ]
    # What is published again moves too, wherever it goes.
    every = [*moves, *republished(republishing, moves)]
    streams = tuple(
        _stream_with(
            stream,
            subjects=list(widened(stream.subjects, every)),
            sources=sources_with(stream, by_name, every),
        )
        for stream in republishing
    )
    return replace(
        around,
        streams=streams,
        consumers=tuple(
            replace(one, filters=widened(one.filters, every)) for one in around.consumers
        ),
        users=tuple(user_with(user, every) for user in around.users),
        shares={
            name: Shares(exports_with(one.exports, moves), services_with(one.imports, moves))
            if name in around.names
            else replace(one, imports=imports_with(one.imports, around.names, moves))
            for name, one in around.shares.items()
        },
    )


def narrow(before: Around, both: Around, moves: Sequence[Move]) -> Around:
    """Everything without the old names, which no subject has any more."""
    every = [*moves, *republished(both.streams, moves)]
    return replace(
        both,
        streams=tuple(
            _narrow_stream(old, new, every)
            for old, new in zip(before.streams, both.streams, strict=True)
        ),
        consumers=tuple(
            replace(new, filters=narrowed(old.filters, new.filters, every))
            for old, new in zip(before.consumers, both.consumers, strict=True)
        ),
        users=tuple(user_with(user, every, narrow=True) for user in before.users),
        shares={
            name: Shares(
                shares_without(one.exports, ("",), moves), services_without(one.imports, moves)
            )
            if name in both.names
            else replace(one, imports=shares_without(one.imports, both.names, moves))
            for name, one in both.shares.items()
        },
    )


def _narrow_stream(old: StreamConfig, both: StreamConfig, moves: Sequence[Move]) -> StreamConfig:
    filters = [rule.source for source in old.sources for rule in source.filters]
    return _stream_with(
        both,
        subjects=list(narrowed(old.subjects, both.subjects, moves)),
        sources=sources_without(old, both, {one: is_gone(one, moves) for one in filters}),
    )


def _stream_with(stream: StreamConfig, **fields: Any) -> StreamConfig:
    now = stream.model_dump(by_alias=True, exclude_unset=True)
    changed = {name: value for name, value in fields.items() if value and value != now.get(name)}
    if not changed:
        return stream
    try:
        return parse_stream(now | changed)
    except InvalidStream as error:
        told = f"nats-server refuses it with room for both names: {error}"
        raise Refused(blocked("stream-refused", f"stream {stream.name}", told)) from None


def obstacles(before: Around, both: Around, moves: Sequence[Move]) -> Iterator[Blocked]:
    """Reasons why both names cannot be in use at once that a dry run does not find."""
    for found in check(both.streams):
        if found.code == "streams-overlap":
            yield blocked(found.code, found.place, found.message)
    yield from _consumers(both)
    for stream in before.streams:
        yield from _stuck(stream, moves)
    for name in before.names:
        for one in stuck_services(before.shares.get(name, Shares()).imports, moves):
            yield blocked(
                "service-import",
                f"import of {one.subject} from account {one.account}",
                f"the mapping takes requests under {one.to or one.subject} away from it, and no "
                "import can take them under their new names",
            )


def _stuck(stream: StreamConfig, moves: Sequence[Move]) -> Iterator[Blocked]:
    mirror = stream.mirror
    if mirror is not None and any(
        names is not None and not any(collide(names[1], one.source) for one in mirror.filters)
        for rule in mirror.filters
        for names in (move.names(rule.source) for move in moves)
    ):
        yield blocked(
            "mirror-filter",
            f"stream {stream.name}",
            f"its mirror of {mirror.name} filters by the old subjects, and nats-server changes no "
            "mirror (10055)",
        )
    olds = [names[0] for m in moves for place in stream.subjects if (names := m.names(place))]
    if any(collide(old, bucket) for old in olds for bucket in _BUCKETS):
        yield blocked(
            "bucket-moves",
            f"stream {stream.name}",
            "the mapping moves keys of the bucket, and its clients look under the old names alone",
        )


def _consumers(both: Around) -> Iterator[Blocked]:
    queues = {stream.name for stream in both.streams if stream.retention == "workqueue"}
    for one in both.consumers:
        if any(is_subset(a, of=b) for a, b in permutations(one.filters, 2)):
            yield blocked(
                "consumer-filters-overlap",
                f"consumer {one.name} of stream {one.stream}",
                "one of its filters would cover another one, which nats-server refuses (10138)",
            )
    for one, other in combinations([c for c in both.consumers if c.stream in queues], 2):
        if one.stream == other.stream and any(
            collide(a, b) for a in one.filters or (ANY_TAIL,) for b in other.filters or (ANY_TAIL,)
        ):
            yield blocked(
                "work-queue-overlap",
                f"consumer {one.name} of stream {one.stream}",
                f"it and the consumer {other.name} would get the same subjects, which nats-server "
                "refuses for a work queue (10100)",
            )


def changes(before: Around, after: Around, kind: str, ever: Sequence[Around] = ()) -> list[Change]:
    """The changes of one kind on the server.

    Args:
        before, after: the state before and after the changes.
        kind: the kind of the changes.
        ever: all states of the migration. A change of a stream lists every field that differs
            between any two of them.
    """
    fields = [[_flows(stream) for stream in one.streams] for one in (before, after, *ever)]
    pairs: Iterable[tuple[str, dict[str, Any], dict[str, Any]]]
    if kind == "stream":
        pairs = (
            (stream.name, *_differing(states))
            for stream, *states in zip(before.streams, *fields, strict=True)
        )
    elif kind == "consumer":
        pairs = (
            (f"{a.stream}/{a.name}", {"filter_subjects": [*a.filters]}, {
                "filter_subjects": [*b.filters]})
            for a, b in zip(before.consumers, after.consumers, strict=True)
        )  # fmt: skip
    elif kind == "permissions":
        pairs = (
            (a.name, permissions_of(a), permissions_of(b))
            for a, b in zip(before.users, after.users, strict=True)
        )
    else:
        pairs = (
            (name, _entries(kind, one), _entries(kind, after.shares[name]))
            for name, one in before.shares.items()
        )
    return [
        Change.model_validate({"kind": kind, "name": name, "before": old, "after": new})
        for name, old, new in pairs
        if old != new
    ]


def _entries(side: str, shares: Shares) -> dict[str, Any]:
    entries = shares.exports if side == "exports" else shares.imports
    return {side: [as_configured(one) for one in entries]}


def _flows(stream: StreamConfig) -> dict[str, Any]:
    fields = stream.model_dump(by_alias=True, exclude_unset=True)
    return {name: fields.get(name) or None for name in FLOWS}


def _differing(states: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The first two of several states, with only the fields that differ between any of them."""
    names = [name for name in FLOWS if any(one[name] != states[0][name] for one in states)]
    for one in states[:2]:
        yield {name: one[name] for name in names}


def permissions_of(user: User) -> dict[str, object]:
    """The permissions of a user in the form of a server's configuration."""
    found: dict[str, object] = {
        side: _allowance(allowance, alone=side == "subscribe" or user.responses in (None, False))
        for side, allowance in (("publish", user.publish), ("subscribe", user.subscribe))
    }
    return found if user.responses is None else found | {"allow_responses": user.responses}


def _allowance(allowance: Allowance, *, alone: bool) -> dict[str, list[str]]:
    found = {}
    # With `allow_responses` an empty list is our own, see `_sides`.
    if allowance.allow is not None and (alone or allowance.allow):
        found["allow"] = [*allowance.allow, *allowance.allow_groups]
    if allowance.deny or allowance.deny_groups:
        found["deny"] = [*allowance.deny, *allowance.deny_groups]
    return found


def as_configured(entry: Entry) -> dict[str, Any]:
    """An export or import in the form of a server's configuration."""
    if not entry.account:
        return {entry.kind: entry.subject, **entry.rest}
    found = {entry.kind: {"account": entry.account, "subject": entry.subject}}
    return found | ({"to": entry.to} if entry.to else {}) | dict(entry.rest)
