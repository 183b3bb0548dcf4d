"""What a real nats-server does with a message that is only to be traced."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from jobs.jetstream.process import nats_server
from tests.conformance.client import Client

pytestmark = pytest.mark.server

DEST = "traced.here"
ONLY = (("Nats-Trace-Dest", DEST), ("Nats-Trace-Only", "true"))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with nats_server() as server, Client(server.url) as made:
        yield made


def steps(client: Client, subject: str, *more: tuple[str, str]) -> list[dict]:
    """What the server says of a message that it only traces."""
    number = client.subscribe(DEST)
    client.publish(subject, b"x", headers=(*ONLY, *more))
    (event,) = client.wait_for(1, number)
    return list(json.loads(event.body)["events"])


def test_a_traced_acknowledgement_acknowledges(client: Client) -> None:
    client.add_stream("ACKED", "acked")
    client.request("acked", "x")
    consumer = {"durable_name": "c", "ack_policy": "explicit"}
    client.api("CONSUMER.CREATE.ACKED.c", {"stream_name": "ACKED", "config": consumer})
    number = client.subscribe("pulled")
    client.publish("$JS.API.CONSUMER.MSG.NEXT.ACKED.c", b"1", reply="pulled")
    (message,) = client.wait_for(1, number)
    assert client.api("CONSUMER.INFO.ACKED.c")["num_ack_pending"] == 1
    client.publish(message.reply, b"+ACK", headers=ONLY)
    while client.api("CONSUMER.INFO.ACKED.c")["num_ack_pending"]:  # the server acts on it later
        pass


def test_a_traced_request_to_jetstream_ends_at_the_import_of_its_api(client: Client) -> None:
    client.add_stream("KEPT", "kept")
    found = steps(client, "$JS.API.STREAM.DELETE.KEPT")
    assert [step["type"] for step in found] == ["in", "si"]
    client.api("STREAM.INFO.KEPT")


def test_a_trace_does_not_tell_that_a_stream_is_full(client: Client) -> None:
    client.add_stream("FULL", "full", max_msgs=1, discard="new")
    client.request("full", "x")
    assert client.request("full", "x")["error"]["err_code"] == 10077
    (stream,) = (step for step in steps(client, "full") if step["type"] == "js")
    assert (stream["stream"], stream["subject"]) == ("FULL", "full")
    assert "error" not in stream


def test_a_trace_tells_the_stored_subject_and_stores_nothing(client: Client) -> None:
    client.add_stream("T", "t.*", subject_transform={"src": "t.*", "dest": "new.$1"})
    (stream,) = (step for step in steps(client, "t.a") if step["type"] == "js")
    assert stream["subject"] == "new.a"
    assert client.api("STREAM.INFO.T")["state"]["messages"] == 0


def test_a_server_says_nothing_of_republish_mirrors_and_sources(client: Client) -> None:
    client.add_stream("R", "r", republish={"src": "r", "dest": "again"})
    client.add_stream("AGAIN", "again")
    client.add_stream("M", mirror={"name": "R"})
    assert [step.get("stream") for step in steps(client, "r")] == [None, "R"]
