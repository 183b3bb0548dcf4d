"""What a simulation does not follow, and of which streams it therefore has no numbers.

Settings decide this, headers of messages, and what fills a stream: a stream that gets messages from
one which is not followed is not followed either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_transform.streams.stream import StreamConfig

_ACTING = (
    *("Nats-Rollup", "Nats-TTL", "Nats-Incr", "Nats-Schedule", "Nats-Schedule-Next"),
    *("Nats-Scheduler", "Nats-Stream-Source"),  # nats-server refuses them: 10212, 10227
)
"""Headers by which a message acts in a stream, or for which a stream refuses it."""


class NotFollowed(NamedTuple):
    """Something that the simulation does not follow.

    Attributes:
        what: the setting or header.
        stays: whether it only decides what stays in the stream, not what comes into it.
    """

    what: str
    stays: bool


class Caveats:
    """What is not followed of each stream; streams are numbers."""

    def __init__(self, streams: Sequence[StreamConfig]) -> None:
        self._streams = streams
        self._noted = [set(_settings(stream)) for stream in streams]
        # The streams that fill each stream, and whether it reads them by a consumer.
        self._upstreams: dict[int, set[tuple[int, bool]]] = defaultdict(set)

    def note(self, stream: int, what: str, *, stays: bool = False) -> None:
        """Note something that is not followed of a stream."""
        self._noted[stream].add(NotFollowed(what, stays))

    def note_upstream(self, stream: int, upstream: int, by_consumer: bool) -> None:
        """Note that messages come from one stream into another."""
        self._upstreams[stream].add((upstream, by_consumer))

    def note_acting(self, headers: pa.Array, stream: np.ndarray, message: np.ndarray) -> None:
        """Note the streams that get messages which act in them, such as roll-ups.

        Args:
            stream, message: the streams that messages come to, and which messages these are.
        """
        pairs = headers.flatten()
        if not len(pairs):
            return
        names, values = (pc.struct_field(pairs, name) for name in ("name", "value"))
        rows = pc.list_parent_indices(headers).to_numpy()
        for name in _ACTING:
            is_named = pc.equal(names, name).fill_null(False)
            if not pc.any(is_named).as_py():
                continue
            has_it = np.zeros(len(headers), np.bool_)
            has_it[rows[is_named.to_numpy(zero_copy_only=False)]] = True
            is_sub = pc.all(pc.equal(values.filter(is_named), "sub")).as_py()
            of_subject = name == "Nats-Rollup" and is_sub
            for number in np.unique(stream[has_it[message]]).tolist():
                config = self._streams[number]
                if of_subject and config.allow_rollup_hdrs and config.max_msgs_per_subject == 1:
                    continue  # there is nothing else of the subject to roll up
                stays = name in ("Nats-Rollup", "Nats-TTL")
                self.note(number, f"headers {name}", stays=stays)

    def not_followed(self, stream: int) -> tuple[str, ...]:
        """What is not followed, of a stream and of what fills it."""
        above = {
            f"{caveat.what} of {self._streams[number].name}"
            for number in self._above(stream)
            for caveat in self._noted[number]
            if not caveat.stays
        }
        return (*sorted(caveat.what for caveat in self._noted[stream]), *sorted(above))

    def reads_from(self, stream: int) -> set[int]:
        """The streams that a stream, or one that fills it, reads by a consumer."""
        return {
            upstream
            for number in {stream, *self._above(stream)}
            for upstream, by_consumer in self._upstreams[number]
            if by_consumer
        }

    def _above(self, stream: int) -> set[int]:
        """The streams whose messages come into a stream, at once or through others."""
        above: set[int] = set()
        waiting = [stream]
        while waiting:
            for upstream, _ in self._upstreams[waiting.pop()]:
                if upstream not in above and upstream != stream:
                    above.add(upstream)
                    waiting.append(upstream)
        return above


def _settings(stream: StreamConfig) -> Iterator[NotFollowed]:
    """What is never followed of a configuration, whatever messages come."""
    if stream.retention != "limits":
        yield NotFollowed(f"retention {stream.retention}", True)
    if stream.subject_delete_marker_ttl:
        yield NotFollowed("subject_delete_marker_ttl", False)
    if stream.allow_msg_counter:
        yield NotFollowed("allow_msg_counter", False)
    if stream.sealed:
        yield NotFollowed("sealed", False)
    for upstream in stream.upstreams:
        if upstream.starts_somewhere:
            yield NotFollowed("opt_start_seq and opt_start_time", False)
        if upstream.external is not None:
            yield NotFollowed("sources of other accounts and domains", False)
        if upstream.consumer is not None:
            yield NotFollowed("consumers that sources read", False)
