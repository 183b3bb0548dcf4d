"""Publishes messages into a stream so that each is stored once, in order, without gaps.

The messages form a chain. The first names the sequence that must be the last one of the stream
(`Nats-Expected-Last-Sequence`). Each other message names the message before it, which must be the
last one of the stream (`Nats-Expected-Last-Msg-Id`, with ids that nobody used before). So the
stream holds the messages that were read from it, then exactly ours, in our order. The server
refuses everything else, however many replays write at once and however late a message arrives.
Hundreds of messages are on the way at a time.

If another client writes in between, or the connection or the server was lost, the chain breaks: all
messages on the way are refused or lost. The replay then reads what the stream has after the last
known sequence, sends the missing messages again, and begins a new chain. It never guesses: if the
stream has removed the messages that would show what was stored, the replay stops.

Source: nats-server `processJetStreamMsg` and `checkMsgHeadersPreClusteredProposal`, which check
both headers in the order in which messages are stored.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Awaitable
from typing import NamedTuple

from nats import errors as nats_errors

from jobs.errors import ArchiveError, JobError, text_of
from jobs.jetstream import wire
from jobs.jetstream.answers import STREAM_NOT_FOUND, Ack, ApiError
from jobs.jetstream.connection import RawClient, no_connection
from jobs.jetstream.stream import StreamState, stream_state
from jobs.jetstream.target import MSG_ID, Replayed, Target
from nats_transform.mappings.subject import decode

CHAIN_BYTES = 160
"""The most bytes that the headers of the chain add to a header block."""
ANSWER_SECONDS = 30.0
_LOOK_SECONDS = 1.0  # how often connection and stream are looked at while answers are awaited
_LARGEST_ACK = 65_536  # bytes; what is cut is no JSON
_FLUSH_EVERY = 64  # messages
_CATCH_UP_SECONDS = 0.05  # what sleeping too long costs at high rates
# Wrong last message id; wrong last sequence, with and without it: somebody else was quicker.
_CONFLICTS = {10070, 10071, 10164}
# JetStream is temporarily unavailable; insufficient resources; the leader is another server.
_BROKEN = _CONFLICTS | {10008, 10023, 10013}
# What a look at the stream ends with if nothing is known of it.
_UNKNOWN = (ArchiveError, nats_errors.Error, OSError)


class Outgoing(NamedTuple):
    """A message to send.

    Attributes:
        seq: its sequence in the archive.
        head: its header block without the empty line that ends it.
    """

    seq: int
    subject: bytes
    head: bytes
    data: bytes


class StreamLost(ArchiveError):
    """The stream no longer has messages that it had acknowledged."""


class StreamReplaced(StreamLost):
    """The stream was deleted, and another one has its name."""


def _is_gone(error: BaseException) -> bool:
    is_missing = isinstance(error, ApiError) and error.err_code == STREAM_NOT_FOUND
    return is_missing or isinstance(error, StreamLost)


class Chain:
    """Sends messages of one archived stream and mapping version; a `Sink` of the answers.

    Attributes:
        sent: how many messages this chain stored.
        already: how many messages another replay stored meanwhile.
        breaks: how often the chain broke.
    """

    def __init__(
        self,
        client: RawClient,
        target: Target,
        *,
        version: bytes,
        stream: bytes,
        window: int,
        rate: float | None,
    ) -> None:
        self.sid = 0
        self.sent = self.already = self.breaks = 0
        self._client, self._target = client, target
        self._version, self._stream = version, stream
        self._window, self._rate = window, rate
        self._forgets = any(target.forgets())
        self._inbox = client.new_inbox()
        self._nonce = secrets.token_hex(8).encode()
        self._last = self._read_to = target.state.last
        self._previous: bytes | None = None
        self._numbers = 0
        self._waiting: deque[tuple[int, Outgoing]] = deque()
        self._unanswered: set[int] = set()
        self._answered = asyncio.Event()
        self._is_broken = False
        self._is_deaf = False  # the server is there, but does not take messages
        self._elsewhere: set[int] = set()  # what other replays stored meanwhile
        self._last_elsewhere = 0
        self._failure: str | None = None
        self._reconnects = 0
        self._due = time.monotonic()  # when the next message may be sent, if there is a rate
        self._stuck: float | None = None  # since when nothing was stored, while the chain breaks
        self._tries = 0

    async def __aenter__(self) -> Chain:
        subscription = await self._client.subscribe(f"{self._inbox}.*")
        self.sid = subscription._id
        self._client.sink = self
        self._reconnects = self._client.stats["reconnects"]
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                await self.settle()
        finally:
            self._client.sink = None

    async def send(self, message: Outgoing) -> None:
        """Sends one message once there is room in the window and it is time.

        Raises:
            StreamLost: the stream lost what it had stored.
            JobError: the server refuses a message, cannot be reached, or no longer has the messages
                that would show what was stored.
        """
        if self._is_broken or len(self._waiting) >= self._window:
            await self._room_for(self._window - 1)
        # This is looked up after the wait, because another replay may have stored it meanwhile.
        if self._elsewhere and self._is_elsewhere(message.seq):
            self.already += 1
            return
        if self._rate:
            await self._wait_for_turn(self._rate)
        await self._write(message)
        if self._numbers % _FLUSH_EVERY == 0:
            await self._written(self._client._flush_pending())

    async def settle(self) -> None:
        """Waits until all that was sent is stored.

        Raises:
            StreamLost, JobError: as `send`.
        """
        await self._room_for(0)

    async def _wait_for_turn(self, rate: float) -> None:
        if self._due > time.monotonic():
            # Or what waits there goes out with later ones.
            await self._written(self._client._flush_pending())
            await asyncio.sleep(self._due - time.monotonic())
        # What a slow moment lost is not made up for, or messages would come faster afterwards.
        self._due = max(self._due, time.monotonic() - _CATCH_UP_SECONDS) + 1 / rate

    def _is_elsewhere(self, seq: int) -> bool:
        # Of a stream that removes messages the last one speaks for those before it.
        return seq in self._elsewhere or (self._forgets and seq < self._last_elsewhere)

    async def _write(self, message: Outgoing) -> None:
        number = self._numbers
        self._numbers += 1
        msg_id = b"%b.%d" % (self._nonce, number)
        block = b"%bNats-Expected-Stream: %b\r\n%b: %b\r\n%b\r\n\r\n" % (
            message.head,
            self._target.name.encode(),
            MSG_ID,
            msg_id,
            b"Nats-Expected-Last-Sequence: %d" % self._last
            if self._previous is None
            else b"Nats-Expected-Last-Msg-Id: " + self._previous,
        )
        reply = b"%b.%d" % (self._inbox.encode(), number)
        frame = wire.publish(message.subject, reply, block, message.data)
        self._previous = msg_id
        self._waiting.append((number, message))
        self._unanswered.add(number)
        await self._written(self._client._send_command(frame))

    async def _written(self, writing: Awaitable[object]) -> None:
        """Writes to the server; if it takes nothing, the chain breaks."""
        try:
            await writing
        except (nats_errors.Error, OSError):
            self._is_broken = True

    async def _room_for(self, waiting: int) -> None:
        while self._failure is None:
            if self._is_broken:
                await self._mend()
            if len(self._waiting) <= waiting:
                return
            await self._some_answer()
        raise self._failed(self._failure)

    def _failed(self, reason: str) -> JobError:
        stream, where = self._target.name, self._client.where
        return JobError("replay-failed", stream=stream, where=where, reason=reason)

    async def _some_answer(self) -> None:
        """Waits for an answer; a connection that was lost meanwhile breaks the chain."""
        self._answered.clear()
        until = time.monotonic() + ANSWER_SECONDS
        try:
            await self._client._flush_pending()
            while not self._answered.is_set():
                try:
                    await asyncio.wait_for(self._answered.wait(), _LOOK_SECONDS)
                except TimeoutError:
                    if self._was_away() or time.monotonic() > until:
                        self._is_broken = True
                        return
                    await self._look()
        except (nats_errors.Error, OSError):
            self._is_broken = True

    def _was_away(self) -> bool:
        reconnects = self._client.stats["reconnects"]
        return not self._client.is_connected or reconnects != self._reconnects

    # --- Answers ------------------------------------------------------------------------------

    def take(self, buffer: bytes) -> int:
        """Takes nothing in bulk, because answers are few and small."""
        return 0

    def add(self, subject: bytes, reply: bytes, block: bytes | None, data: bytes) -> None:
        """Takes the server's answer to one message."""
        try:
            number = int(subject.rpartition(b".")[2])
            answer = Ack.model_validate_json(data[:_LARGEST_ACK] or b'{"error": {}}')
        except ValueError:
            return  # of somebody else, because whoever gets our messages sees the inbox
        if number not in self._unanswered or not (answer.error or answer.stream):
            return  # of a chain that broke, or of somebody else
        self._unanswered.discard(number)
        self._answered.set()
        if answer.error is None:
            if answer.stream != self._target.name or answer.duplicate:
                self._failure = f"the server says {wire.shown(data)}"
                return
            self._stored_up_to(number, answer.seq)
            return
        code = answer.error.err_code
        if not data or code in _BROKEN:  # no data: nobody listens, as while a server starts
            self._is_broken = True
            self._is_deaf |= code not in _CONFLICTS
        elif not self._is_broken and self._failure is None:
            name = next((m.subject for n, m in self._waiting if n == number), b"")
            reason = answer.error.description or f"error {code}"
            self._failure = f"subject {wire.shown(name)} is refused: {reason}"

    def lost(self) -> None:
        """Ends the wait for answers."""
        self._answered.set()

    def _stored_up_to(self, number: int, seq: int) -> None:
        # One that is stored has all before it in front of it.
        while self._waiting and self._waiting[0][0] <= number:
            stored, _ = self._waiting.popleft()
            self._unanswered.discard(stored)
            self.sent += 1
        self._last = max(self._last, seq)
        self._stuck, self._tries = None, 0

    # --- A broken chain -----------------------------------------------------------------------

    async def _mend(self) -> None:
        """Finds out what was stored, and sends the rest in a new chain."""
        self.breaks += 1
        await self._last_answers()
        there = await self._news()
        last = self._read_to
        self._reconnects = self._client.stats["reconnects"]
        self._settle(there, last)
        to = f" to {wire.shown(self._waiting[0][1].subject)}" if self._waiting else ""
        await self._patience(f"other clients write into it, or nobody takes messages{to}")
        self._last, self._previous = last, None
        self._is_broken = self._is_deaf = False
        again = [message for _, message in self._waiting]
        self._waiting.clear()
        self._unanswered.clear()
        for message in again:
            await self._write(message)
        await self._written(self._client._flush_pending())

    async def _news(self) -> dict[int, Replayed | None]:
        """The messages that the stream has after our last known message, up to its end."""
        there: dict[int, Replayed | None] = {}
        self._read_to = self._last
        while True:
            try:
                state = await self._state()
                # Once more, because others may write while this is read.
                if state.last == self._read_to:
                    return there
                first, self._read_to = self._read_to + 1, state.last
                there |= await self._target.tail(self._client, first, state.last)
                continue
            except _UNKNOWN as error:
                if _is_gone(error):
                    raise
                reason = text_of(error)
            there.clear()
            self._read_to = self._last
            self._is_deaf = True
            await self._patience(reason)

    async def _last_answers(self) -> None:
        """Waits for answers that are still on the way; none comes over a new connection."""
        until = time.monotonic() + ANSWER_SECONDS
        while self._unanswered and not self._was_away() and time.monotonic() < until:
            self._answered.clear()
            await self._written(self._client._flush_pending())
            try:
                await asyncio.wait_for(self._answered.wait(), _LOOK_SECONDS)
            except TimeoutError:
                await self._look()

    async def _look(self) -> None:
        """Looks for a stream that is gone, or a subject that the user may not publish.

        What was on the way there is never answered. The server writes the subject beside the
        answers, and nats-py in small letters.
        """
        error = str(self._client.last_error or "")
        for _, message in self._waiting:
            if f'violation for publish to "{decode(message.subject).lower()}"' in error:
                raise self._failed(f"the user may not publish to {wire.shown(message.subject)}")
        try:
            await self._state()
        except _UNKNOWN as error:
            if _is_gone(error):
                raise

    async def _state(self) -> StreamState:
        known = self._last  # answers that come meanwhile can be newer than the state
        state = await stream_state(self._client, self._target.name)
        if state.created != self._target.state.created:
            where = self._client.where
            raise StreamReplaced("replay-recreated", stream=self._target.name, where=where)
        if state.last < known:
            raise StreamLost(
                "replay-lost-messages",
                stream=self._target.name,
                where=self._client.where,
                last=known,
                now=state.last,
            )
        return state

    def _settle(self, there: dict[int, Replayed | None], last: int) -> None:
        """Takes from the waiting messages those that the stream has."""
        ours, others = 0, set[int]()
        mine_at = self._last
        for at, sent in there.items():
            if sent and (sent.version, sent.stream) == (self._version, self._stream):
                if sent.msg_id.startswith(self._nonce + b"."):
                    ours, mine_at = max(ours, sent.seq), at
                else:
                    others.add(sent.seq)
        self._elsewhere |= others
        self._last_elsewhere = max(self._last_elsewhere, *others, 0)
        # A message without an answer may be stored, directly after the last known one of ours.
        in_doubt = [m for n, m in self._waiting if n in self._unanswered and m.seq > ours]
        if in_doubt and mine_at < last and mine_at + 1 not in there:
            raise JobError(
                "replay-in-doubt",
                stream=self._target.name,
                where=self._client.where,
                seq=in_doubt[0].seq,
            )
        kept = deque[tuple[int, Outgoing]]()
        for number, message in self._waiting:
            if message.seq in others:
                self.already += 1
                self._stuck = None
            elif message.seq <= ours:
                self.sent += 1
                self._stuck = None
            else:
                kept.append((number, message))
        self._waiting = kept

    async def _patience(self, reason: str) -> None:
        if self._client.is_closed:  # by the server, and for good: credentials that expired
            error = self._client.last_error or ConnectionError(reason)
            raise no_connection(self._client.settings, error)
        now = time.monotonic()
        self._stuck = self._stuck or now
        if now - self._stuck > self._client.settings.patience:
            raise JobError(
                "replay-no-answer",
                stream=self._target.name,
                where=self._client.where,
                patience=self._client.settings.patience,
                reason=reason,
            )
        # If another client was quicker, try again at once; otherwise wait longer each time.
        if self._is_deaf:
            self._tries += 1
            await asyncio.sleep(min(0.01 * 2**self._tries, 0.5))
