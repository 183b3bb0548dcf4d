"""A leaf node connection, on both sides of which mappings apply, between two real servers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from jobs.jetstream.process import nats_server
from tests.conformance.test_regrets import found as codes
from tests.support.censuses import census_file
from tests.support.command import findings, nats_transform, printed
from tests.support.spark_cluster import free_port

pytestmark = pytest.mark.server

CHAIN = ('mappings { "orders.*": "shop.$1" }', 'mappings { "shop.*": "store.$1" }')
ALIKE = ('mappings { "orders.>": "orders.v2.>" }',) * 2
CANARY = """
mappings {
  "orders.*": [ {destination: "canary.$1", weight: 20%}, {destination: "orders.$1", weight: 80%} ]
}
"""
FINE = ('mappings { "orders.*": "shop.$1" }',) * 2


def configs_of(leaf: str, hub: str, port: int) -> tuple[str, str]:
    """The configurations of a leaf node and of its hub."""
    remote = f'leafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{port}" }}] }}'
    return f"{remote}\n{leaf}", f'leafnodes {{ listen: "127.0.0.1:{port}" }}\n{hub}'


@asynccontextmanager
async def joined(leaf: str, hub: str) -> AsyncIterator[tuple[Client, Client]]:
    """A client of a leaf node and one of its hub, which hear of each other."""
    leaf, hub = configs_of(leaf, hub, free_port())
    with nats_server(hub) as there, nats_server(leaf) as here:
        clients = await nats.connect(here.url), await nats.connect(there.url)
        yield clients
        for client in clients:
            await client.close()


async def _arrived(leaf: str, hub: str, subject: str, count: int) -> Counter[str]:
    """What comes to a subscriber of the hub, of what is published at the leaf node."""
    seen: Counter[str] = Counter()

    async def hear(message: Msg) -> None:
        seen[message.subject] += 1

    async with joined(leaf, hub) as (here, there):
        await there.subscribe(">", cb=hear)
        while not seen["joined"]:  # pytest's timeout ends it
            await here.publish("joined", b"")
            await asyncio.sleep(0.05)
        for _ in range(count):
            await here.publish(subject, b"")
        while not seen["last"]:
            await here.publish("last", b"")
            await asyncio.sleep(0.05)
    return Counter({name: n for name, n in seen.items() if name not in ("joined", "last")})


def arrived(configs: tuple[str, str], subject: str = "orders.eu", count: int = 1) -> Counter[str]:
    return asyncio.run(_arrived(*configs, subject, count))


def written(folder: Path, configs: tuple[str, str]) -> Iterator[str]:
    """The files of two configurations."""
    for name, text in zip(("here.conf", "there.conf"), configs, strict=True):
        (folder / name).write_text(text)
        yield str(folder / name)


def found(folder: Path, configs: tuple[str, str], subject: str = "orders.eu") -> dict[str, Any]:
    """What a dry run of the first one finds, if the second one is on the other side."""
    here, there = written(folder, configs)
    census = census_file(folder / "census.parquet", {subject.encode(): 1_000})
    asked = ("--census", census, "--candidate", here, "--leaf-node", there, "--fail-on", "never")
    told = findings("dry-run", *asked)
    return {f["about"]: f for f in told if f["code"] == "mapped-twice"}


def traced(folder: Path, configs: tuple[str, str], subject: str = "orders.eu") -> dict[str, float]:
    """The share of each result beyond the connection, as an offline trace has it."""
    here, there = written(folder, configs)
    out = printed("trace", subject, "--mapping", here, "--leaf-node", there, "--json")
    shares: Counter[str] = Counter()
    for path in json.loads(out)["paths"]:
        for beyond in path["leaf_node"]:
            shares[beyond["subject"]] += path["percent"] * beyond["percent"]
    return {name: share / 10_000 for name, share in shares.items()}


def is_told(folder: Path, configs: tuple[str, str]) -> bool:
    """Whether `check` finds that both sides map something."""
    leaf, hub = configs_of(*configs, 7422)
    return "mapped-twice" in codes(folder, leaf=leaf, hub=hub)


def test_the_mappings_of_both_sides_apply(tmp_path: Path) -> None:
    assert arrived(CHAIN) == traced(tmp_path, CHAIN) == {"store.eu": 1}
    assert is_told(tmp_path, CHAIN)
    ((about, finding),) = found(tmp_path, CHAIN).items()
    assert about == "what goes over the leaf node connection"
    assert (finding["messages"], finding["subjects"]) == (1_000, 1)
    (example,) = finding["examples"]
    names = [example[name] for name in ("subject", "before", "after")]
    assert names == ["orders.eu", "shop.eu", "store.eu"]


def test_a_leaf_node_whose_other_side_nobody_shows(tmp_path: Path) -> None:
    here, there = written(tmp_path, (configs_of(*CHAIN, 7422)[0], CHAIN[1]))
    census = census_file(tmp_path / "census.parquet", {b"orders.eu": 1})
    asked = ("dry-run", "--census", str(census), "--candidate", here)
    unseen = "mappings beyond leaf node connections (--leaf-node FILE)"
    for more, is_unseen in (((), True), (("--leaf-node", there), False)):
        _, out, err = nats_transform(*asked, *more)
        assert (unseen in " ".join(out.split()), err) == (is_unseen, "")


def test_the_mappings_of_the_other_side_apply_first(tmp_path: Path) -> None:
    ((about, finding),) = found(tmp_path, CHAIN[::-1], "shop.eu").items()
    assert about == "what comes over the leaf node connection"
    assert (finding["messages"], finding["examples"][0]["after"]) == (1_000, "store.eu")


def test_a_mapping_that_covers_its_results_applies_twice(tmp_path: Path) -> None:
    assert arrived(ALIKE) == traced(tmp_path, ALIKE) == {"orders.v2.v2.eu": 1}
    assert is_told(tmp_path, ALIKE)
    (finding,) = found(tmp_path, ALIKE).values()
    assert finding["examples"][0]["after"] == "orders.v2.v2.eu"


def test_weights_are_drawn_twice(tmp_path: Path) -> None:
    came = arrived((CANARY, CANARY), count=1_000)
    # 20 % and 20 % of the rest are 36 %; one draw gives 270 of 1,000 once in 10 million times.
    assert traced(tmp_path, (CANARY, CANARY)) == {"canary.eu": 0.36, "orders.eu": 0.64}
    assert 270 < came["canary.eu"] < 450
    assert came.total() == 1_000
    assert is_told(tmp_path, (CANARY, CANARY))
    finding = found(tmp_path, (CANARY, CANARY))["what goes over the leaf node connection"]
    assert finding["messages"] == 160


def test_mappings_that_do_not_meet(tmp_path: Path) -> None:
    assert arrived(FINE) == traced(tmp_path, FINE) == {"shop.eu": 1}
    assert found(tmp_path, FINE) == {}
    assert not is_told(tmp_path, FINE)
