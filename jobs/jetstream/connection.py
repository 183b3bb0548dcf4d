"""Connections to nats-server with the maintained client, nats-py, that see raw messages.

nats-py turns header blocks into dicts, which loses repeats and spacing, and handles messages one
by one. `RawClient` hands the messages of chosen subscriptions to a sink as bytes, in bulk;
everything else (connecting, TLS, credentials, reconnecting, requests) is nats-py's own. Everything
that it writes to the socket goes through `wire`, which checks that each command is exactly one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, TypeVar

import nats.errors
from nats.aio.client import Client, RawCredentials
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol.parser import AWAITING_CONTROL_LINE, CRLF_SIZE, Parser
from pydantic import BaseModel, ValidationError

from jobs.errors import ArchiveError, text_of
from jobs.jetstream import wire
from jobs.jetstream.answers import NO_JETSTREAM, Answer, ApiError, NoAnswer, parse_answer
from jobs.settings.connection import NatsSettings
from nats_transform.errors import first_fault
from nats_transform.streams.state import Count

_A = TypeVar("_A", bound=Answer)
LARGEST_MESSAGE = (64 * 2**10 + 128) * 2**10
"""The most bytes of a message: nats-server allows no `max_payload` above 64 MiB, and adds headers
of its own. What a server says is no limit: its answers may be larger than its `max_payload`."""
_LARGEST_LINE = 2**20  # bytes; INFO names every server of a cluster
_MOST_URLS = 2_000  # of servers, of which INFO may tell more and more
MOST_NOISE = 100_000  # lines in a row that no subscription is for, or KiB of them
WRITE_SECONDS = 10  # for the server to read: nats-server gives its clients as long


# What nats-py raises where INFO or another line has something else than it expects.
_LACKING = (TypeError, AttributeError, LookupError, RecursionError)
_NO_INFO = (ValueError, *_LACKING)
_ATTEMPTS = 5  # at a server that hangs up while we introduce ourselves


class Sink(Protocol):
    """Takes the messages of one subscription.

    Attributes:
        sid: the number of the subscription.
    """

    sid: int

    def take(self, buffer: bytes) -> int:
        """Takes all whole messages of this subscription; returns how far the buffer was read."""

    def add(self, subject: bytes, reply: bytes, block: bytes | None, data: bytes) -> None:
        """Takes one message that came in pieces."""

    def lost(self) -> None:
        """Hears that nothing more will come over this connection."""


class NoTls(nats.errors.Error):
    """The settings want TLS, but the server does not offer it."""

    def __str__(self) -> str:
        return (
            "it doesn't offer TLS, but the URL says tls:// or you gave a certificate; nothing was "
            "sent to it"
        )


class NoNats(nats.errors.ProtocolError):
    """What answers does not speak the protocol."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __str__(self) -> str:
        return f"it doesn't speak the NATS protocol: {self.why}"


class _Info(BaseModel):
    """What nats-py takes from INFO."""

    max_payload: Count = 0
    headers: bool = False
    tls_required: bool = False
    tls_available: bool = False
    auth_required: bool = False
    nonce: str = ""
    connect_urls: list[str] | None = None
    client_id: Count = 0
    server_id: str = ""
    version: str = ""
    cluster: str = ""


