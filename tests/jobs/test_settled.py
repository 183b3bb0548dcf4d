"""Whether `verify` sees that schedules and counters have their new names, on a real server."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from jobs.plan import PlanError
from jobs.settings.connection import NatsSettings
from jobs.verify import settled
from jobs.verify.probe import probe
from jobs.verify.settled import unsettled
from nats_transform.config.block import mappings_block
from nats_transform.plan.files import files
from nats_transform.plan.model import Change, Plan, Step
from tests.conformance.test_account import reload
from tests.conformance.test_headers import counts
from tests.conformance.test_regrets import Side
from tests.conformance.test_stream_features import CONFIG, publish, shop
from tests.support.awaiting import awaited
from tests.support.command import printed
from tests.support.command import refused as refused_command
from tests.support.files import write_files, written
from tests.support.refused import refused
from tests.support.rollout import monitor
from tests.support.saying import says
from tests.support.spark_cluster import free_port

pytestmark = pytest.mark.server

NEW: dict[str, Any] = {
    "jobs.*": [{"destination": "work.$1", "weight": 100}],
    "visits.*": [{"destination": "counts.$1", "weight": 100}],
    "two.*": [{"destination": "one.$1", "weight": 50}, {"destination": "other.$1", "weight": 50}],
}
PLANS = {
    "name": "PLANS",
    "subjects": ["plans.*", "jobs.*", "work.*", "two.*", "one.*", "other.*", "stay.*"],
    "allow_msg_schedules": True,
}
COUNTS = {"name": "COUNTS", "subjects": ["visits.*", "counts.*"], "allow_msg_counter": True}
PLAN = Plan(
    account="SHOP", current="a" * 64, candidate="b" * 64, made_from={},
    steps=(
        Step(number=1, phase="shift", title="", why="",
             changes=(Change(kind="mappings", name="SHOP", before={}, after=NEW),)),
        Step(number=2, phase="settle", title="", why="", changes=(), settles="schedules",
             streams=("PLANS",)),
        Step(number=3, phase="settle", title="", why="", changes=(), settles="counters",
             streams=("COUNTS",)),
    ),
)  # fmt: skip
FAR = "@at 2040-01-01T00:00:00Z"


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server(CONFIG % "") as running:
        yield running


async def left(server: NatsServer, step: int) -> list[str]:
    login = NatsSettings(servers=server.url, user="shop", password="p")  # noqa: S106
    return await asyncio.to_thread(lambda: list(unsettled(login, PLAN, step)))


@awaited
async def test_schedules_that_name_old_subjects(server: NatsServer) -> None:
    async with shop(server, PLANS, COUNTS) as side:

        async def plan(number: int, target: str, **more: str) -> None:
            asked = {"Schedule": FAR, "Schedule_Target": target, **more}
            assert "error" not in await publish(side, f"plans.{number}", **asked)

        assert await left(server, 2) == []
        await plan(1, "stay.eu")
        assert await left(server, 2) == []
        await plan(2, "jobs.eu", Schedule_Source="jobs.last")
        await plan(3, "two.eu")
        assert await left(server, 1) == []
        found = await left(server, 2)
        assert [line.partition(" names an old subject")[0] for line in found] == [
            "stream PLANS: the schedule with sequence 2",
            "stream PLANS: the schedule with sequence 2",
            "stream PLANS: the schedule with sequence 3",
        ]
        assert "publish it again with Nats-Schedule-Target: work.eu" in found[0]
        assert "publish it again with Nats-Schedule-Source: work.last" in found[1]
        assert "has no single new subject" in found[2]
        await plan(2, "work.eu")
        await plan(3, "one.eu")
        assert await left(server, 2) == []


async def say(side: Side, line: str) -> None:
    """Does what a line of `verify` says, as the `nats` command does it."""
    _, _, command = line.partition(": nats ")
    words = shlex.split(command)
    assert words[:2] == ["pub", "--jetstream"]
    headers = dict(word.split(":", 1) for flag, word in zip(words[4::2], words[5::2], strict=True)
                   if flag == "-H")  # fmt: skip
    answer = await side.client.request(words[2], words[3].encode(), 5, headers=headers)
    assert "error" not in json.loads(answer.data), answer.data


@awaited
async def test_counters_that_are_not_carried_over(server: NatsServer) -> None:
    async with shop(server, PLANS, COUNTS) as side:
        for subject, increment in (
            ("visits.eu", "+5"), ("visits.eu", "+1"), ("visits.us", "-3"), ("counts.eu", "+2"),
            ("visits.none", "+0"),
        ):  # fmt: skip
            assert "error" not in await publish(side, subject, Incr=increment)
        found = await left(server, 3)
        assert [line.partition(": nats")[0] for line in found] == [
            "stream COUNTS: counter visits.eu holds 6, of which counts.eu lacks 6",
            "stream COUNTS: counter visits.us holds -3, of which counts.us lacks -3",
        ]
        for line in found:
            await say(side, line)
        assert await left(server, 3) == []
        # Whoever goes on adding changes nothing, nor who asks twice.
        assert (await publish(side, "counts.eu", Incr="+1"))["val"] == "9"
        assert (await publish(side, "counts.us", Incr="+1"))["val"] == "-2"
        assert await left(server, 3) == []
        # A message under the old name after all: only the rest is missing.
        assert (await publish(side, "visits.eu", Incr="+4"))["val"] == "10"
        (line,) = await left(server, 3)
        assert "counter visits.eu holds 10, of which counts.eu lacks 4: nats pub" in line
        await say(side, line)
        assert (await publish(side, "counts.eu", Incr="+0"))["val"] == "13"


@awaited
async def test_a_sum_that_would_count_twice(server: NatsServer) -> None:
    names = [{"src": f"{name}.*", "dest": "total.$1"} for name in ("visits", "counts")]
    total = {"name": "SUM", "allow_msg_counter": True}
    total["sources"] = [{"name": "COUNTS", "subject_transforms": names}]
    mapped = f"\nmappings {json.dumps({'visits.*': 'counts.$1'})}"
    async with shop(server, PLANS, COUNTS, total) as side:
        for subject in ("visits.eu", "visits.us"):
            assert "error" not in await publish(side, subject, Incr="+6")
        # What begins at 0 is right in the sum.
        assert await left(server, 3) == []
        away = {"Incr": "-6", "Transform_Carried": "visits.eu"}
        assert "error" not in await publish(side, "visits.eu", **away)
        (line,) = await left(server, 3)
        assert line.startswith(
            "stream COUNTS: 6 were taken from counter visits.eu, which SUM adds up with "
            "counts.eu, of which counts.eu lacks 6: nats pub"
        )
        reload(server, CONFIG % mapped, 1)
        await say(side, line)
        assert await left(server, 3) == []
        await counts(side, "SUM", "total.eu", "6")
        # What is added again without being taken away is found, and can be taken back.
        again = {"Incr": "+6", "Transform_Carried": "visits.us"}
        assert "error" not in await publish(side, "counts.us", **again)
        await counts(side, "SUM", "total.us", "12")
        (line,) = await left(server, 3)
        assert "so 6 under counts.us count twice: nats pub" in line
        await say(side, line)
        await counts(side, "SUM", "total.us", "6")
        assert await left(server, 3) == []


@awaited
async def test_a_counter_without_its_history(server: NatsServer) -> None:
    async with shop(server, PLANS, COUNTS | {"max_msgs_per_subject": 1}) as side:
        for subject in ("visits.eu", "counts.eu", "counts.eu"):
            await publish(side, subject, Incr="+2")
        (line,) = await left(server, 3)
        assert "too few messages to show whether counts.eu has it" in line
        assert "max_msgs_per_subject" in line


def verify(plan: Path, step: str, *more: str) -> str:
    return printed("verify", "--plan", plan, "--step", step, *more)


@pytest.mark.parametrize("step", ["1", "2"])
def test_a_probe_says_what_it_does_not_show(tmp_path: Path, step: str) -> None:
    """Also where a step is to be undone that gave schedules new names: they need not be settled."""
    write_files(tmp_path, files(PLAN, {}))
    mappings = "\n" + mappings_block({"jobs.*": NEW["jobs.*"]})  # and none of the others
    with nats_server(CONFIG % mappings) as running:
        login = ("--server", running.url, "--user", "shop", "--password", "p")
        out = verify(tmp_path, step, "--undo", *login, "--probe", "jobs.x")
    unseen = "not looked at: mappings SHOP of two.*, mappings SHOP of visits.*"
    assert unseen in out


@pytest.mark.parametrize(
    ("step", "cure"),
    [("0", "connect as a user of the system account"), ("3", "give --server URL")],
    ids=["nothing", "counters"],
)
def test_a_step_that_cannot_be_seen(tmp_path: Path, step: str, cure: str) -> None:
    write_files(tmp_path, files(PLAN, {}))
    conf = written(tmp_path / "server.conf", CONFIG % "\nmappings {}")
    err = refused_command("verify", "--plan", tmp_path, "--step", step, "--config", conf)
    assert says(err, "step-unseen", step=step, cures=cure)


def test_the_monitor_of_one_cluster_shows_no_other(tmp_path: Path) -> None:
    """Clusters that gateways connect have mappings of their own."""
    write_files(tmp_path, files(PLAN, {}))
    port, account = free_port(), CONFIG % ("\n" + mappings_block(NEW))
    account = account.replace("jetstream: enabled,", "") + "\njetstream: false"

    def cluster(name: str, listen: int) -> str:
        return (
            f'{account}\nhttp: "127.0.0.1:-1"\nserver_name: n-{name}\n'
            f'gateway {{ name: {name}, listen: "127.0.0.1:{listen}", gateways: ['
            f'{{ name: A, urls: ["nats://127.0.0.1:{port}"] }}] }}'
        )

    def shown(*servers: NatsServer) -> str:
        monitors = (text for one in servers for text in ("--monitor", monitor(one)))
        return verify(tmp_path, "1", *monitors)

    with nats_server(cluster("A", port)) as one, nats_server(cluster("B", -1)) as two:
        until = time.monotonic() + 20
        while "not looked at: mappings SHOP on cluster B" not in (out := shown(one)):
            assert time.monotonic() < until, out
        assert "cluster" not in shown(one, two)


def test_a_subject_is_never_an_option_or_a_template_of_a_command(server: NatsServer) -> None:
    """Publishers choose subjects, and people copy the commands."""

    async def run() -> None:
        async with shop(server, PLANS, COUNTS) as side:
            assert "error" not in await publish(side, "visits.{{ID}}", Incr="+1")
            (line,) = await left(server, 3)
            assert "nats pub" not in line
            assert "publish counts.{{ID}} from a program, with the headers Nats-Incr:+1, " in line

    asyncio.run(run())
    for subject in (b"--context=prod", b"-s"):
        assert settled._command(subject, b"visits.eu", 1).startswith("publish ")


def test_a_probe_reaches_no_service_of_the_server(server: NatsServer) -> None:
    """An acknowledgement counts, also if it is only traced."""
    after = {"done.*": [{"destination": "$JS.ACK.PLANS.worker.$1", "weight": 100}]}
    step = PLAN.steps[0].model_copy(
        update={"changes": (Change(kind="mappings", name="SHOP", before={}, after=after),)}
    )
    plan = PLAN.model_copy(update={"steps": (step,)})
    nats = NatsSettings(servers=server.url, user="shop", password="p")  # noqa: S106
    with refused(PlanError, "probe-own-subject", destination="$JS.ACK.PLANS.worker.x"):
        asyncio.run(probe(nats, plan, 1, "done.x"))
