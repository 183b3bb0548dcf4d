"""Headers that name subjects or hold a position in one, on a real nats-server.

A dry run of what was archived before the mappings change finds what then breaks.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from tests.conformance.test_account import reload
from tests.conformance.test_regrets import Side
from tests.conformance.test_stream_features import CONFIG, batch, codes, publish, shop
from tests.support.awaiting import awaited
from tests.support.command import findings, nats_transform

pytestmark = pytest.mark.server

MAPPINGS = """
mappings {
  "stock.*": "store.$1"
  "pay.*": "paid.$1"
  "bills.*": "invoices.$1"
  "jobs.*": "work.$1"
  "keep.*": "kept.$1"
  "visits.*": "counts.$1"
  "lots.*": "bulk.$1"
}
"""
STOCK = {"name": "STOCK", "subjects": ["stock.*", "store.*", "still.*", "bills.*", "invoices.*"]}
PAY, PAID = {"name": "PAY", "subjects": ["pay.*"]}, {"name": "PAID", "subjects": ["paid.*"]}
PLANS = {
    "name": "PLANS",
    "subjects": ["plans.*", "jobs.*", "work.*", "stay.*"],
    "allow_msg_schedules": True,
}
KEEP = {
    "name": "KEEP",
    "subjects": ["keep.*", "kept.*"],
    "subject_transform": {"src": "kept.*", "dest": "keep.$1"},
}
VISITS = {"name": "VISITS", "subjects": ["visits.*", "counts.*"], "allow_msg_counter": True}
APART = {"name": "APART", "sources": [{"name": "VISITS"}], "allow_msg_counter": True}
TOTAL = [{"src": f"{name}.*", "dest": "total.$1"} for name in ("visits", "counts")]
SUM = APART | {"name": "SUM", "sources": [{"name": "VISITS", "subject_transforms": TOTAL}]}
LOTS = {"name": "LOTS", "subjects": ["lots.*"], "allow_atomic": True}
BULK = {"name": "BULK", "subjects": ["bulk.*"]}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NatsServer]:
    monkeypatch.chdir(tmp_path)
    Path("new.conf").write_text(CONFIG % MAPPINGS)
    with nats_server(CONFIG % "") as running:
        yield running


OF_HEADERS = {
    *("condition-fails", "ids-forgotten", "schedule-target-moves", "header-not-mapped"),
    *("counted-twice", "batch-split"),
}


def _found(server: NatsServer, stream: str, *more: str) -> dict[tuple[str, str], Any]:
    """What a dry run finds of the stream as it is now: its findings about headers."""
    login = ("--server", server.url, "--user", "shop", "--password", "p")
    code, _, err = nats_transform("ingest", "--stream", stream, *login)
    assert code == 0, err
    asked = ("--candidate", "new.conf", "--account", "SHOP", "--fail-on", "never")
    told = findings("dry-run", "--stream", stream, *asked, *login, *more)
    return {(f["code"], f["about"]): f for f in told if f["code"] in OF_HEADERS}


async def found(server: NatsServer, stream: str, *more: str) -> dict[tuple[str, str], Any]:
    return await asyncio.to_thread(_found, server, stream, *more)


@awaited
async def test_a_condition_is_checked_under_the_new_name(server: NatsServer) -> None:
    async with shop(server, STOCK) as side:

        async def asked(subject: str, expected: int, **more: str) -> Any:
            more |= {"Expected_Last_Subject_Sequence": str(expected)}
            answer = await publish(side, subject, **more)
            return answer.get("error", {}).get("err_code", "stored")

        assert [await asked("stock.eu", n) for n in (0, 1, 2)] == ["stored"] * 3
        assert await asked("still.eu", 0) == "stored"
        await publish(side, "stock.us")
        told = await found(server, "STOCK")
        assert list(told) == [("condition-fails", "")]
        condition = told["condition-fails", ""]
        assert (condition["messages"], condition["subjects"]) == (3, 1)
        assert condition["examples"][0]["after"] == "store.eu"
        reload(server, CONFIG % MAPPINGS, 1)
        assert await asked("stock.eu", 3) == 10071
        # Who expects that there is nothing yet makes it again.
        assert await asked("stock.eu", 0) == "stored"
        assert await asked("still.eu", 4) == "stored"
        # A condition on a subject that a header names stays with the old name, for ever.
        named = {"Expected_Last_Subject_Sequence_Subject": "stock.eu"}
        assert [await asked("stock.eu", 3, **named) for _ in range(2)] == ["stored"] * 2


@awaited
async def test_a_condition_keeps_its_history_if_the_stream_gives_the_old_name_back(
    server: NatsServer,
) -> None:
    async with shop(server, KEEP) as side:
        for last in (0, 1, 2):
            if last == 1:
                assert await found(server, "KEEP") == {}
                reload(server, CONFIG % MAPPINGS, 1)
            asked = {"Expected_Last_Subject_Sequence": str(last)}
            assert "error" not in await publish(side, "keep.eu", **asked)
        assert await side.stored("KEEP") == {"keep.eu": 3}


@awaited
async def test_ids_that_another_stream_does_not_know(server: NatsServer) -> None:
    async with shop(server, PAY, PAID, STOCK) as side:
        for subject in ("pay.1", "bills.1"):
            assert "duplicate" not in await publish(side, subject, Msg_Id="1")
            assert (await publish(side, subject, Msg_Id="1"))["duplicate"]
        assert list(await found(server, "STOCK")) == []
        told = await found(server, "PAY")
        assert list(told) == [("ids-forgotten", "stream PAID")]
        assert told["ids-forgotten", "stream PAID"]["messages"] == 1
        reload(server, CONFIG % MAPPINGS, 1)
        assert "duplicate" not in await publish(side, "pay.1", Msg_Id="1")
        # In one stream an id is known under every subject.
        assert (await publish(side, "bills.1", Msg_Id="1"))["duplicate"]
        assert await side.stored("PAID") == {"paid.1": 1}
        assert await side.stored("STOCK") == {"bills.1": 1}


async def counts(side: Side, stream: str, subject: str, value: str) -> None:
    """Waits until a counter has a value; pytest's timeout ends it."""
    asked, told = json.dumps({"last_by_subj": subject}).encode(), None
    while told != value:
        reply = await side.client.request(f"$JS.API.STREAM.MSG.GET.{stream}", asked, 5)
        found = json.loads(reply.data).get("message")
        told = found and json.loads(base64.b64decode(found["data"]))["val"]


