"""The old names that no message has any more, once all messages move.

Mappings apply to what clients publish, and to nothing that streams republish, mirror or source, or
that other accounts send. So an old name can go on in a stream when nobody publishes it any more.
Where that can't be ruled out, it isn't gone: a filter that stays too long gets no messages, but one
that goes too early loses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nats_transform.mappings.moves import Moves
from nats_transform.mappings.subject import collide, is_subset
from nats_transform.mappings.symbolic import filter_of_results
from nats_transform.migration.room.flows import republished
from nats_transform.streams.network import taken
from nats_transform.streams.stream import StreamConfig


class Gone:
    """Tells of filters of old names whether messages can still have them.

    Args:
        streams: the streams of the account, with room for both names.
        imported: filters of what other accounts send to the account.
        moves: the moves of what is published.

    Attributes:
        moves: these moves, and those of what streams republish of it.
    """

    def __init__(
        self, streams: Sequence[StreamConfig], imported: Iterable[str], moves: Moves
    ) -> None:
        self.moves = Moves([*moves, *republished(streams, moves)])
        self._of_mappings = moves
        self._streams = {stream.name: stream for stream in streams}
        self._imported = tuple(imported)

    def mapped(self, place: str) -> bool:
        """As `published`, but for names that mappings alone move."""
        return _leaves(place, self._of_mappings) and self.published(place)

    def published(self, place: str) -> bool:
        """Whether nothing is published or republished under a filter any more."""
        if not _leaves(place, self.moves):
            return False
        is_mapped = _leaves(place, self._of_mappings)
        return not any(collide(other, place) for other in self._imported) and not any(
            collide(filter_of_results(stream.republish_transform), place)
            for stream in self._streams.values()
            if stream.republish_transform is not None
            # A stream without these stores, and so republishes, nothing but what is published.
            and (is_mapped or stream.ingress_transform is not None or any(stream.upstreams))
        )

    def stored(self, name: str, place: str) -> bool:
        """Whether a stream stores nothing under a filter any more; False for an unknown stream."""
        if not self.published(place):
            return False
        waiting, been = [name], {name}
        while waiting:
            stream = self._streams.get(waiting.pop())
            if stream is None:
                return False
            ingress = stream.ingress_transform
            if ingress is not None and collide(filter_of_results(ingress), place):
                return False
            for upstream in stream.upstreams:
                if not any(collide(filter, place) for filter in taken(upstream)):
                    continue
                if upstream.external is not None or any(r.transform for r in upstream.filters):
                    return False
                if upstream.name not in been:
                    been.add(upstream.name)
                    waiting.append(upstream.name)
        return True


def _leaves(place: str, moves: Moves) -> bool:
    """Whether every message that is published under a filter moves, and none comes under it."""
    covering = [m for m in moves.under([place]) if m.old is None and is_subset(place, of=m.part)]
    is_left = bool(covering) and not any(move.is_partial for move in covering)
    return is_left and not moves.reaches(place)
