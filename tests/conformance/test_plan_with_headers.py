"""A plan carried out on a real server by publishers that hold on to subjects.

They do what the plan says, and nothing is lost or doubled; who does not is refused, as foretold.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
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

pytestmark = [pytest.mark.server, pytest.mark.slow]  # test_headers.py has the quick cases

MAPPINGS = """
mappings { "stock.*": "store.$1", "jobs.*": "work.$1", "lots.*": "bulk.$1" }
"""
SHOP: dict[str, Any] = {
    "name": "SHOP",
    "subjects": ["stock.*", "plans.*", "jobs.*", "lots.*"],
    "allow_msg_schedules": True,
    "allow_atomic": True,
}
FORETOLD = {
    "condition-fails",
    "schedule-not-mapped",
    "schedule-target-moves",
}
"""What stops the plan; with room for the new names no batch goes to another stream."""


def plan(server: NatsServer, *more: str) -> Any:
    login = ("--server", server.url, "--user", "shop", "--password", "p")
    asked = ("--stream", "SHOP", "--candidate", "new.conf", "--account", "SHOP", "--out", "plan")
    _, out, err = nats_transform("plan", *asked, *login, "--stages", "100", "--json", *more)
    assert out, err
    return json.loads(out)


def ingest(server: NatsServer) -> None:
    login = ("--server", server.url, "--user", "shop", "--password", "p")
    assert nats_transform("ingest", "--stream", "SHOP", *login)[0] == 0


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


async def schedule(side: Side, target: str, seconds: int) -> None:
    at = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("@at %Y-%m-%dT%H:%M:%SZ")
    answer = await publish(side, "plans.1", Schedule=at, Schedule_Target=target)
    assert "error" not in answer


def test_nothing_is_lost_or_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new.conf").write_text(CONFIG % MAPPINGS)

    async def run(server: NatsServer) -> None:
        async with shop(server, SHOP) as side:
            last = await expecting(side, 0)
            last = await expecting(side, last)
            await schedule(side, "jobs.eu", 3600)
            assert await batch(side, "lots.eu", "first", 3) == []
            await asyncio.to_thread(ingest, server)

            refused = await asyncio.to_thread(plan, server)
            assert {one["code"] for one in refused["blocked"]} == FORETOLD
            accepted = [{"code": code, "reason": "as the plan says"} for code in FORETOLD]
            Path("accept.yaml").write_text(json.dumps(accepted))
            await asyncio.to_thread(plan, server, "--accept", "accept.yaml")
            steps = Plan.model_validate_json(Path("plan/plan.json").read_bytes()).steps
            assert [step.phase for step in steps] == ["expand", "shift", "contract"]
            (told,) = (step.programs for step in steps if step.phase == "shift")
            assert "publishers that expect a last sequence must wait" in told
            assert "schedules must be published again" in told

            await take(steps[0], server, side)
            last = await expecting(side, last)  # room changes nothing for anybody
            await take(steps[1], server, side)
            # Who does not wait is refused, and has lost nothing: no message was stored.
            assert await expecting(side, last) == -10071
            new = await expecting(side, 0)
            assert await expecting(side, new) > new
            await schedule(side, "work.eu", 1)
            assert await batch(side, "lots.eu", "second", 3) == []
            fired = await side.stored("SHOP", "work.eu")
            assert fired == Counter(
                {"stock.eu": 3, "store.eu": 2, "work.eu": 1, "lots.eu": 3, "bulk.eu": 3}
            )
            await take(steps[2], server, side)
            assert await expecting(side, new) == -10071  # as ever, by the new name
            assert await side.stored("SHOP") == fired

    with nats_server(CONFIG % "") as server:
        asyncio.run(run(server))
