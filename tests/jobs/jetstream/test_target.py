"""What the target of a replay takes, and which archived message its messages are."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.jetstream.outgoing import iso_time
from jobs.jetstream.stream import StreamState
from jobs.jetstream.target import NO_TIME, Target, replayed, source_stream
from tests.cases import rows

V = b"a" * 64


def target(**config: Any) -> Target:
    return Target("T", StreamState("", 0, 0, 1, 0, config))


@pytest.mark.parametrize(("subjects", "subject", "fault"), rows("replays.yaml", "subjects"))
def test_subjects(subjects: list[str], subject: str, fault: str | None) -> None:
    found = target(subjects=subjects).fault(subject)
    assert (found is None) == (fault is None)
    assert fault is None or fault in str(found)


@pytest.mark.parametrize(("config", "forgets"), rows("replays.yaml", "forgets"))
def test_what_it_forgets(config: dict[str, Any], forgets: list[str]) -> None:
    assert list(target(**config).forgets()) == forgets


@pytest.mark.parametrize("field", ["mirror", "sealed", "no_ack", "allow_msg_counter"])
def test_what_takes_nothing(field: str) -> None:
    assert len(list(target(**{field: {"name": "S"}}).impossible())) == 1


MESSAGES = {
    "ours": ([(b"Nats-Transform-Source", V + b" 7 A")], (V, 7, b"A")),
    "with-a-colon": (
        [(b"Nats-Transform-Source", V + b" 7 A%3A5"), (b"Nats-Msg-Id", b"x.1")],
        (V, 7, b"A%3A5"),
    ),
    "of-0.1.0": ([(b"Nats-Msg-Id", V + b":A:7")], (V, 7, b"A")),
    "of-0.1.0-colon": ([(b"Nats-Msg-Id", V + b":A:5:7")], (V, 7, b"A%3A5")),
    "of-somebody": ([(b"Nats-Msg-Id", b"v1:A:7")], None),
    "no-number": ([(b"Nats-Msg-Id", V + b":A:x")], None),
    "the-last-sequence": (
        [(b"Nats-Transform-Source", V + b" %d A" % (2**63 - 1))],
        (V, 2**63 - 1, b"A"),
    ),
    "too-large": ([(b"Nats-Transform-Source", V + b" %d A" % (2**63))], None),
    "too-long": ([(b"Nats-Transform-Source", V + b" %d A" % (10**19))], None),
    "negative": ([(b"Nats-Transform-Source", V + b" -7 A")], None),
    "another-word": ([(b"Nats-Transform-Source", V + b" 7 A B")], None),
    "set-aside": ([(b"Nats-Transform-Original-Nats-Transform-Source", V + b" 7 A")], None),
    "none": ([], None),
}


@pytest.mark.parametrize(("pairs", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_which_message_it_is(
    pairs: list[tuple[bytes, bytes]], expected: tuple[bytes, int, bytes] | None
) -> None:
    found = replayed(pairs)
    assert (found and (found.version, found.seq, found.stream)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"2026-01-02T12:00:00.123456789Z", 1767355200_123456789, id="ours"),
        pytest.param(b"1969-12-31T23:59:59.999999999Z", -1, id="before-1970"),
        pytest.param(b"2026-13-02T12:00:00.123456789Z", NO_TIME, id="no-such-month"),
        pytest.param(b"2026-01-02T12:00:00.123456789+01:00", NO_TIME, id="of-somebody"),
        pytest.param(b"9999-01-02T12:00:00.000000000Z", NO_TIME, id="beyond-nanoseconds"),
        pytest.param(b"now", NO_TIME, id="a-word"),
        pytest.param(b"\xff", NO_TIME, id="no-text"),
    ],
)
def test_when_the_archived_message_was_stored(text: bytes, expected: int) -> None:
    source = (b"Nats-Transform-Source", V + b" 7 A")
    found = replayed([source, (b"Nats-Transform-Time", text)])
    assert found.ts_ns == expected
    assert expected == NO_TIME or iso_time(expected).encode() == text


def test_streams_are_one_word_each() -> None:
    names = ["A", "A:5", "A 5", "A%3A5", "A\r\nB: 1", "é", "a\udcff", "A.B"]
    words = [source_stream(name) for name in names]
    assert len(set(words)) == len(names)
    assert all(word.isascii() and not set(word) & set(b" \r\n:") for word in words)