class RawClient(Client):
    """A nats-py client that hands one subscription's messages to a sink, as bytes.

    It writes nothing that `wire` did not make or check, and nothing at all to a server without
    TLS if TLS is wanted.

    Attributes:
        settings: the settings of the connection.
        is_system: whether the user is of the system account, in the words of the server. It says
            so before it answers the second ping; one that does not say so counts as False.
        heard: how many bytes the server sent.
    """

    def __init__(self, settings: NatsSettings) -> None:
        super().__init__()
        self.settings = settings
        self.is_system = False
        self.heard = 0
        self._ps = _BulkParser(self)
        self.sink: Sink | None = None
        self._fault: NoNats | None = None
        self._noise = 0
        self._is_deaf = False  # the user may not subscribe to its inbox
        self._asking = ""

    @property
    def where(self) -> str:
        """What errors call the server."""
        return self.settings.where

    async def _send_command(self, cmd: bytes, priority: bool = False) -> None:
        frame = cmd if isinstance(cmd, wire.Frame) else wire.one_operation(bytes(cmd))
        await super()._send_command(frame, priority)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        if not force_flush and self._flush_queue is not None and not self._flush_queue.full():
            return await super()._flush_pending()
        # nats-py waits without a limit here, and drops what cancels it meanwhile.
        flush = asyncio.ensure_future(super()._flush_pending(force_flush))
        left = self._unwritten()
        try:
            while not (await asyncio.wait([flush], timeout=WRITE_SECONDS))[0]:
                if left == (left := self._unwritten()):
                    await _hang_up(self)
                    await self._process_op_err(nats.errors.StaleConnectionError())
                    raise TimeoutError
            return flush.result()
        finally:
            flush.cancel()

    def _unwritten(self) -> int:
        """How many bytes asyncio has for a server that has not taken them yet."""
        writer: Any = getattr(self._transport, "_io_writer", None)
        return 0 if writer is None else int(writer.transport.get_write_buffer_size())

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # nats-py writes it before commands that wait to be written: its flush() would not.
        await self._flush_pending(force_flush=True)
        await super()._send_ping(future)

    def _connect_command(self) -> bytes:
        return wire.one_operation(super()._connect_command())

    async def subscribe(self, subject: str, *args: Any, **kwargs: Any) -> Subscription:
        # Before nats-py keeps it: after a lost connection it writes the subject once more.
        wire.filter_subject(subject.encode())
        return await super().subscribe(subject, *args, **kwargs)

    async def request(self, subject: str, *args: Any, **kwargs: Any) -> Msg:
        if self._is_deaf and self.last_error is not None:
            raise self.last_error
        self._asking = subject.lower()
        return await super().request(subject, *args, **kwargs)

    def _heard(self, size: int = 0) -> None:
        # While there is something to read, nats-py reads: nothing else of this process would run.
        self._noise += 1 + size // 1024
        if self._noise > MOST_NOISE:
            raise NoNats("it sends without end what nobody asked for")

    async def _process_ping(self) -> None:
        self._heard()
        await super()._process_ping()

    async def _process_err(self, err_msg: str) -> None:
        self._heard()
        await super()._process_err(err_msg)
        # nats-py goes on to wait for an answer that will not come.
        inbox = bytes(self._resp_sub_prefix or b"?").decode().lower()
        self._is_deaf |= f'permissions violation for subscription to "{inbox}' in err_msg.lower()
        asking = [one for one in self._resp_map.values() if not one.done()]
        is_refused = f'violation for publish to "{self._asking}"' in err_msg.lower()
        for one in asking if self._is_deaf or (is_refused and len(asking) == 1) else ():
            one.set_exception(self.last_error or nats.errors.Error(err_msg))

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        self._heard()
        try:
            urls = _Info.model_validate(info).connect_urls or ()
        except ValidationError as error:
            raise NoNats(f"INFO {first_fault(error)}") from None
        if len(self._server_pool) + len(urls) > _MOST_URLS:
            raise NoNats(f"it names more than {_MOST_URLS:,} servers")
        # This is the first line of a connection, before TLS starts and before our CONNECT.
        if initial_connection and self.settings.wants_tls:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise NoTls
            # Where TLS is optional for its clients, nats-py would go on in clear.
            info["tls_required"] = True
        if info.get("connect_info") and not initial_connection:  # this answers our CONNECT
            self.is_system = info.get("acc_is_sys") is True
        await super()._process_info(info, initial_connection)

    async def _process_op_err(self, e: Exception) -> None:
        if self._fault is not None:  # nats-py replaces it, and would connect again
            e = self._fault
            self.options["allow_reconnect"] = False
            for asked in list(self._resp_map.values()):
                if not asked.done():
                    asked.set_exception(e)
        if self.sink is not None:
            self.sink.lost()
        await super()._process_op_err(e)

    async def _close(self, *args: Any, **kwargs: Any) -> None:
        if self.sink is not None:
            self.sink.lost()
        await super()._close(*args, **kwargs)

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        if sid in self._subs:
            self._noise = 0
        else:
            self._heard(len(data))
        if self.sink is None or self.sink.sid != sid:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            self.sink.add(subject, reply, headers, data)


