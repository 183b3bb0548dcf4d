"""What goes to a nats-server: exactly the messages meant, or nothing."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.errors import BadSubjectError

from jobs.jetstream import wire
from jobs.jetstream.connection import connection
from jobs.settings.connection import NatsSettings
from nats_transform.mappings.subject import encode
from tests.cases import rows
from tests.support.awaiting import awaited
from tests.support.refused import refused
from tests.support.wire_tap import tap

BLOCK = b"NATS/1.0\r\nA: 1\r\n\r\n"


@pytest.mark.parametrize(
    "subject", [*rows("wire.yaml", "subjects"), pytest.param("x" * 3968, id="long")]
)
def test_literal_subjects(subject: str) -> None:
    frame = wire.publish(encode(subject), b"_INBOX.x", BLOCK, b"data")
    assert frame == b"HPUB %b _INBOX.x 18 22\r\n%bdata\r\n" % (encode(subject), BLOCK)
    assert wire.one_operation(bytes(frame)) == frame


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        *rows("wire.yaml", "no subjects"),
        pytest.param("x" * 4097, "fit into a line", id="too-long"),
        pytest.param("x" * 3969, "fit into a line", id="too-long-with-the-rest"),
    ],
)
def test_subjects_that_are_not_sent(subject: str, why: str) -> None:
    with refused(wire.Unsendable, "unsendable-subject", why=re.compile(why)) as caught:
        wire.publish(encode(subject), b"_INBOX.x", BLOCK, b"")
    assert caught.value.about == "subject"
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


LONG_BLOCK = pytest.param(f"NATS/1.0\r\nA: {'x' * 65536}\r\n\r\n", id="too-long")


@pytest.mark.parametrize("block", [*rows("wire.yaml", "no blocks"), LONG_BLOCK])
def test_headers_that_are_not_sent(block: str) -> None:
    with pytest.raises(wire.Unsendable) as caught:
        wire.publish(b"a", b"_INBOX.x", encode(block), b"")
    assert caught.value.about == "headers"


@pytest.mark.parametrize("command", rows("wire.yaml", "commands"))
def test_commands_of_the_client(command: str) -> None:
    assert wire.one_operation(encode(command)) == encode(command)


LONG_COMMAND = pytest.param(f"PUB {'x' * 5000}  0\r\n\r\n", id="too-long")


@pytest.mark.parametrize("command", [*rows("wire.yaml", "no commands"), LONG_COMMAND])
def test_commands_that_are_not_one_operation(command: str) -> None:
    with pytest.raises(wire.Unsendable):
        wire.one_operation(encode(command))


@pytest.mark.server
@pytest.mark.parametrize(
    "stream",
    [
        pytest.param("A B", id="blank"),
        pytest.param("A\r\nPUB b 0\r\n", id="operation"),
        pytest.param("A..B", id="empty-token"),
    ],
)
@awaited
async def test_names_in_api_requests(nats: NatsSettings, stream: str) -> None:
    async with connection(nats) as client:
        with pytest.raises((wire.Unsendable, BadSubjectError)):
            await client.publish(f"$JS.API.STREAM.INFO.{stream}", b"")
        with pytest.raises(wire.Unsendable):
            await client.subscribe(f"x.{stream}")
        await client.flush()
        assert not client._pending


# --- Against the server's own parser --------------------------------------------------------------

# Texts that look like the protocol, cut and glued.
PIECES = [b"\r\n", b"\n", b"\r", b" ", b"\t", b".", b"*", b">", b"$JS.API.STREAM.DELETE.PRECIOUS",
          b"PUB x 0\r\n\r\n", b"PING\r\n", b"NATS/1.0\r\n", b": ", b"Nats-Rollup: all", b"0", b"\0",
          b"a", b"\xff", "日".encode()]  # fmt: skip
ANY = st.one_of(st.binary(max_size=30), st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join))
SUBJECT = st.one_of(
    ANY,
    st.lists(st.sampled_from([b"a", b"\xff", b"*x", b"$JS", b"-"]), min_size=1).map(b".".join),
)
HEADERS = st.lists(st.tuples(st.one_of(ANY, st.just(b"A")), ANY), max_size=3)


def block_of(pairs: list[tuple[bytes, bytes]]) -> bytes:
    lines = [b"%b: %b" % pair for pair in [(b"N", b"1"), *pairs]]
    return b"\r\n".join([b"NATS/1.0", *lines, b"", b""])


@pytest.mark.server
def test_what_arrives_is_what_was_meant_or_nothing() -> None:
    """Any bytes as subject, headers and payload; a subscription to `>` sees every message."""
    sent = Counter[bool]()
    with tap() as there:

        @settings(max_examples=400)
        @given(subject=SUBJECT, pairs=HEADERS, data=ANY)
        def holds(subject: bytes, pairs: list[tuple[bytes, bytes]], data: bytes) -> None:
            sent[there.holds(subject, block_of(pairs), data)] += 1

        holds()
    assert sent[True] > 20
    assert sent[False] > 20