@awaited
async def test_a_sum_counts_twice_what_is_added_again(server: NatsServer) -> None:
    async with shop(server, VISITS, SUM, APART) as side:
        for subject in ("visits.eu", "visits.us"):
            await publish(side, subject, Incr="+6")
        told = await found(server, "VISITS")
        assert list(told) == [("counted-twice", "stream SUM")]
        assert told["counted-twice", "stream SUM"]["messages"] == 2
        # The cure: what is added again is taken away before.
        await publish(side, "visits.us", Incr="-6")
        reload(server, CONFIG % MAPPINGS, 1)
        assert (await publish(side, "visits.eu", Incr="+1"))["val"] == "1"
        await counts(side, "SUM", "total.eu", "7")
        for subject in ("counts.eu", "counts.us"):
            await publish(side, subject, Incr="+6")
        await counts(side, "SUM", "total.eu", "13")
        await counts(side, "SUM", "total.us", "6")
        await counts(side, "APART", "counts.eu", "7")


@awaited
async def test_a_batch_that_moves_to_a_stream_without_batches(server: NatsServer) -> None:
    async with shop(server, LOTS, BULK) as side:
        assert await batch(side, "lots.eu", "whole", 3) == []
        for subject in ("lots.eu", "lots.us"):
            await publish(side, subject)
        split = (await found(server, "LOTS"))["batch-split", "stream LOTS"]
        assert (split["messages"], split["subjects"]) == (3, 1)
        reload(server, CONFIG % MAPPINGS, 1)
        assert set(await batch(side, "lots.eu", "refused", 3)) == {10174}
        assert "error" not in await publish(side, "lots.us")


