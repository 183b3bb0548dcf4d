"""One ingest of many streams of a real nats-server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nats.js.api import StreamSource

from jobs.jetstream.account import fits, stream_origins
from jobs.jetstream.process import NatsServer
from jobs.settings.connection import NatsSettings
from tests.cases import rows
from tests.support.command import nats_transform
from tests.support.saying import says
from tests.support.streams import Stream, new_stream


@pytest.mark.parametrize(("stream", "patterns", "expected"), rows("requests.yaml", "patterns"))
def test_fits(stream: str, patterns: list[str], expected: bool) -> None:
    assert fits(stream, patterns) is expected


pytestmark = pytest.mark.server


def named(server: NatsServer, name: str, messages: int, **config: object) -> None:
    """A stream of this name, with so many messages."""
    stream = Stream(server, name)
    stream.run(lambda js: js.add_stream(name=name, subjects=[f"{name}.>"], **config))
    stream.count(messages)


@pytest.fixture
def account(nats_server: NatsServer) -> NatsServer:
    """Two streams that fit EU_*, one that is empty, a work queue, a bucket and another one."""
    for name, messages in (("EU_A", 30), ("EU_B", 20), ("EU_EMPTY", 0), ("OTHER", 5)):
        named(nats_server, name, messages)
    named(nats_server, "EU_QUEUE", 3, retention="workqueue")
    named(nats_server, "KV_EU_x", 4)
    return nats_server


def test_one_that_fails_does_not_hold_up_the_others(account: NatsServer, tmp_path: Path) -> None:
    def ingest(*more: str) -> tuple[int, str, str]:
        options = ["--server", account.url, "--warehouse", str(tmp_path / "warehouse")]
        return nats_transform("ingest", "--stream", "EU_*, OTHER", *options, *more)

    code, out, err = ingest("--json")
    document = json.loads(out)
    assert code == 1
    counts = {one["stream"]: (one["added"], one["messages"]) for one in document["streams"]}
    assert counts == {"EU_A": (30, 30), "EU_B": (20, 20), "EU_EMPTY": (0, 0), "OTHER": (5, 5)}
    assert says(document["failed"]["EU_QUEUE"], "work-queue", stream="EU_QUEUE")
    assert document["refused"].startswith("1 of 5 streams: EU_QUEUE: ")
    assert says(err, "work-queue", stream="EU_QUEUE")

    Stream(account, "EU_B").count(7)
    code, out, err = ingest("--stream", "EU_A,ORDERS,OTHR,NO*")
    assert code == 1
    assert "3 of 4 streams: ORDERS: no stream of" in err
    assert "; OTHR: no stream of" in err
    assert "did you mean OTHER?" in err
    assert ["EU_A", "0", "30"] in [line.split() for line in out.splitlines()]

    code, out, _ = ingest()
    assert code == 1
    rows = [line.split() for line in out.splitlines()]
    assert ["EU_B", "7", "27"] in rows
    assert ["EU_A", "0", "30"] in rows
    assert ["EU_QUEUE", "failed"] in rows


def test_a_pattern_that_nothing_fits(nats_server: NatsServer, tmp_path: Path) -> None:
    options = ["--server", nats_server.url, "--warehouse", str(tmp_path / "warehouse")]
    code, _, err = nats_transform("ingest", "--stream", "NONE_*", *options)
    assert code == 2
    assert says(err, "no-stream-fits", pattern="NONE_*")
    assert not (tmp_path / "warehouse").exists()


def test_which_streams_copy_from_others(nats_server: NatsServer) -> None:
    first, second = new_stream(nats_server), new_stream(nats_server)
    copied = [StreamSource(name=first.name), StreamSource(name=second.name)]
    both = new_stream(nats_server, subjects=None, sources=copied)
    mirror = new_stream(nats_server, mirror=StreamSource(name=first.name))
    origins = stream_origins(NatsSettings(servers=nats_server.url))
    assert origins[first.name] == []
    assert {*origins[both.name]} == {first.name, second.name}
    assert origins[mirror.name] == [first.name]
