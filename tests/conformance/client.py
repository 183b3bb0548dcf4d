"""A NATS client of raw bytes, so that any subject at all can be sent and seen.

Client libraries check and decode subjects; what is under test here is what the server does with
them. Subjects are `str` with surrogate escapes, as in `nats_transform`.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlparse

from nats_transform.mappings.subject import decode, encode

_HEADER_LINE = re.compile(rb"([^:\r\n]+): ?([^\r\n]*)\r\n")


@dataclass(frozen=True)
class Message:
    """A message as it was delivered."""

    subscription: int
    subject: str
    reply: str
    headers: dict[str, str] = field(repr=False)
    body: bytes


class Client:
    """A connection; it waits for the server only in `flush` and `wait_for`."""

    def __init__(self, url: str, user: str | None = None) -> None:
        place = urlparse(url)
        assert place.hostname
        assert place.port
        self._socket = socket.create_connection((place.hostname, place.port), timeout=600)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = self._socket.makefile("rb")
        self._output = bytearray()
        self._subscriptions = 0
        self._inbox = f"_INBOX.{user or 'test'}.{id(self)}"
        self._received: list[Message] = []
        assert self._input.readline().startswith(b"INFO")
        options: dict[str, Any] = {"verbose": False, "pedantic": False, "headers": True}
        options |= {"no_responders": True}
        if user is not None:
            options |= {"user": user, "pass": "secret"}
        self._output += b"CONNECT " + json.dumps(options).encode() + b"\r\n"
        self.flush()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._input.close()
        self._socket.close()

    def subscribe(self, subject: str) -> int:
        """Subscribes, and gives the number that its messages carry."""
        self._subscriptions += 1
        self._output += b"SUB %s %d\r\n" % (encode(subject), self._subscriptions)
        return self._subscriptions

    def publish(
        self,
        subject: str,
        body: bytes = b"",
        reply: str = "",
        headers: Iterable[tuple[str, str]] = (),
        block: bytes = b"",
    ) -> None:
        """Sends a message, with the next flush; `block` are headers of any bytes."""
        lines = [f"{name}: {value}\r\n" for name, value in headers]
        block = encode(f"NATS/1.0\r\n{''.join(lines)}\r\n") if lines else block
        word, size = (b"HPUB", b"%d " % len(block)) if block else (b"PUB", b"")
        content = block + body
        head = (word, encode(subject), encode(reply), size, len(content))
        self._output += b"%s %s %s %s%d\r\n" % head + content + b"\r\n"

    def flush(self) -> None:
        """Sends everything and reads up to the server's answer to a ping."""
        self._output += b"PING\r\n"
        self._socket.sendall(self._output)
        self._output.clear()
        while self._read() != b"PONG":
            pass

    def denials(self) -> int:
        """Sends everything; how many of the messages the server denies."""
        count = 0
        while True:
            try:
                self.flush()
            except ConnectionError as error:
                if "Permissions Violation for Publish" not in str(error):
                    raise
                count += 1
            else:
                return count

    def received(self, subscription: int | None = None) -> list[Message]:
        """What has come since the last call, of one subscription or all."""
        taken = [m for m in self._received if subscription in (None, m.subscription)]
        self._received = [m for m in self._received if subscription not in (None, m.subscription)]
        return taken

    def wait_for(self, count: int, subscription: int) -> list[Message]:
        """The messages of a subscription, once they are `count`; the rest is kept."""
        self.flush()
        while left := count - sum(m.subscription == subscription for m in self._received):
            for _ in range(left):  # each takes a line or more
                self._read()
        return self.received(subscription)

    def through(self, sender: Client, subjects: Sequence[str]) -> list[str | None]:
        """The subject under which each one that the sender publishes comes here, or None."""
        self.subscribe(">")
        self.flush()
        for position, subject in enumerate(subjects):
            sender.publish(subject, str(position).encode())
        sender.flush()
        self.flush()
        results: list[str | None] = [None] * len(subjects)
        for message in self.received():
            results[int(message.body)] = message.subject
        return results

    def request(self, subject: str, body: object = None) -> dict[str, Any]:
        """The JSON answer of a service."""
        return self.request_all([(subject, body)])[0]

    def api(self, call: str, body: object = None) -> dict[str, Any]:
        """What JetStream answers, which must not be an error."""
        answer = self.request(f"$JS.API.{call}", body)
        assert "error" not in answer, answer
        return answer

    def add_stream(self, name: str, *subjects: str, **config: object) -> None:
        """Creates a stream."""
        self.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, **config})

    def request_all(self, requests: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
        """The JSON answers of several requests, sent at once: subject, body, perhaps headers."""
        number = self.subscribe(f"{self._inbox}.*")
        count = 0
        for subject, body, *headers in requests:
            data = b"" if body is None else json.dumps(body).encode()
            self.publish(subject, data, f"{self._inbox}.{count}", *headers)
            count += 1
        answers = {
            int(message.subject.rsplit(".", 1)[1]): json.loads(message.body)
            for message in self.wait_for(count, number)
        }
        self._output += b"UNSUB %d\r\n" % number
        return [answers[position] for position in range(count)]

    def _read(self) -> bytes:
        line = self._input.readline()
        if not line:
            raise ConnectionError("the server closed the connection")
        words = line.rstrip(b"\r\n").split(b" ")
        match words[0]:
            case b"MSG":
                *head, size = words[1:]
                body = self._input.read(int(size) + 2)[:-2]
                self._keep(head, {}, body)
            case b"HMSG":
                *head, header_size, size = words[1:]
                data = self._input.read(int(size) + 2)[:-2]
                block, body = data[: int(header_size)], data[int(header_size) :]
                headers = {decode(k): decode(v) for k, v in _HEADER_LINE.findall(block)}
                self._keep(head, headers, body)
            case b"PING":
                self._socket.sendall(b"PONG\r\n")
            case b"-ERR":
                raise ConnectionError(decode(line))
        return words[0]

    def _keep(self, head: list[bytes], headers: dict[str, str], body: bytes) -> None:
        reply = decode(head[2]) if len(head) > 2 else ""
        message = Message(int(head[1]), decode(head[0]), reply, headers, body)
        self._received.append(message)