def at(seconds: int) -> str:
    """A schedule for so many seconds from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("@at %Y-%m-%dT%H:%M:%SZ")


@awaited
async def test_a_schedule_whose_target_moves(server: NatsServer, tmp_path: Path) -> None:
    async with shop(server, PLANS) as side:

        async def plan(number: int, target: str, seconds: int = 3600) -> None:
            asked = {"Schedule": at(seconds), "Schedule_Target": target}
            assert "error" not in await publish(side, f"plans.{number}", **asked)

        await plan(1, "stay.eu")
        assert await found(server, "PLANS") == {}
        await plan(2, "jobs.eu")
        told = await found(server, "PLANS")
        assert list(told) == [("schedule-target-moves", "header Nats-Schedule-Target")]
        (target,) = told.values()
        assert (target["messages"], target["subjects"]) == (1, 1)
        assert (await found(server, "PLANS", "--exact")).keys() == told.keys()
        (example,) = target["examples"]
        assert (example["subject"], example["after"]) == ("jobs.eu", "work.eu")
        reload(server, CONFIG % MAPPINGS, 1)
        assert "error" not in await publish(side, "jobs.us")
        await plan(3, "jobs.eu", seconds=1)
        stored = await side.stored("PLANS", "jobs.eu")
        assert stored == {"plans.1": 1, "plans.2": 1, "jobs.eu": 1, "work.us": 1}
    assert codes(tmp_path, PLANS) == {"schedule-not-mapped"}
    assert codes(tmp_path, PLANS | {"allow_msg_schedules": False}) == set()


@awaited
async def test_a_schedule_whose_source_moves(server: NatsServer) -> None:
    """It goes on publishing what came last under the old name."""
    async with shop(server, PLANS) as side:

        async def plan(source: str) -> None:
            asked = {"Schedule": "@every 1s", "Schedule_Target": "stay.eu"}
            answer = await publish(side, "plans.1", **asked, Schedule_Source=source)
            assert "error" not in answer, answer

        await side.client.request("stay.last", b"kept", 5)
        await plan("stay.last")
        assert await found(server, "PLANS") == {}
        await side.client.request("jobs.last", b"old", 5)
        await plan("jobs.last")
        about = "header Nats-Schedule-Source"
        assert list(await found(server, "PLANS")) == [("schedule-target-moves", about)]
        reload(server, CONFIG % MAPPINGS, 1)
        await side.client.request("jobs.last", b"new", 5)
        before = (await side.stored("PLANS", "work.last"))["stay.eu"]
        while (await side.stored("PLANS"))["stay.eu"] < before + 2:  # pytest's timeout ends it
            await asyncio.sleep(0.1)
        fired = await side.client.jetstream().get_last_msg("PLANS", "stay.eu")
        assert fired.data == b"old"


@awaited
async def test_a_schedule_whose_target_the_stream_renames(
    server: NatsServer, tmp_path: Path
) -> None:
    """The cure: the scheduler and all other publishers come to the same name."""
    renamed = PLANS | {"subject_transform": {"src": "jobs.*", "dest": "work.$1"}}
    async with shop(server, renamed) as side:
        asked = {"Schedule": at(3), "Schedule_Target": "jobs.eu"}
        assert "error" not in await publish(side, "plans.1", **asked)
        assert await found(server, "PLANS") == {}
        reload(server, CONFIG % MAPPINGS, 1)
        assert "error" not in await publish(side, "jobs.us")
        assert await side.stored("PLANS", "work.eu") == {"work.eu": 1, "work.us": 1}
    assert codes(tmp_path, renamed) == set()


@awaited
async def test_headers_that_name_subjects(server: NatsServer) -> None:
    """The server does nothing with them: whoever reads them answers under the old name."""
    async with shop(server, STOCK) as side:
        for answer in ("jobs.eu", "jobs.us", "elsewhere"):
            await side.client.request("still.eu", b"", 5, headers={"Answer-To": answer})
        assert await found(server, "STOCK", "--subject-header", "Other") == {}
        told = await found(server, "STOCK", "--subject-header", "Answer-To")
        assert list(told) == [("header-not-mapped", "header Answer-To")]
        (header,) = told.values()
        assert (header["messages"], header["subjects"]) == (2, 2)
        reload(server, CONFIG % MAPPINGS, 1)
        headers = {"Answer-To": "jobs.eu"}
        await side.client.request("stock.eu", b"", 5, headers=headers)
        get = await side.client.request(
            "$JS.API.STREAM.MSG.GET.STOCK", b'{"last_by_subj": "store.eu"}', 5
        )
        block = json.loads(get.data)["message"]["hdrs"]
        assert base64.b64decode(block).endswith(b"Answer-To: jobs.eu\r\n\r\n")
