"""A server that lies: whatever it sends, the end is near, small, and one line that says why."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import ArchiveError
from jobs.jetstream.connection import LARGEST_MESSAGE, connection
from jobs.jetstream.pull import Delivered
from jobs.jetstream.stream import JetStreamSettings, counts_by_subject, stream_state
from jobs.settings.connection import NatsSettings
from jobs.settings.warehouse import Warehouse
from jobs.sources.source import StreamSource
from nats_transform.kernel.coverage import Coverage
from tests.support.impostor import (
    INFO,
    INFO_OF_STREAM,
    Impostor,
    Pieces,
    endless,
    message,
    once,
    serving,
)
from tests.support.jobs import archived
from tests.support.refused import refused
from tests.support.spark_cluster import children, family

STATE = INFO_OF_STREAM["state"]


def reading(impostor: Impostor, folder: Path, patience: float = 5) -> None:
    """Ingests the stream S."""
    with serving(impostor):
        nats = NatsSettings(servers=impostor.url, connect_timeout=2, patience=patience)
        archived(Warehouse(dir=folder / "w"), server=nats)


REPLY = b"$JS.ACK.S.c.1.1.1.1.2"


NO_PROTOCOL = {
    "negative": (once(b"MSG a SID r -40\r\nx\r\n"), "an unknown line"),
    "no-number": (once(b"MSG a SID r x\r\n\r\n"), "an unknown line"),
    "underscore": (once(b"MSG a SID r 1_0\r\n\r\n"), "an unknown line"),
    "digits": (once(b"MSG a SID r " + b"9" * 5000 + b"\r\n"), "Exceeds the limit"),
    "headers": (once(b"HMSG a SID r -9 -3\r\n\r\n"), "an unknown line"),
    "unknown": (once(b"WHAT\r\n"), "an unknown line"),
    "info-list": (once(b"INFO []\r\n"), "INFO Input should be"),
    "info-no-json": (once(b"INFO {\r\n"), "Expecting property name"),
    "info-urls": (once(b'INFO {"connect_urls": 7}\r\n'), "INFO connect_urls: Input"),
    "err": (once(b"-ERR \r\n"), "not well formed"),
    "large": (
        endless(b"MSG a SID r 1000000000000\r\n", bytes(65_536)),
        "a message of 1,000,000,000,000 bytes",
    ),
    "line": (endless(b"MSG ", b"a" * 65_536), "a line of more than"),
    "nothing": (endless(b"", b"a" * 65_536), "a line of more than"),
    "lf": (endless(b"", b"MSG a SID r x\n" * 6_000), "a line of more than"),
    "urls": (
        lambda inbox, sid: (
            b'INFO {"connect_urls": %s}\r\n'
            % json.dumps([f"h{n}:{m}" for m in range(1000)]).encode()
            for n in itertools.count()
        ),
        "it names more than 2,000 servers",
    ),
    "more": (
        endless(b"", b"MSG a SID %s 65000\r\n%s\r\n" % (REPLY, bytes(65_000))),
        "it sends more than it was asked for",
    ),
    "more-in-pieces": (
        endless(b"", b"HMSG a SID %s 30000 65000\r\n%s\r\n" % (REPLY, bytes(65_000))),
        "it sends more than it was asked for",
    ),
}


@pytest.mark.parametrize(("pieces", "why"), NO_PROTOCOL.values(), ids=NO_PROTOCOL)
def test_what_is_no_protocol(tmp_path: Path, pieces: Pieces, why: str) -> None:
    impostor = Impostor(pieces=pieces)
    with refused(ArchiveError, "server-unreadable", reason=re.compile(why)):
        reading(impostor, tmp_path, patience=60)  # a busy machine needs time for all that is sent
    assert impostor.sent < 4 * LARGEST_MESSAGE  # it goes on until the connection is closed


@pytest.mark.parametrize(
    ("info", "code"),
    [
        pytest.param(b"INFO []\r\n", "server-unreadable", id="list"),
        pytest.param(b'INFO {"max_payload": -1}\r\n', "server-unreadable", id="below-zero"),
        pytest.param(b'INFO {"max_payload": "1"}\r\n', "server-unreadable", id="text"),
        pytest.param(b'INFO {"nonce": 7}\r\n', "server-unreadable", id="nonce"),
        pytest.param(b"INFO " + b"x" * 1_000_000, "server-not-reached", id="endless"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", "server-not-reached", id="another"),
    ],
)
def test_a_first_line_that_no_server_sends(tmp_path: Path, info: bytes, code: str) -> None:
    with refused(ArchiveError, code):
        reading(Impostor(info=info), tmp_path)


def with_state(**more: Any) -> dict[str, Any]:
    return {"STREAM.INFO": {**INFO_OF_STREAM, "state": {**STATE, **more}}}


def with_config(**config: Any) -> dict[str, Any]:
    return {"STREAM.INFO": {**INFO_OF_STREAM, "config": config}}


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        pytest.param({"STREAM.INFO": {}}, "created: Field required", id="nothing"),
        pytest.param({"STREAM.INFO": b"[1]"}, "valid dictionary", id="list"),
        pytest.param({"STREAM.INFO": b"{"}, "it is not JSON", id="half"),
        pytest.param({"STREAM.INFO": b"{" * 9999}, "it is not JSON", id="deep"),
        pytest.param({"STREAM.INFO": {**INFO_OF_STREAM, "config": 1}}, "config: ", id="config"),
        pytest.param(with_config(name="../S"), "config.name: ", id="name"),
        pytest.param(with_config(name="S", max_age="1"), "config.max_age: ", id="limit"),
        pytest.param(with_config(name="S", max_msg_size="1"), "config.max_msg_size: ", id="size"),
        pytest.param(with_state(messages="3"), "state.messages: ", id="text"),
        pytest.param(with_state(messages=True), "state.messages: ", id="bool"),
        pytest.param(with_state(bytes=1.5), "state.bytes: ", id="fraction"),
        pytest.param(with_state(last_seq=-1), "state.last_seq: ", id="below-zero"),
        pytest.param(with_state(last_seq=2**63), "state.last_seq: ", id="beyond"),
        pytest.param(with_state(messages=4), "state: ", id="too-many"),
        pytest.param({"CONSUMER.CREATE": {"config": {}, "num_pending": "x"}}, "num_p", id="left"),
        pytest.param({"CONSUMER.CREATE": {"num_pending": 3}}, "config: Field", id="consumer"),
    ],
)
def test_answers_that_no_server_gives(tmp_path: Path, answers: dict[str, Any], why: str) -> None:
    with refused(ArchiveError, "stream-refused", reason="odd-answer") as caught:
        reading(Impostor(answers=answers), tmp_path)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("sequences", "code", "fields"),
    [
        pytest.param([1, 1, 2, 2, 3], "read-out-of-order", {"sequence": 1}, id="twice"),
        pytest.param([3, 2, 1], "read-out-of-order", {"sequence": 2}, id="falling"),
        pytest.param([0, 1, 2], "read-out-of-order", {"sequence": 0}, id="before-the-range"),
        pytest.param([2**63, 1, 2], "reply-of-no-server", {}, id="beyond"),
    ],
)
def test_sequences_that_do_not_rise(
    tmp_path: Path, sequences: list[int], code: str, fields: dict[str, int]
) -> None:
    def pieces(inbox: bytes, sid: bytes) -> Iterator[bytes]:
        left = len(sequences)
        yield b"".join(
            message(inbox, sid, sequence, number, left - number)
            for number, sequence in enumerate(sequences, 1)
        )

    count = len(sequences)
    answers = with_state(messages=count, last_seq=count)
    with refused(ArchiveError, code, **fields):
        reading(Impostor(answers=answers, messages=count, pieces=pieces), tmp_path)
    assert not (tmp_path / "w").exists() or not list((tmp_path / "w").rglob("*.parquet"))


@pytest.mark.parametrize(
    "replies", [[b"r"], [b"$JS.ACK.S.c.1.x.1.1.1"], [REPLY, REPLY + b".x"], [b"..........."]]
)
def test_replies_that_no_server_gives(replies: list[bytes]) -> None:
    with refused(ArchiveError, "reply-of-no-server"):
        Delivered.parse(replies, "here")


@pytest.mark.parametrize("count", [3, 2**62])
def test_sequences_up_to_the_sky(count: int) -> None:
    """Neither the plan nor a span of it is in proportion to what the server says."""
    last = 2**62
    answers = with_state(messages=count, bytes=last, last_seq=last)
    impostor = Impostor(answers=answers, messages=last)
    impostor.pieces = lambda inbox, sid: iter([message(inbox, sid, impostor.first, 1)])
    with serving(impostor):
        nats, settings = NatsSettings(servers=impostor.url), JetStreamSettings(stream="S")
        source = StreamSource(nats, settings, 1_000_000)
        spans = source.plan(Coverage.of([]))
        assert 200 < len(spans) < 300
        assert [spans[0].first, spans[-1].last] == [1, last]
        assert len(source.tasks(spans[0], Coverage.of([]))[1]) <= 1000


@pytest.mark.parametrize("pending", [0, 2])
def test_messages_that_are_counted_and_kept_back(tmp_path: Path, pending: int) -> None:
    """The first range says so, or an ingest would ask for each of thousands."""
    none = b"NATS/1.0 404 No Messages\r\n\r\n"
    given = iter([1])

    def pieces(inbox: bytes, sid: bytes) -> Iterator[bytes]:
        yield from (message(inbox, sid, sequence, 1, pending) for sequence in given)
        yield b"HMSG a %b %d %d\r\n%b\r\n" % (sid, len(none), len(none), none)

    with refused(ArchiveError, "read-nothing", count=2, first=2, last=3):
        reading(Impostor(pieces=pieces), tmp_path)


@pytest.mark.slow
@pytest.mark.spark
def test_spark_ends_when_it_is_told(tmp_path: Path) -> None:
    """A message comes, and no more of the millions that there should be."""
    last = 10**7
    impostor = Impostor(answers=with_state(messages=last, bytes=10**12, last_seq=last))
    impostor.messages = last
    impostor.pieces = lambda inbox, sid: iter([message(inbox, sid, impostor.first, 1)])
    with serving(impostor):
        command = [sys.executable, "-m", "nats_transform", "ingest", "--stream", "S"]
        command += ["--master", "local[2]", "--server", impostor.url]
        program = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
        while not children(family(program.pid), b"pyspark.daemon"):
            assert program.poll() is None
            time.sleep(0.1)
        program.terminate()
        # Without being told, it would wait for a minute for each of a thousand ranges.
        assert program.communicate() == (None, b"")
    assert program.returncode == 143


def test_subjects_without_end() -> None:
    state = {**STATE, "subjects": {f"s{n}": 1 for n in range(300_000)}}

    async def count(url: str) -> None:
        nats = NatsSettings(servers=url, connect_timeout=20)
        async with connection(nats) as client:
            assert (await stream_state(client, "T")).messages == 3
            with refused(ArchiveError, "odd-answer", fault="it is not JSON"):
                await counts_by_subject(client, "S")

    many = json.dumps({**INFO_OF_STREAM, "state": {**state, "x": [[]] * 300_000}}).encode()
    info = b"INFO " + json.dumps({**INFO, "max_payload": 2**60}).encode() + b"\r\n"
    answers = {"STREAM.INFO.S": many, "STREAM.INFO": INFO_OF_STREAM}
    with serving(Impostor(info=info, answers=answers)) as impostor:
        asyncio.run(count(impostor.url))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_that_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It would be told after 100,000 pings; one that sends fewer fills the same queue, only later.
    monkeypatch.setattr("jobs.jetstream.connection.MOST_NOISE", 10**12)
    monkeypatch.setattr("jobs.jetstream.connection.WRITE_SECONDS", 1)
    with pytest.raises(ArchiveError):
        reading(Impostor(pieces=endless(b"", b"PING\r\n" * 1000)), tmp_path, patience=3)
