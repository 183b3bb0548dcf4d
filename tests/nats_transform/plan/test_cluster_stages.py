"""Stages that go through one cluster after the other, also on a real server of one of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from jobs.verify.run import _monitored
from nats_transform.config.block import mapping_fields, mappings_block
from nats_transform.plan.stages import Stage, stages
from nats_transform.plan.state import same
from tests.conformance.client import Client
from tests.support.rollout import monitor, reload
from tests.support.rules import mappings

NAMES = ("a", "b", "c")
OLD = mappings({"orders.*": "old.$1", "tail.>": "old.tail.>"})
NEW = mappings(
    {
        "orders.*": "new.{{wildcard(1)}}",
        "bills.*": "new.bills.$1",
        "tail.>": "new.tail.>",
        "weights": [("x", 50), ("y", 50)],
    }
)
STAGES = stages(OLD, NEW, (10, 100), NAMES)


def share(stage: Stage, subject: str, cluster: str) -> int:
    """The percent of the messages that go the new way."""
    outcomes = stage.mappings.outcomes(subject, cluster)
    return sum(percent for outcome, percent in outcomes if str(outcome.subject).startswith("new."))


def test_one_cluster_after_the_other() -> None:
    assert [(stage.cluster, stage.percent) for stage in STAGES] == [
        ("a", 10), ("a", 100), ("b", 10), ("b", 100), ("c", 10), (None, 100),
    ]  # fmt: skip
    told = {
        subject: [[share(stage, subject, name) for name in (*NAMES, "d")] for stage in STAGES]
        for subject in ("orders.x", "bills.x", "tail.x")
    }
    way = [
        [10, 0, 0, 0], [100, 0, 0, 0], [100, 10, 0, 0], [100, 100, 0, 0], [100, 100, 10, 0],
        [100, 100, 100, 100],
    ]  # fmt: skip
    assert told["orders.x"] == told["bills.x"] == way
    # It has no wildcard that could be written in several ways.
    assert told["tail.x"] == [[0] * 4] * 4 + [[10] * 4, [100] * 4]
    assert STAGES[-1].mappings == NEW
    assert {stage.split for stage in STAGES[:4]} == {("orders.*", "bills.*")}
    assert STAGES[4].split == ("orders.*", "bills.*", "tail.>")
    assert {stage.at_once[0][0] for stage in STAGES[:-1]} == {"weights"}


def test_no_stage_changes_nothing() -> None:
    weighted = mappings({"weights": [("x", 50), ("y", 50)]})
    assert [stage.cluster for stage in stages(mappings({}), weighted, (10, 100), NAMES)] == [None]
    assert [stage.cluster for stage in stages(OLD, OLD, (10, 100), NAMES)] == [None]


@pytest.mark.parametrize("clusters", [(), ("east", "west")], ids=["at once", "per cluster"])
@pytest.mark.parametrize("is_new", [True, False], ids=["added", "removed"])
@pytest.mark.parametrize(
    ("source", "destination"),
    [("ping", "ping"), ("bills.*", "bills.$1"), ("o.>", "o.>"), ("b.*", "b.{{wildcard(1)}}")],
)
def test_what_changes_nothing_is_not_split(
    source: str, destination: str, is_new: bool, clusters: tuple[str, ...]
) -> None:
    more = {source: destination}
    old = mappings({"orders.*": "old.$1"} | ({} if is_new else more))
    new = mappings({"orders.*": "new.$1"} | (more if is_new else {}))
    first, *_, last = stages(old, new, (10, 100), clusters)
    assert (first.split, first.at_once, last.mappings) == (("orders.*",), (), new)
    for stage in stages(old, new, (10, 100), clusters):
        others = [one for one in stage.mappings.mappings if one.source != "orders.*"]
        assert others == [one for one in new.mappings if one.source == source]


def test_many_mappings_are_staged_in_proportion() -> None:
    """Comparing each with every other would take minutes; so even a busy machine tells it apart."""
    many = mappings({f"a{n}.*": f"b{n}.$1" for n in range(10_000)})
    started = time.process_time()
    assert len(stages(mappings({}), many)) == 4
    assert time.process_time() - started < 40


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    # JetStream asks for routes where there is a cluster.
    cluster = "cluster { name: b, listen: '127.0.0.1:-1', routes: ['nats://127.0.0.1:9'] }"
    with nats_server(f"server_name: s\nhttp: '127.0.0.1:-1'\n{cluster}\n") as running:
        yield running


@pytest.mark.server
def test_a_server_of_one_cluster(server: NatsServer) -> None:
    kept = server.config.read_text()
    for stage in STAGES:
        server.config.write_text(kept + mappings_block(mapping_fields(stage.mappings)))
        reload(server)
        shown = _monitored(monitor(server), "$G")[0].seen["mappings", "$G"]
        fits = [same(("mappings", ""), shown, mapping_fields(each.mappings)) for each in STAGES]
        assert fits == [each is stage for each in STAGES]
        with Client(server.url) as client:
            heard = client.subscribe("*.x")
            for _ in range(400):
                client.publish("orders.x", b"")
            client.flush()
            seen = Counter(message.subject for message in client.received(heard))
        wanted = share(stage, "orders.x", "b")
        assert seen["new.x"] + seen["old.x"] == 400
        if wanted in (0, 100):
            assert seen["new.x"] == 4 * wanted
        else:
            assert 10 < seen["new.x"] < 90  # 10 %, but for once in a million years
