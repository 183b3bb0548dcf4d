"""Streams, consumers, users and shares of an account, with room for old and new subjects.

A dry run shows what would be left to do with that room, and a plan makes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nats_transform.accounts.cycles import import_cycles
from nats_transform.accounts.service_imports import services_with
from nats_transform.accounts.sharing import NO_SHARES, SharedSubject, Shares, shared_streams
from nats_transform.errors import InvalidStream, shown
from nats_transform.lint.check import check
from nats_transform.lint.obstacles import Obstacle
from nats_transform.mappings.moves import Moves
from nats_transform.mappings.subject import ANY_TAIL
from nats_transform.mappings.subject_index import SubjectIndex
from nats_transform.migration.question import Question
from nats_transform.migration.room.filters import (
    exports_with,
    imports_with,
    narrowed,
    user_with,
    widened,
)
from nats_transform.migration.room.flows import (
    republish_with,
    republished,
    sources_with,
    sources_without,
)
from nats_transform.migration.room.gone import Gone
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.stream import StreamConfig, parse_stream


def wide(question: Question, moves: Moves) -> tuple[Question, list[Obstacle]]:
    """All that depends on subjects, changed so that both the old and the new names are in use.

    With what nats-server refuses of that; a stream that it refuses stays as it was.
    """
    refused: list[Obstacle] = []
    by_name = {stream.name: stream for stream in question.streams}
    republishing = [
        _stream_with(s, refused, republish=republish_with(s, moves)) for s in question.streams
    ]
    # What is published again moves too, wherever it goes.
    every = Moves([*moves, *republished(republishing, moves)])
    streams = tuple(
        _stream_with(
            stream,
            refused,
            subjects=list(widened(stream.subjects, every)),
            sources=sources_with(stream, by_name, every),
        )
        for stream in republishing
    )
    shares = {
        name: Shares(exports_with(shares.exports, every), services_with(shares.imports, moves))
        if name in question.names
        else replace(shares, imports=imports_with(shares.imports, question.names, every))
        for name, shares in question.shares.items()
    }
    both = replace(
        question,
        streams=streams,
        consumers=tuple(
            replace(consumer, filters=widened(consumer.filters, every))
            for consumer in question.consumers
        ),
        users=tuple(user_with(user, every) for user in question.users),
        shares=shares,
        shared=shared_streams(question.names, shares.items()) if shares else question.shared,
    )
    for old, new in zip(question.consumers, both.consumers, strict=True):
        # Of the old names that a mapping makes today, new names may be more than their own.
        if not {*old.filters} <= {*new.filters} and any(m.old for m in every.under(old.filters)):
            message = "one of its filters becomes a wider one, so it may get more than today"
            refused.append(Obstacle("consumer-more", _named(new), message))
    already = set(_overlapping(question))
    refused += [obstacle for obstacle in _overlapping(both) if obstacle not in already]
    return both, refused


def streams_with_room(streams: tuple[StreamConfig, ...], moves: Moves) -> tuple[StreamConfig, ...]:
    """Streams that capture the new subjects too, and are otherwise as they were."""
    every = Moves([*moves, *republished(streams, moves)])
    return tuple(_stream_with(s, [], subjects=list(widened(s.subjects, every))) for s in streams)


def narrow(before: Question, both: Question, moves: Moves) -> Question:
    """Everything for both names, without the old ones under which nothing comes any more.

    All but `shared`, which no plan asks for.
    """
    gone = Gone(both.streams, _imported(both), moves)

    def is_gone(entry: SharedSubject, account: str) -> bool:
        """Whether nothing comes through an export or import of an account any more."""
        if entry.kind == "service":  # the requests of an export come under its subject as ever
            return bool(entry.account) and account in both.names and gone.mapped(entry.local)
        return (entry.account or account) in both.names and gone.published(entry.subject)

    return replace(
        both,
        streams=tuple(
            _stream_with(
                new,
                [],
                subjects=list(narrowed(old.subjects, new.subjects, gone.published)),
                sources=sources_without(old, new, gone.stored),
            )
            for old, new in zip(before.streams, both.streams, strict=True)
        ),
        consumers=tuple(
            replace(
                new, filters=narrowed(old.filters, new.filters, partial(gone.stored, new.stream))
            )
            for old, new in zip(before.consumers, both.consumers, strict=True)
        ),
        users=tuple(user_with(user, gone.moves, gone.published) for user in before.users),
        shares={
            name: Shares(
                tuple(one for one in shares.exports if not is_gone(one, name)),
                tuple(one for one in shares.imports if not is_gone(one, name)),
            )
            for name, shares in both.shares.items()
        },
    )


def _imported(question: Question) -> Iterator[str]:
    """Filters of the messages of other accounts that come to the account."""
    for name in question.names:
        shares = question.shares.get(name, NO_SHARES)
        yield from (entry.local for entry in shares.imports if entry.kind == "stream")


def _stream_with(stream: StreamConfig, refused: list[Obstacle], **fields: Any) -> StreamConfig:
    """The stream with other fields; if nats-server refuses that, the same, and the reason."""
    now = stream.model_dump(by_alias=True, exclude_unset=True)
    changed = {name: value for name, value in fields.items() if value and value != now.get(name)}
    if not changed:
        return stream
    try:
        return parse_stream(now | changed)
    except InvalidStream as error:
        message = f"nats-server refuses it with room for both names: {error}"
        refused.append(Obstacle("stream-refused", f"stream {shown(stream.name)}", message))
        return stream


def _overlapping(both: Question) -> Iterator[Obstacle]:
    """The streams, consumers and imports that nats-server refuses beside others."""
    for finding in check(both.streams):
        if finding.code == "streams-overlap":
            yield Obstacle(finding.code, finding.place, finding.message)
    for stream in both.streams:
        if stream.retention == "workqueue":
            yield from _sharing_work(
                [consumer for consumer in both.consumers if consumer.stream == stream.name]
            )
    names = list(both.shares)
    accounts = [((n, *both.known_as.get(n, ())), shares) for n, shares in both.shares.items()]
    for number, entry in import_cycles(accounts):
        name = names[number]
        yield Obstacle(
            "import-cycle",
            f"import of {shown(entry.subject)} by account {shown(name)}",
            f"with room for both names it leads back to account {shown(name)}, and nats-server "
            "refuses such a configuration, at its next start at the latest",
        )


def _sharing_work(consumers: Sequence[Consumer]) -> Iterator[Obstacle]:
    entries = [
        (number, filter)
        for number, consumer in enumerate(consumers)
        for filter in consumer.filters or (ANY_TAIL,)
    ]
    index = SubjectIndex(filter for _, filter in entries)
    pairs = (
        (number, entries[place][0])
        for number, filter in entries
        for place in index.colliding(filter)
        if number < entries[place][0]
    )
    for number, other in dict.fromkeys(pairs):
        yield Obstacle(
            "work-queue-overlap",
            _named(consumers[number]),
            f"it and the consumer {shown(consumers[other].name)} would get the same subjects, "
            "which nats-server refuses for a work queue (10100)",
        )


def _named(consumer: Consumer) -> str:
    return f"consumer {shown(consumer.name)} of stream {shown(consumer.stream)}"