class _BulkParser(Parser):
    """nats-py's parser, with a faster way for whole messages that a sink takes."""

    nc: RawClient

    async def parse(self, data: bytes = b"") -> None:
        self.nc.heard += len(data)
        try:
            await self._parse(data)
            if self.needed > LARGEST_MESSAGE:
                raise NoNats(f"a message of {self.needed:,} bytes")
            if self.state == AWAITING_CONTROL_LINE and len(self.buf) > _LARGEST_LINE:
                raise NoNats(f"a line of more than {_LARGEST_LINE:,} bytes")
        except nats.errors.ProtocolError as error:
            self.nc._fault = error if isinstance(error, NoNats) else NoNats("an unknown line")
            raise
        except _NO_INFO as error:
            self.nc._fault = _odd(error)
            raise nats.errors.ProtocolError from error

    async def _parse(self, data: bytes) -> None:
        sink = self.nc.sink
        if sink is None:
            await super().parse(data)
            return
        if self.state != AWAITING_CONTROL_LINE:
            # The rest of a message that came in pieces, and no more: what follows is for the sink.
            missing = max(self.needed + CRLF_SIZE - len(self.buf), 0)
            await super().parse(data[:missing])
            data = data[missing:]
        if data and self.state == AWAITING_CONTROL_LINE:
            buffer = bytes(self.buf) + data if self.buf else data
            self.buf = bytearray()
            taken = sink.take(buffer)
            self.nc._noise *= not taken
            data = buffer[taken:]
        if data:
            await super().parse(data)


@contextlib.asynccontextmanager
async def connection(settings: NatsSettings) -> AsyncIterator[RawClient]:
    """A connection, closed at the end.

    Raises:
        ArchiveError: there is no server, or it refuses the connection.
    """
    seen: list[BaseException] = []

    async def remember(error: BaseException) -> None:
        seen.append(error)
        if isinstance(error, ssl.SSLError | NoTls):
            # Another try would not help; and after a failed handshake nats-py waits without end
            # for the connection to close.
            raise error

    options: dict[str, Any] = {
        "servers": settings.urls,
        "name": "nats-transform",
        "connect_timeout": settings.connect_timeout,
        # The client reads 0 as "for ever".
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0.25,
        "error_cb": remember,
        "user": settings.user,
        "password": settings.password and settings.password.get_secret_value(),
        "token": settings.token and settings.token.get_secret_value(),
    }
    settings.check_files()
    for name, path in (("user_credentials", settings.creds), ("nkeys_seed", settings.nkey)):
        if path is not None:
            options[name] = str(path)
    if settings.credentials is not None:
        options["user_credentials"] = RawCredentials(settings.credentials.get_secret_value())
    if settings.tls_first:
        options["tls_handshake_first"] = True
    if settings.inbox_prefix:
        options["inbox_prefix"] = settings.inbox_prefix
    for attempt in range(_ATTEMPTS):
        client = RawClient(settings)
        try:
            options["tls"] = settings.tls()
            # Four steps, each with its own timeout; the limit is for the wait named above.
            limit = settings.connect_timeout * 4 * len(settings.urls) + 1
            await asyncio.wait_for(client.connect(**options), limit)
            break
        except (*_NO_INFO, OSError, nats.errors.Error) as error:
            await _hang_up(client)
            # nats-py says "no servers available" when its last attempt failed; say why it did.
            cause = seen[-1] if seen else _odd(error) if isinstance(error, _LACKING) else error
            # A server that refuses us hangs up at once: its reason can be lost on the way.
            hung_up = isinstance(cause, ConnectionResetError | BrokenPipeError)
            if hung_up and attempt < _ATTEMPTS - 1:
                continue
            raise no_connection(settings, cause) from error
    client.options |= {"allow_reconnect": True, "max_reconnect_attempts": -1}
    try:
        yield client
    except asyncio.CancelledError:
        await _hang_up(client)  # a server that is silent does not say goodbye either
        raise
    finally:
        client.sink = None
        closing = asyncio.ensure_future(client.close())
        if not (await asyncio.wait([closing], timeout=WRITE_SECONDS))[0]:
            await _hang_up(client)
        with contextlib.suppress(Exception):
            await closing


