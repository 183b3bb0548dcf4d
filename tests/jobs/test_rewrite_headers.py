"""Schedules that move with their stream, by export and replay, and fire on a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from jobs.errors import JobError
from jobs.jetstream.process import NatsServer, nats_server
from jobs.replay import ReplayResult, replay
from jobs.settings.connection import NatsSettings
from jobs.settings.export import ExportSettings
from jobs.settings.replay import ReplaySettings
from tests.support.backups import Entry
from tests.support.command import printed
from tests.support.exporting import Exporting, contents
from tests.support.refused import refused
from tests.support.stream_backups import messages_of, restore, state_of_stream
from tests.support.streams import Stream

pytestmark = pytest.mark.server
BLOCK = b"NATS/1.0\r\n"


PAST = b"@at 2020-01-01T00:00:00Z"  # so it fires as soon as a stream has it


def made(target: str) -> list[Entry]:
    """Messages of a stream: a schedule that waits, and two others."""
    block = BLOCK + b"Nats-Schedule: %b\r\nA:odd\r\nNats-Schedule-Target:%b\r\n\r\n"
    return [
        (b"plans.1", 1_700_000_000_000_000_001, 1, block % (PAST, target.encode()), b"planned"),
        (b"plans.none", 1_700_000_000_000_000_002, 2, BLOCK + b"A:1\r\n\r\n", b"no plan"),
        (b"jobs.now", 1_700_000_000_000_000_003, 3, b"", b"x"),
    ]


FIRED: Entry = (
    b"jobs.eu", 1_700_000_000_000_000_004, 4,
    BLOCK + b"A:odd\r\nNats-Scheduler: plans.1\r\nNats-Schedule-Next: purge\r\n\r\n", b"planned",
)  # fmt: skip
MAPPING = {
    "jobs.*": [{"subject": "work.$1"}],
    "two.*": [{"subject": "one.$1", "weight": 50}, {"subject": "other.$1", "weight": 50}],
}
PLANS = {"name": "PLANS", "subjects": ["plans.*", "jobs.*", "two.*"], "allow_msg_schedules": True}


class Planned(Exporting):
    """An archived stream with schedules, transformed: jobs become work."""

    def __init__(self, folder: Path, target: str = "jobs.eu", *more: Entry) -> None:
        self.messages = [*made(target), *more]
        last = len(self.messages)
        super().__init__(folder, MAPPING, messages=self.messages, config=PLANS, last_seq=last)

    def replay(self, server: NatsServer, to: str, **settings: Any) -> ReplayResult:
        nats = NatsSettings(servers=server.url)
        return replay(ReplaySettings(to=to, server=nats, **self.settings, **settings))


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with nats_server() as running:
        yield running


def new_stream(server: NatsServer, name: str, **config: Any) -> None:
    async def ask(js: Any) -> None:
        given = {"name": name, "subjects": ["plans.*", "work.*", "one.*", "other.*"]} | config
        answer = await js._nc.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(given).encode())
        assert "error" not in json.loads(answer.data), answer.data

    Stream(server, name).run(ask)


def rows(server: NatsServer, name: str) -> dict[int, dict[str, Any]]:
    found = messages_of(server.url, state_of_stream(server.url, name))
    return {row["seq"]: row for row in found}


def wait_for(server: NatsServer, stream: str, subject: str) -> None:
    async def wait(js: Any) -> None:
        sub = await js.subscribe(subject, stream=stream, ordered_consumer=True)
        await sub.next_msg(timeout=60)

    Stream(server, stream).run(wait)


def test_an_exported_schedule_fires_under_its_new_target(
    server: NatsServer, tmp_path: Path
) -> None:
    planned = Planned(tmp_path)
    result = planned.export(rewrite_headers=True)
    assert (result.schedules, result.rewritten) == (1, {"Nats-Schedule-Target": 1})
    assert result.findings == []
    restore(server.url, Path(planned.place))
    wait_for(server, "PLANS", "work.eu")
    after = rows(server, "PLANS")
    assert {seq: (row["subject"], row["data"]) for seq, row in after.items()} == {
        2: (b"plans.none", b"no plan"),
        3: (b"work.now", b"x"),
        4: (b"work.eu", b"planned"),
    }


def test_every_other_byte_stays(tmp_path: Path) -> None:
    """Also without the option: then no header changes."""
    odd = (
        b"Nats-Schedule: %b\r\nX: \xff\xfe\r\nnats-schedule-target: jobs.eu\r\n"
        b"Nats-Schedule-Target:  jobs.\xff\r\nNats-Schedule-Target: two.eu\r\nno colon\r\n"
    ) % PAST
    block = BLOCK + odd + b"Nats-Schedule-Source: jobs.last\r\n\r\n"
    later: Entry = (b"plans.2", FIRED[1], 4, block, b"Nats-Schedule-Target: x")
    planned = Planned(tmp_path, "jobs.eu", later)
    export = ("export", "--stream", "PLANS", "--warehouse", tmp_path / "warehouse")
    export += ("--original", planned.backup, "--to-backup")
    out = printed(*export, tmp_path / "as-they-were")
    assert "2 messages have a schedule, whose target doesn't change; --rewrite-headers" in out
    moved = [(m[0].replace(b"jobs", b"work"), *m[1:]) for m in planned.messages]
    assert contents(tmp_path / "as-they-were")[1] == moved
    out = printed(*export, planned.place, "--rewrite-headers")
    assert "rewrote Nats-Schedule-Target in 2 messages" in out
    assert "rewrote Nats-Schedule-Source in 1 message" in out
    replaced = {
        b"Schedule-Target:jobs.eu": b"Schedule-Target:work.eu",
        b"Schedule-Target:  jobs.\xff": b"Schedule-Target:  work.\xff",
        b"jobs.last": b"work.last",
    }

    def rewritten(block: bytes) -> bytes:
        for old, new in replaced.items():
            block = block.replace(old, new)
        return block

    assert planned.exported()[1] == [(*m[:3], rewritten(m[3]), m[4]) for m in moved]


def test_what_cannot_be_rewritten_stops_the_export(tmp_path: Path) -> None:
    planned = Planned(tmp_path, "two.eu")
    examples = re.compile("^sequence 1: .*Nats-Schedule-Target.*'two.eu'")
    with refused(JobError, "export-headers-fixed", what="1 schedule", examples=examples):
        planned.export(rewrite_headers=True)
    assert not (tmp_path / "new").exists()
    assert planned.export().schedules == 1


def test_a_schedule_that_fired_does_not_fire_again(server: NatsServer, tmp_path: Path) -> None:
    planned = Planned(tmp_path, "jobs.eu", FIRED)
    result = planned.export(rewrite_headers=True)
    assert (result.schedules, result.rewritten) == (1, {})
    assert [one.code for one in result.findings] == ["schedules"]
    # A replay sets it aside.
    new_stream(server, "NEW", allow_msg_schedules=True)
    replayed = planned.replay(server, "NEW", rewrite_headers=True)
    assert (replayed.schedules, replayed.acting, replayed.rewritten) == (1, 0, {})
    assert (replayed.refusals, replayed.sent) == ([], 4)
    first = rows(server, "NEW")[1]["headers"]
    assert {"name": b"Nats-Transform-Original-Nats-Schedule", "value": PAST} in first


def test_a_replayed_schedule_fires_under_its_new_target(server: NatsServer, tmp_path: Path) -> None:
    planned = Planned(tmp_path)
    new_stream(server, "PLAIN")
    (refusal,) = planned.replay(server, "PLAIN", rewrite_headers=True).refusals
    assert refusal.message == "stream PLAIN takes no schedules (allow_msg_schedules)"
    Stream(server, "PLAIN").run(lambda js: js.delete_stream("PLAIN"))

    new_stream(server, "NEW", allow_msg_schedules=True)
    dry = planned.replay(server, "NEW", rewrite_headers=True, dry_run=True)
    assert (dry.schedules, dry.acting, dry.rewritten) == (1, 1, {"Nats-Schedule-Target": 1})
    out = printed(
        *("replay", "--stream", "PLANS", "--to", "NEW", "--server", server.url),
        *("--warehouse", str(tmp_path / "warehouse"), "--rewrite-headers"),
    )
    assert "Nats-Schedule-Target rewritten in 1 message" in out
    wait_for(server, "NEW", "work.eu")
    # It is known by the header that the server copied: nothing is sent twice.
    again = planned.replay(server, "NEW", rewrite_headers=True)
    assert (again.sent, again.already) == (0, 3)
    stored = [(row["subject"], row["data"]) for row in rows(server, "NEW").values()]
    assert sorted(stored) == [
        (b"plans.none", b"no plan"), (b"work.eu", b"planned"), (b"work.now", b"x"),
    ]  # fmt: skip


def test_a_replay_leaves_out_what_cannot_be_rewritten(server: NatsServer, tmp_path: Path) -> None:
    planned = Planned(tmp_path, "two.eu")
    new_stream(server, "NEW", allow_msg_schedules=True)
    (refusal,) = planned.replay(server, "NEW", rewrite_headers=True).refusals
    assert (refusal.reason, refusal.allow) == ("schedule", "skips")
    wanted = "1 message has a schedule that cannot be rewritten (sequence 1: Nats-Schedule-Target"
    assert refusal.message.startswith(wanted)
    result = planned.replay(server, "NEW", rewrite_headers=True, allow={"skips"})
    assert (result.sent, result.not_sent["schedule"], result.acting) == (2, 1, 0)
    # Without the option it is data, and acts no more.
    assert planned.replay(server, "NEW").sent == 1


@pytest.mark.parametrize(
    "more", [{"messages": "archived"}, {"simulated": "S", "config": "c.json", "original": None}]
)
def test_only_transformed_headers_can_be_rewritten(more: dict[str, Any]) -> None:
    given = {"stream": "S", "to_backup": "new", "original": "old", "rewrite_headers": True} | more
    with refused(ValidationError, "export-headers-simulated"):
        ExportSettings.model_validate(given)
