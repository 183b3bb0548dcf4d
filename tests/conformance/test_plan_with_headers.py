"""A plan carried out on a real server by publishers that hold on to subjects, all the time.

They do what the plan says, and nothing is lost or doubled; who does not is refused, as foretold.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from nats_transform.plan.files import path
from nats_transform.plan.model import Plan, Step
from tests.conformance.test_account import reload
from tests.conformance.test_regrets import Side
from tests.conformance.test_stream_features import CONFIG, batch, publish, shop
from tests.support.command import nats_transform
from tests.support.rollout import monitor

pytestmark = [pytest.mark.server, pytest.mark.slow]  # test_headers.py has the quick cases

MAPPINGS = """
mappings {
  "stock.*": "store.$1", "jobs.*": "work.$1"
  "lots.*": "bulk.$1", "visits.*": "counts.$1"
}
"""
SHOP: dict[str, Any] = {
    "name": "SHOP",
    "subjects": ["stock.*", "plans.*", "jobs.*", "lots.*"],
    "allow_msg_schedules": True,
    "allow_atomic": True,
}
COUNTS: dict[str, Any] = {"name": "COUNTS", "subjects": ["visits.*"], "allow_msg_counter": True}
FORETOLD = {"condition-fails", "schedule-not-mapped", "schedule-target-moves"}
"""What stops the plan; with room for the new names no batch goes to another stream."""
PHASES = ["expand", "hold", "shift", "settle", "settle", "contract"]
LOGIN = ("--user", "shop", "--password", "p")
SOON, LATER = "@every 1s", "@at 2040-01-01T00:00:00Z"


def plan(server: NatsServer, *more: str) -> Any:
    asked = ("--stream", "SHOP", "--candidate", "new.conf", "--account", "SHOP", "--out", "plan")
    _, out, err = nats_transform(
        "plan", *asked, "--server", server.url, *LOGIN, "--stages", "100", "--json", *more
    )
    assert out, err
    return json.loads(out)


def verify(server: NatsServer, step: int) -> tuple[int, list[str]]:
    """The exit code, and what is not settled."""
    code, out, err = nats_transform(
        "verify", "--plan", "plan", "--step", str(step), "--server", server.url, *LOGIN,
        "--monitor", monitor(server), "--json",
    )  # fmt: skip
    assert out, err
    told = json.loads(out)
    assert told["differences"] == [], told
    return code, told["waits"]


def ingest(server: NatsServer) -> None:
    assert nats_transform("ingest", "--stream", "SHOP", "--server", server.url, *LOGIN)[0] == 0


async def take(step: Step, server: NatsServer, side: Side) -> None:
    """Does what a step says on the server."""
    for change in step.changes:
        text = Path("plan", path(step, change, undo=False)).read_text()
        if change.kind == "stream":
            await side.ask(f"STREAM.UPDATE.{change.name}", json.loads(text))
        else:
            assert change.kind == "mappings"
            reload(server, CONFIG % f"\n{text}", 1)


async def expecting(side: Side, last: int) -> int:
    """The sequence of a conditional publish, or minus the code of the error."""
    answer = await publish(side, "stock.eu", Expected_Last_Subject_Sequence=str(last))
    return int(answer.get("seq") or -answer["error"]["err_code"])


async def schedule(side: Side, number: int, target: str, when: str = LATER) -> None:
    answer = await publish(side, f"plans.{number}", Schedule=when, Schedule_Target=target)
    assert "error" not in answer, answer


async def say(side: Side, line: str) -> None:
    """Runs the command of a line of `verify`, as the `nats` command does."""
    words = shlex.split(line.partition(": nats ")[2])
    assert words[:2] == ["pub", "--jetstream"]
    headers = dict(word.split(":", 1) for word in words[5::2])
    answer = await side.client.request(words[2], words[3].encode(), 5, headers=headers)
    assert "error" not in json.loads(answer.data), answer.data


@dataclass
class Running:
    """Publishers that never stop: what they were told is stored."""

    added: int = 0
    batched: int = 0
    is_over: bool = False
    _rounds: int = 0
    _went: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, side: Side) -> None:
        while not self.is_over:
            answer = await publish(side, "visits.eu", Incr="+3")
            assert "error" not in answer, answer
            self.added += 3
            assert await batch(side, "lots.eu", f"batch-{self._rounds}", 3) == []
            self.batched += 3
            self._rounds += 1
            self._went.set()

    async def some(self) -> None:
        """Waits until all publishers went on."""
        wanted = self._rounds + 3
        while self._rounds < wanted:
            self._went.clear()
            await asyncio.wait_for(self._went.wait(), 60)


@contextlib.asynccontextmanager
async def running(side: Side) -> AsyncIterator[Running]:
    publishers = Running()
    task = asyncio.create_task(publishers.run(side))
    try:
        yield publishers
    finally:
        publishers.is_over = True
        await task


async def value(side: Side, subject: str) -> int:
    """What a counter holds."""
    message = await side.client.jetstream().get_last_msg("COUNTS", subject)
    return int(json.loads(message.data or b"")["val"])


def test_nothing_is_lost_or_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new.conf").write_text(CONFIG % MAPPINGS)

    async def carry_out(server: NatsServer, side: Side) -> None:
        last = await expecting(side, 0)
        last = await expecting(side, last)
        await schedule(side, 1, "jobs.eu")
        await schedule(side, 2, "jobs.us")
        async with running(side) as publishers:
            await publishers.some()
            await asyncio.to_thread(ingest, server)
            refused = await asyncio.to_thread(plan, server)
            assert {one["code"] for one in refused["blocked"]} == FORETOLD
            accepted = [{"code": code, "reason": "as the plan says"} for code in FORETOLD]
            Path("accept.yaml").write_text(json.dumps(accepted))
            await asyncio.to_thread(plan, server, "--accept", "accept.yaml")
            steps = Plan.model_validate_json(Path("plan/plan.json").read_bytes()).steps
            assert [step.phase for step in steps] == PHASES
            expand, hold, shift, schedules, counters, contract = steps
            assert {one.name for one in expand.changes} == {"SHOP", "COUNTS"}

            async def verified(step: Step) -> tuple[int, list[str]]:
                return await asyncio.to_thread(verify, server, step.number)

            await take(expand, server, side)
            await publishers.some()
            last = await expecting(side, last)  # room changes nothing for anybody
            assert hold.title == "Hold publishers that expect a last sequence"
            assert await verified(hold) == (0, [])
            await take(shift, server, side)
            await publishers.some()
            assert await verified(shift) == (0, [])
            # Who does not wait is refused, and has lost nothing: no message was stored.
            assert await expecting(side, last) == -10071
            new = await expecting(side, 0)
            assert await expecting(side, new) > new

            code, lines = await verified(schedules)
            assert (code, len(lines)) == (1, 2)
            assert "with Nats-Schedule-Target: work.eu" in lines[0]
            assert "with Nats-Schedule-Target: work.us" in lines[1]
            await schedule(side, 1, "work.eu", SOON)
            await schedule(side, 2, "work.us")
            assert await verified(schedules) == (0, [])

            code, lines = await verified(counters)
            assert (code, len(lines)) == (1, 1)
            before = await value(side, "visits.eu")
            assert (
                f"counter visits.eu holds {before}, of which counts.eu lacks {before}" in lines[0]
            )
            await say(side, lines[0])
            await publishers.some()
            assert await verified(counters) == (0, [])

            await take(contract, server, side)
            await publishers.some()
            assert await verified(contract) == (0, [])
            assert await expecting(side, new) == -10071  # as ever, by the new name
        fired = await side.stored("SHOP", "work.eu")
        assert fired["jobs.eu"] == fired["jobs.us"] == 0
        assert (fired["stock.eu"], fired["store.eu"]) == (3, 2)
        assert fired["lots.eu"] + fired["bulk.eu"] == publishers.batched
        assert await value(side, "counts.eu") == publishers.added

    async def run(server: NatsServer) -> None:
        async with shop(server, SHOP, COUNTS) as side:
            await carry_out(server, side)

    with nats_server("http: 127.0.0.1:-1\n" + CONFIG % "") as server:
        asyncio.run(run(server))
