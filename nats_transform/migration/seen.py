"""What the archived streams can show, so that nothing is said of what they cannot."""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.mappings.subject import ANY_TAIL, collide, is_subset
from nats_transform.mappings.symbolic import can_land_in, filter_of_results
from nats_transform.migration.question import Question
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.network import received, taken
from nats_transform.streams.stream import StreamConfig


class Seen:
    """The subjects that the archived streams can have, as they are published.

    Without the configuration of a stream, nothing is known of what else it could have.
    """

    def __init__(self, question: Question) -> None:
        self._streams = {stream.name: stream for stream in question.streams}
        self._archived = [stream for stream in question.streams if stream.name in question.archived]
        self._candidate = question.candidate
        captured = [filter for stream in self._archived for filter in stream.captured]
        self._filters = [f for stream in self._archived for f in _stored(stream, received(stream))]
        self._filters += (
            mapping.source
            for mapping in question.current.mappings
            if any(can_land_in(t, subject) for t in mapping.transforms for subject in captured)
        )

    def shows(self, source: str) -> bool:
        """Whether the archive could have a subject of a mapping."""
        return any(collide(source, filter) for filter in self._filters)

    def shows_all_of(self, consumer: Consumer) -> bool:
        """Whether the archive has every message that could come to a consumer."""
        stream = self._streams.get(consumer.stream)
        return stream is not None and not any(
            collide(filter, subjects)
            for subjects in self._unseen(stream, ())
            for filter in consumer.filters or (ANY_TAIL,)
        )

    def _unseen(self, stream: StreamConfig, been: tuple[str, ...]) -> Iterator[str]:
        """Filters of what a stream may store and the archive does not show."""
        if stream in self._archived:
            filters = [
                filter_of_results(transform)
                for mapping in self._candidate.mappings
                if not any(is_subset(mapping.source, of=filter) for filter in self._filters)
                for transform in mapping.transforms
                if any(can_land_in(transform, subject) for subject in stream.captured)
            ]
        else:
            filters = list(stream.captured)
            for upstream in stream.upstreams:
                there = self._streams.get(upstream.name) if upstream.external is None else None
                if there is None or (
                    there.name not in been and any(self._unseen(there, (*been, stream.name)))
                ):
                    filters += taken(upstream)
        yield from _stored(stream, filters)


def _stored(stream: StreamConfig, filters: list[str]) -> list[str]:
    """Filters of what a stream stores, given those of what it receives."""
    ingress = stream.ingress_transform
    if ingress is None or not any(collide(subject, ingress.source) for subject in filters):
        return filters
    return [*filters, filter_of_results(ingress)]
