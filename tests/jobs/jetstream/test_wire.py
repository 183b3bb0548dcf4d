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
from tests.support.awaiting import awaited
from tests.support.refused import refused
from tests.support.wire_tap import tap

BLOCK = b"NATS/1.0\r\nA: 1\r\n\r\n"
DELETE = b"a 12 12\r\nNATS/1.0\r\n\r\n\r\nPUB $JS.API.STREAM.DELETE.PRECIOUS 0\r\n\r\n"


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(b"a", id="one-token"),
        pytest.param(b"orders.eu.42", id="tokens"),
        pytest.param(b"a.*b.c>.>d.**", id="wildcard-characters-within-tokens"),
        pytest.param("é.日本".encode(), id="utf-8"),
        pytest.param(b"a.\xff\xfe", id="not-utf-8"),
        pytest.param(b"$KV.B.k", id="dollar"),
        pytest.param(b"x" * 3968, id="long"),
    ],
)
def test_literal_subjects(subject: bytes) -> None:
    frame = wire.publish(subject, b"_INBOX.x", BLOCK, b"data")
    assert frame == b"HPUB %b _INBOX.x 18 22\r\n%bdata\r\n" % (subject, BLOCK)
    assert wire.one_operation(bytes(frame)) == frame


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        pytest.param(b"", "is empty", id="empty"),
        pytest.param(DELETE, "blank or a control byte", id="another-operation"),
        pytest.param(b"a b", "blank or a control byte", id="blank"),
        pytest.param(b"a\tb", "blank or a control byte", id="tab"),
        pytest.param(b"a\r", "blank or a control byte", id="carriage-return"),
        pytest.param(b"a\n", "blank or a control byte", id="line-feed"),
        pytest.param(b"a\0b", "blank or a control byte", id="nul"),
        pytest.param(b"a\x0cb", "blank or a control byte", id="form-feed"),
        pytest.param(b"a\x7fb", "blank or a control byte", id="delete"),
        pytest.param(b"a..b", "empty token", id="empty-token"),
        pytest.param(b".a", "empty token", id="starts-with-a-dot"),
        pytest.param(b"a.", "empty token", id="ends-with-a-dot"),
        pytest.param(b"a.*", "wildcard", id="star"),
        pytest.param(b"*.a", "wildcard", id="star-first"),
        pytest.param(b">", "wildcard", id="greater-than"),
        pytest.param(b"a.>.b", "wildcard", id="greater-than-within"),
        pytest.param(b"x" * 4097, "fit into a line", id="too-long"),
        pytest.param(b"x" * 3969, "fit into a line", id="too-long-with-the-rest"),
    ],
)
def test_subjects_that_are_not_sent(subject: bytes, why: str) -> None:
    with refused(wire.Unsendable, "unsendable-subject", why=re.compile(why)) as caught:
        wire.publish(subject, b"_INBOX.x", BLOCK, b"")
    assert caught.value.about == "subject"
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"", id="none"),
        pytest.param(b"NATS/1.0\r\n\r\n", id="no-headers"),
        pytest.param(b"NATS/1.0 503\r\nA: 1\r\n\r\n", id="a-status"),
        pytest.param(b"HTTP/1.1\r\nA: 1\r\n\r\n", id="not-nats"),
        pytest.param(b"NATS/1.0\r\nA: 1\r\n", id="no-end"),
        pytest.param(b"NATS/1.0\r\nA: 1\r\n\r\nB: 2\r\n\r\n", id="two-ends"),
        pytest.param(b"NATS/1.0\r\nno colon\r\n\r\n", id="no-colon"),
        pytest.param(b"NATS/1.0\r\n: 1\r\n\r\n", id="no-name"),
        pytest.param(b"NATS/1.0\r\nA B: 1\r\n\r\n", id="a-blank-in-a-name"),
        pytest.param(b"NATS/1.0\r\n A: 1\r\n\r\n", id="a-folded-line"),
        pytest.param(b"NATS/1.0\r\nA: x\nNats-Rollup: all\r\n\r\n", id="a-line-feed-in-a-value"),
        pytest.param(b"NATS/1.0\r\nA: x\rB: y\r\n\r\n", id="a-carriage-return-in-a-value"),
        pytest.param(b"NATS/1.0\r\nA: " + b"x" * 65536 + b"\r\n\r\n", id="too-long"),
    ],
)
def test_headers_that_are_not_sent(block: bytes) -> None:
    with pytest.raises(wire.Unsendable) as caught:
        wire.publish(b"a", b"_INBOX.x", block, b"")
    assert caught.value.about == "headers"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(b"PING\r\n", id="ping"),
        pytest.param(b"PUB a.b  3\r\nxyz\r\n", id="publish"),
        pytest.param(b"PUB a.b _INBOX.x 0\r\n\r\n", id="request"),
        pytest.param(b"SUB _INBOX.x.*  7\r\n", id="subscribe"),
        pytest.param(b"UNSUB 7 \r\n", id="unsubscribe"),
        pytest.param(b'CONNECT {"verbose": false}\r\n', id="connect"),
    ],
)
def test_commands_of_the_client(command: bytes) -> None:
    assert wire.one_operation(command) == command


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"PING\r\nPING\r\n", id="two"),
        pytest.param(b"PUB a.b  3\r\nxyzPUB x 0\r\n\r\n", id="a-size-that-is-too-small"),
        pytest.param(b"PUB a.b  9\r\nxyz\r\n", id="a-size-that-is-too-large"),
        pytest.param(b"PUB a b c 3\r\nxyz\r\n", id="a-blank-in-a-subject"),
        pytest.param(b"PUB a..b  0\r\n\r\n", id="an-empty-token"),
        pytest.param(b"SUB a\r\nPUB b 0\r\n\r\n  7\r\n", id="another-operation-in-a-subject"),
        pytest.param(b"SUB a queue 7\r\n", id="a-queue-group"),
        pytest.param(b'CONNECT {"a": "\r\nPUB b 0\r\n\r\n"}\r\n', id="another-operation-in-json"),
        pytest.param(b"RMSG a b 0\r\n\r\n", id="not-a-clients"),
        pytest.param(b"PUB " + b"x" * 5000 + b"  0\r\n\r\n", id="too-long"),
    ],
)
def test_commands_that_are_not_one_operation(command: bytes) -> None:
    with pytest.raises(wire.Unsendable):
        wire.one_operation(command)


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
