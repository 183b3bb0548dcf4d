"""Each message stored once, in order, whatever happens to the server, the stream and ourselves."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from nats import connect

import jobs.jetstream.chain
from jobs.errors import JobError
from jobs.jetstream.chain import Chain, StreamLost
from jobs.jetstream.process import NatsServer, nats_server
from jobs.jetstream.stream import StreamState
from jobs.settings.connection import NatsSettings
from tests.support.network import network
from tests.support.refused import refused
from tests.support.replayer import replay
from tests.support.restarting import restart
from tests.support.stream_backups import state_of_stream
from tests.support.streams import Stream, column_of, new_stream

pytestmark = pytest.mark.server


def stored(stream: Stream) -> list[int]:
    """The messages of the replay that the stream holds, in order; those of others are left out."""
    numbers = map(int, column_of(NatsSettings(servers=stream.server.url), stream.name, "data"))
    return [number for number in numbers if number > 0]


def sent(stream: Stream, count: int, **more: Any) -> Chain:
    return asyncio.run(replay(stream.server.url, stream.name, count, **more))


def test_in_order_and_only_once(stream: Stream) -> None:
    assert sent(stream, 1000).sent == 1000
    assert sent(stream, 1000).sent == 0
    assert sent(stream, 1500).sent == 500
    assert stored(stream) == list(range(1, 1501))


def test_a_rate_holds_in_every_second(stream: Stream) -> None:
    sent(stream, 15, rate=10)
    came = column_of(NatsSettings(servers=stream.server.url), stream.name, "ts_ns")
    assert len(came) == 15
    # Any eleven take nearly a second; half of it says that none had waited for others.
    assert min(b - a for a, b in zip(came, came[10:], strict=False)) > 5 * 10**8


def test_several_replays_at_once(stream: Stream) -> None:
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda _: sent(stream, 2000), range(3)))
    assert sum(one.sent for one in runs) == 2000
    assert stored(stream) == list(range(1, 2001))


def test_beside_another_client(stream: Stream) -> None:
    """It writes into the stream all the time; its messages are the negative numbers."""

    async def work() -> Chain:
        client = await connect(stream.server.url)
        js = client.jetstream()

        async def disturb() -> None:
            for n in range(1, 10_000):
                await js.publish(f"{stream.name}.other", b"-%d" % n)
                await asyncio.sleep(0.01)

        task = asyncio.create_task(disturb())
        result = await replay(stream.server.url, stream.name, 2000)
        task.cancel()
        await client.close()
        return result

    result = asyncio.run(work())
    assert result.sent == 2000
    assert result.breaks > 0
    assert stored(stream) == list(range(1, 2001))


def test_somebody_else_answers_into_the_inbox(stream: Stream) -> None:
    """Whoever gets the messages sees the subject for the answers, and a service answers."""

    async def work() -> Chain:
        client = await connect(stream.server.url)

        async def answer(message: Any) -> None:
            inbox = message.reply.rpartition(".")[0]
            for subject in (f"{inbox}.x", message.reply):
                for data in (b"thanks", b"\xff", b"1", b"{}", b'{"error": "no"}', b"[" * 50_000):
                    await client.publish(subject, data)

        await client.subscribe(f"{stream.name}.>", cb=answer)
        await client.flush()
        result = await replay(stream.server.url, stream.name, 500)
        await client.close()
        return result

    result = asyncio.run(asyncio.wait_for(work(), 60))
    assert (result.sent, result.breaks) == (500, 0)
    assert stored(stream) == list(range(1, 501))


# --- Faults ---------------------------------------------------------------------------------------


def last_of(stream: Stream) -> int:
    last: int = stream.info().state.last_seq
    return last


@pytest.mark.parametrize(
    "kills", [3, pytest.param(40, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_killed_at_many_moments(stream: Stream, seed: int, kills: int) -> None:
    chance, count = random.Random(seed), 150 * (kills + 1)
    for killed in range(kills):
        child = os.fork()
        if not child:
            try:
                sent(stream, count, rate=3000)
                signal.pause()  # it is killed, also where it is faster than who looks
            finally:
                os._exit(1)
        wanted = 150 * killed + chance.randrange(1, 150)
        while last_of(stream) < wanted:
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        held = stored(stream)
        assert held == list(range(1, len(held) + 1))
    sent(stream, count)
    assert stored(stream) == list(range(1, count + 1))


@pytest.fixture
def own() -> Iterator[NatsServer]:
    """A server that a test may stop."""
    with nats_server() as server:
        yield server


def meanwhile(
    stream: Stream, count: int, moment: int, act: Callable[[], object], **more: Any
) -> Chain:
    """A replay, and something that is done once so many messages are stored."""
    with ThreadPoolExecutor() as pool:
        running = pool.submit(sent, stream, count, rate=2000, **more)
        while last_of(stream) < moment and not running.done():
            time.sleep(0.01)
        act()
        return running.result()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_server_that_restarts(own: NatsServer, how: signal.Signals) -> None:
    stream = new_stream(own)
    for count in (1000, 2000, 3000):
        told = ""
        try:
            meanwhile(stream, count, count - 800, partial(restart, own, how, 0.3))
        except StreamLost as lost:  # the job starts over
            told = str(lost)
        # A server that is stopped can lose what it has confirmed last, too (seen on 2.15.1).
        if told:
            before, now = map(int, re.findall(r"(?:was|now) (\d+)", told))
            assert count >= before > now == last_of(stream)
    sent(stream, 3000)
    assert stored(stream) == list(range(1, 3001))


@pytest.mark.parametrize(
    "is_back",
    [
        pytest.param(True, id="for a while"),
        pytest.param(False, id="for good", marks=pytest.mark.slow),  # it waits for answers
    ],
)
def test_a_server_that_freezes(
    own: NatsServer, is_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections stay, and it takes nothing from them: more waits than their buffers hold."""
    monkeypatch.setattr("jobs.jetstream.connection.WRITE_SECONDS", 0.5)
    stream = new_stream(own)

    def freeze() -> None:
        own.process.send_signal(signal.SIGSTOP)
        if is_back:
            time.sleep(2)
            own.process.send_signal(signal.SIGCONT)

    try:
        if is_back:
            meanwhile(stream, 400, 150, freeze, width=100_000)
        else:
            with refused(JobError, "replay-no-answer"):
                meanwhile(stream, 400, 150, freeze, width=100_000, patience=1.0)
    finally:
        own.process.send_signal(signal.SIGCONT)
    sent(stream, 400, width=100_000)
    assert stored(stream) == list(range(1, 401))