async def _hang_up(client: RawClient) -> None:
    """Closes a connection without waiting for the other side."""
    for name in ("_io_writer", "_bare_io_writer"):
        writer: Any = getattr(client._transport, name, None)
        # There may be none, and asyncio before 3.11.3 cannot abort TLS that it has closed.
        with contextlib.suppress(AttributeError):
            writer.transport.abort()
    await asyncio.sleep(0)  # asyncio closes the socket in the next round


def _odd(error: Exception) -> NoNats:
    """What a server sent, if nats-py cannot read it; most texts of Python say nothing of it."""
    is_lacking = isinstance(error, _LACKING)
    return NoNats("a line that is not well formed" if is_lacking else text_of(error))


def no_connection(settings: NatsSettings, error: BaseException) -> ArchiveError:
    """Why a server has no connection with us."""
    reason: object = text_of(error).removeprefix("nats: ").strip("'\"") or type(error).__name__
    code = "server-not-reached"
    if isinstance(error, nats.errors.AuthorizationError) or re.search(
        "uth(oriz|entic)", str(reason)
    ):
        code = "credentials-refused" if settings.has_credentials else "needs-credentials"
    elif isinstance(error, NoNats):
        code, reason = "server-unreadable", error
    elif isinstance(error, ssl.SSLError):
        code = "tls-failed"
    return ArchiveError(code, where=settings.where, reason=reason)


async def api(
    client: RawClient,
    model: type[_A],
    subject: str,
    body: Mapping[str, Any] | None = None,
    timeout: float | None = None,
) -> _A:
    """The answer of the JetStream API.

    Args:
        client: a connection.
        model: what the answer is.
        subject: the subject after the prefix of the API.
        body: the JSON of the request.
        timeout: seconds, if the server has more to do than for a usual request.

    Raises:
        ApiError: it refuses, nobody answers, or it is no such answer.
    """
    settings = client.settings
    payload = json.dumps(body).encode() if body else b""
    try:
        answer = await client.request(
            f"{settings.api_prefix}.{subject}", payload, timeout=timeout or settings.connect_timeout
        )
    except nats.errors.NoRespondersError as error:
        if settings.domain:
            raise ApiError(
                "domain-not-reached", domain=settings.domain, where=settings.where
            ) from error
        raise ApiError("no-jetstream", err_code=NO_JETSTREAM, where=settings.where) from error
    except nats.errors.Error as error:
        if client.is_closed:
            raise no_connection(settings, client.last_error or error) from error
        # The server does not answer what a user may not ask; it says so beside, in small letters.
        denied = str(client.last_error or "").lower()
        asked = f"{settings.api_prefix}.{subject}"
        # It may be about an earlier request, whose refusal did not matter.
        is_asked = f'violation for publish to "{asked.lower()}"' in denied
        if is_asked or "permissions violation for subscription" in denied:
            what = f"publish to {asked}" if is_asked else "subscribe to its inbox"
            raise ApiError("not-allowed", what=what) from error
        raise NoAnswer("server-silent", where=settings.where, reason=text_of(error)) from error
    return parse_answer(model, settings.where, subject, answer.data)
