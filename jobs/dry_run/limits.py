"""What the limits of a simulated stream refuse and drop, message by message, as nats-server does.

Sources: nats-server `storeRawMsg`, `enforceMsgLimit`, `enforceBytesLimit`, `expireMsgs` and
`fileStoreMsgSizeRaw` in `server/filestore.go`, the same in `server/memstore.go`; `checkMsgId`,
`purgeMsgIds` and `processJetStreamMsgWithBatch` in `server/stream.go`.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.jetstream.headers import VERSION
from jobs.warehouse.rows import header_values
from nats_transform.streams.stream import StreamConfig

NO_LIMIT = 2**62
_MICROSECOND = 1000
_DEFAULT_WINDOW = 120 * 10**9
_DROPPED = -1
_COMPACT = 2**16


class Answer(IntEnum):
    """What becomes of a message that comes to a stream.

    A message that alone has more than `max_bytes` is stored and dropped at once: it is republished,
    and no mirror or source can read it.
    """

    TAKEN = 0
    DROPPED = 1
    REFUSED = 2
    DUPLICATE = 3
    NEVER_CAME = 4


class Offered(NamedTuple):
    """What limits look at in a message; times are microseconds.

    Attributes:
        header, body: their sizes in bytes.
        id: the header `Nats-Msg-Id`; None without one, and an empty one names no message either.
    """

    header: int
    body: int
    time: int
    id: bytes | None


class Limits:
    """The messages that one stream has, as far as its limits depend on them.

    Attributes:
        first: the place of the first message that is left. The first that the stream took has
            place 1.
    """

    def __init__(self, stream: StreamConfig) -> None:
        self._of_one = limit(stream.max_msgs_per_subject)
        self._most, self._most_bytes = limit(stream.max_msgs), limit(stream.max_bytes)
        self._largest = limit(stream.max_msg_size)
        self._age = limit(stream.max_age // _MICROSECOND)
        self._refuses = stream.discard == "new"
        self._refuses_of_one = stream.discard_new_per_subject
        self._in_file = stream.storage == "file"
        self._window = window_of(stream) // _MICROSECOND
        # Of each message from `_base` on its size and time; and the places of each subject.
        self._sizes, self._times, self._base = array("q"), array("q"), 1
        self._places: dict[bytes, deque[int]] = {}
        self._messages = self._bytes = 0
        self.first = 1
        self._ids: dict[bytes, int] = {}
        self._remembered: deque[tuple[int, bytes]] = deque()

    def offer(self, subject: bytes, message: Offered) -> Answer:
        """Takes a message or not, and drops what no longer has room."""
        if self._is_duplicate(message):
            return Answer.DUPLICATE
        if message.header + message.body > self._largest:
            return Answer.REFUSED
        self._expire(message.time)
        size = self._size(subject, message)
        places = self._places_of(subject)
        if self._refuses and self._has_no_room(size, places):
            return Answer.REFUSED
        if message.id and self._window:
            self._ids[message.id] = message.time
            self._remembered.append((message.time, message.id))
        self._sizes.append(size)
        self._times.append(message.time)
        self._messages += 1
        self._bytes += size
        if self._of_one < NO_LIMIT:
            places.append(self._base + len(self._sizes) - 1)
            if len(places) > self._of_one:
                self._drop(places.popleft())
        while not self._refuses and (self._messages > self._most or self._bytes > self._most_bytes):
            self._drop_first()
        return Answer.TAKEN if self._messages else Answer.DROPPED

    def _has_no_room(self, size: int, places: deque[int]) -> bool:
        is_full = len(places) >= self._of_one
        if is_full and self._refuses_of_one:
            return True
        # The message takes the place of the oldest of its subject.
        if self._messages >= self._most and not is_full:
            return True
        return self._bytes + size > self._most_bytes and (
            not is_full or self._sizes[places[0] - self._base] < size
        )

    def _is_duplicate(self, message: Offered) -> bool:
        if not message.id or not self._window:
            return False
        while self._remembered and message.time - self._remembered[0][0] >= self._window:
            del self._ids[self._remembered.popleft()[1]]
        return message.id in self._ids

    def _size(self, subject: bytes, message: Offered) -> int:
        if not self._in_file:
            return len(subject) + message.header + message.body + 16
        # With a header its size is stored too.
        return 30 + len(subject) + message.header + message.body + 4 * bool(message.header)

    def _places_of(self, subject: bytes) -> deque[int]:
        """The messages of a subject that are left, if it has a limit of its own."""
        if self._of_one == NO_LIMIT:
            return deque()
        places = self._places.setdefault(subject, deque())
        while places and places[0] < self.first:
            places.popleft()
        return places

    def _expire(self, now: int) -> None:
        while self._messages and self._times[self._oldest()] <= now - self._age:
            self._drop_first()

    def _oldest(self) -> int:
        """Where the first message that is left stands in the arrays."""
        while self._sizes[self.first - self._base] == _DROPPED:
            self.first += 1
        return self.first - self._base

    def _drop(self, place: int) -> None:
        self._messages -= 1
        self._bytes -= self._sizes[place - self._base]
        self._sizes[place - self._base] = _DROPPED

    def _drop_first(self) -> None:
        gone = self._oldest()
        self._drop(self.first)
        self.first += 1
        if gone > _COMPACT and 2 * gone > len(self._sizes):
            del self._sizes[: gone + 1], self._times[: gone + 1]
            self._base += gone + 1


def limit(number: int) -> int:
    """A limit of a configuration, in which 0 and below are none."""
    return number if number > 0 else NO_LIMIT


def window_of(stream: StreamConfig) -> int:
    """For how many nanoseconds a stream knows the `Nats-Msg-Id` of its messages; 0: it does not.

    A mirror never compares them. Others that have neither sources nor a window get two minutes
    (`checkStreamCfgLocked`).
    """
    if stream.mirror is not None:
        return 0
    if stream.duplicate_window or stream.sources:
        return stream.duplicate_window
    return min(limit(stream.max_age), _DEFAULT_WINDOW)


def depend_on_order(stream: StreamConfig) -> bool:
    """Whether some limit depends on more than how many messages came later, or how old they are."""
    return (
        look_at_sizes(stream)
        or stream.discard_new_per_subject
        or (stream.max_msgs > 0 and (stream.discard == "new" or stream.max_msgs_per_subject > 0))
    )


def drops(stream: StreamConfig) -> bool:
    """Whether messages can leave a stream again."""
    return (
        stream.max_age > 0
        or stream.retention != "limits"
        or (stream.max_msgs_per_subject > 0 and not stream.discard_new_per_subject)
        or (stream.discard == "old" and (stream.max_msgs > 0 or stream.max_bytes > 0))
    )


def look_at_sizes(stream: StreamConfig) -> bool:
    """Whether some limit depends on the sizes of messages."""
    return stream.max_bytes > 0 or stream.max_msg_size > 0


def offered(
    given: Mapping[str, pa.Array], with_sizes: bool, always: bool
) -> Sequence[Offered] | None:
    """What limits look at in each of some messages.

    Args:
        with_sizes: whether some limit looks at sizes; `data` is needed for that alone.
        always: whether some limit looks at all messages; else None if none of them has an id.
    """
    nothing = pa.nulls(len(given["headers"]), pa.string())
    ids = header_values(given["headers"], "Nats-Msg-Id", nothing)
    if not always and ids.null_count == len(ids):
        return None
    headers = bodies = np.zeros(len(ids), np.int64)
    if with_sizes:
        headers, bodies = _header_sizes(given), _lengths(given["data"])
    numbers = headers.tolist(), bodies.tolist(), times(given["ts"]).tolist()
    return list(map(Offered, *numbers, ids.cast(pa.binary()).to_pylist()))


def times(column: pa.Array) -> np.ndarray:
    """Times in microseconds."""
    micros: np.ndarray = column.cast(pa.int64()).to_numpy()
    return micros


def _lengths(column: pa.Array) -> np.ndarray:
    """The bytes of each text; 0 where there is none."""
    lengths: np.ndarray = pc.binary_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def _header_sizes(given: Mapping[str, pa.Array]) -> np.ndarray:
    """The bytes of each header block, as `format_headers` makes it or as it was stored."""
    headers = given["headers"]
    rows = pc.list_parent_indices(headers).to_numpy()
    pairs = headers.flatten()
    # Each line has a colon, a blank and a line end.
    sizes = sum(_lengths(pc.struct_field(pairs, name)) for name in ("name", "value")) + 4
    lines = np.bincount(rows, minlength=len(headers)).astype(np.bool_)
    usual = np.bincount(rows, sizes, minlength=len(headers)).astype(np.int64)
    usual += lines * (len(VERSION) + 4)
    raw = given["headers_raw"]
    return np.where(raw.is_valid().to_numpy(zero_copy_only=False), _lengths(raw), usual)