@pytest.mark.slow
def test_a_server_that_stays_away(own: NatsServer) -> None:
    stream = new_stream(own)
    with refused(JobError, "replay-no-answer"):
        meanwhile(stream, 5000, 200, own.stop, patience=1.0)


def test_a_stream_that_is_purged(stream: Stream) -> None:
    purge = partial(stream.run, lambda js: js.purge_stream(stream.name))
    assert meanwhile(stream, 2000, 300, purge).sent == 2000
    # What was purged is sent again when it is asked for again; the rest is not.
    held = set(stored(stream))
    assert max(held) == 2000
    assert sent(stream, 2000).sent == 2000 - len(held)
    assert sorted(stored(stream)) == list(range(1, 2001))


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "made-anew"])
def test_a_stream_that_vanishes(stream: Stream, anew: bool) -> None:
    with pytest.raises(JobError) as caught:
        meanwhile(stream, 5000, 300, stream.create_again if anew else stream.remove)
    assert caught.value.code in ("replay-recreated", "no-stream")
    if anew:
        assert stored(stream) == []


@pytest.mark.parametrize("refusals", [0, 1])
def test_a_stream_that_vanishes_with_what_was_on_the_way(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    """No answer comes any more, or one and no other: that is no reason to wait for long."""
    monkeypatch.setattr(jobs.jetstream.chain, "ANSWER_SECONDS", 3600.0)
    add, is_gone = Chain.add, False

    def lose(chain: Chain, subject: bytes, reply: bytes, block: Any, data: bytes) -> None:
        nonlocal refusals
        refusals -= is_gone
        if not is_gone or refusals >= 0:
            add(chain, subject, reply, block, data)

    def remove() -> None:
        nonlocal is_gone
        is_gone = True
        stream.remove()

    monkeypatch.setattr(Chain, "add", lose)
    with refused(JobError, "no-stream"):
        meanwhile(stream, 5000, 300, remove)


def test_an_answer_that_overtakes_a_look(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = state_of_stream(stream.server.url, stream.name)

    async def look(*_: Any) -> StreamState:
        await asyncio.sleep(0.5)
        return empty

    def treat(_: int, data: bytes) -> tuple[bytes, float, bool]:
        return data, 0.3 * (b'"seq":1' in data), False

    monkeypatch.setattr(jobs.jetstream.chain, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(jobs.jetstream.chain, "stream_state", look)
    with network(stream.server.url, treat) as url:
        assert asyncio.run(replay(url, stream.name, 1)).sent == 1


def test_limits_that_change(stream: Stream) -> None:
    """The stream removes messages from then on; none is stored twice, and the newest stay."""
    assert meanwhile(stream, 2000, 300, partial(stream.update, max_msgs=50)).sent == 2000
    assert stored(stream) == list(range(1951, 2001))


def test_a_subject_that_is_taken_away(stream: Stream) -> None:
    take = partial(stream.update, subjects=["elsewhere.>"])
    about = re.compile(f"nobody takes messages to {stream.name}\\.")
    with refused(JobError, "replay-no-answer", reason=about):
        meanwhile(stream, 5000, 300, take, patience=1.0)


def test_without_evidence_nothing_is_guessed(
    make_stream: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are lost, and what they spoke of is removed: better an error than a second copy."""
    monkeypatch.setattr(jobs.jetstream.chain, "_LOOK_SECONDS", 1.5)
    stream = make_stream(max_msgs=1)
    is_mute = False

    def treat(number: int, data: bytes) -> tuple[bytes, float, bool]:
        swallowed = is_mute and number == 0
        # What the server says of the state of the stream is the end of the connection.
        return b"" if swallowed else data, 0.0, swallowed and b"stream_info" in data

    with network(stream.server.url, treat) as url, ThreadPoolExecutor() as pool:
        sending = replay(url, stream.name, 3000, rate=1000, connect_timeout=1)
        running = pool.submit(asyncio.run, sending)
        while last_of(stream) < 200:
            time.sleep(0.01)
        is_mute = True
        before = -1
        while before != (before := last_of(stream)):
            time.sleep(0.3)
        stream.publish([(b"other", b"", b"-1")] * 3)
        with refused(JobError, "replay-in-doubt"):
            running.result()
    assert last_of(stream) == before + 3
