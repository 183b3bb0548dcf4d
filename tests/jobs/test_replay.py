"""Replay: every message once, in order, as it was; however often it is run or stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import KeyValueConfig, StreamSource, SubjectTransform
from nats.js.errors import APIError, NotFoundError

from jobs.errors import ArchiveError, JobError
from jobs.jetstream.chain import Chain, StreamLost
from jobs.jetstream.control import outgoing
from jobs.jetstream.headers import parse_headers
from jobs.jetstream.process import nats_server
from jobs.jetstream.target import Target
from jobs.replay import ReplayResult, _Run, replay
from jobs.settings.connection import NatsSettings
from jobs.settings.replay import ReplaySettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import TRANSFORMED
from jobs.warehouse.staging import Staged, publish
from jobs.warehouse.tables import open_table
from nats_transform.kernel.coverage import Coverage
from tests.support.archive import staged
from tests.support.command import nats_transform
from tests.support.jobs import archived, dumped, ingested, sifting, transformed
from tests.support.refused import refused
from tests.support.rules import mappings
from tests.support.saying import says
from tests.support.stream_backups import messages_of, state_of_stream
from tests.support.streams import Stream, new_stream

pytestmark = pytest.mark.server


NOON_NS = 1767355200_000000000
Message = dict[str, Any]


def message(seq: int, subject: str = "x", **more: Any) -> Message:
    """A transformed message; its subject is unmatched unless `mapped_subject` is given."""
    row: Message = dict.fromkeys(TRANSFORMED.rows.names)
    fate = "mapped" if more.get("mapped_subject") else "unmatched"
    return row | {
        "stream": "OLD", "seq": seq, "ts": datetime(2026, 1, 2, 12, tzinfo=UTC),
        "ts_ns": NOON_NS + seq, "day": date(2026, 1, 2), "subject": subject, "fate": fate,
        "headers": [], "data": b"%d" % seq, "mapping_version": VERSION, **more,
    }  # fmt: skip


VERSION = "a" * 64
Tables = Callable[..., Warehouse]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Makes a warehouse whose stream has these transformed messages, and no others.

    They are in two files that overlap, and one of them is not in order.
    """

    def make(rows: Sequence[Message], stream: str = "OLD") -> Warehouse:
        warehouse = Warehouse(dir=tmp_path / "warehouse")
        table = open_table(warehouse, TRANSFORMED, create=True)
        named = [row | {"stream": stream} for row in rows]
        parts = [staged(table, part) for part in (named[::2], named[1::2][::-1]) if part]
        files = tuple(file for part in parts for file in part.data_files)
        publish(table, Staged("", files), stream, replace=True, properties={})
        return warehouse

    return make


COUNT = 200
SENT = [n for n in range(1, COUNT + 1) if n % 5 in (0, 1, 2)]


@pytest.fixture
def warehouse(tables: Tables) -> Callable[[Any], Warehouse]:
    """A warehouse with transformed messages of every fate for a target stream."""

    def make(target: Any) -> Warehouse:
        fates = ["mapped", "mapped", "unmatched", "lost", "invalid"]
        name = target.name
        rows = [
            message(
                n,
                f"{name}.unmatched",
                mapped_subject=f"{name}.m.{n % 3}" if fates[n % 5] == "mapped" else None,
                fate=fates[n % 5],
                headers=[("B", str(n)), ("A", "x")],
                data=b"\x00%d" % n,
            )
            for n in range(1, COUNT + 1)
        ]
        rows[0] |= {"headers_raw": b"NATS/1.0\r\nB:1\r\n\r\n", "mapped_subject": f"{name}.\udcff"}
        return tables(rows)

    return make


def stored(
    target: Stream, own: bool = False
) -> list[tuple[bytes, list[tuple[bytes, bytes]], bytes]]:
    """Subject, headers and payload of each message of a stream, in order.

    Without `own`, only the headers that came from the archive.
    """
    url, found = target.server.url, []
    for row in messages_of(url, state_of_stream(url, target.name)):
        block, pairs = row["headers_raw"], [(p["name"], p["value"]) for p in row["headers"]]
        kept = [p for p in (parse_headers(block) if block else pairs) if own or p[0] not in ADDED]
        found.append((row["subject"], kept, row["data"]))
    return found


ADDED = {
    b"Nats-Transform-Source", b"Nats-Transform-Time", b"Nats-Msg-Id", b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Sequence", b"Nats-Expected-Last-Msg-Id",
}  # fmt: skip


def test_the_page_names_the_headers_that_are_added(tables: Tables, stream: Any) -> None:
    assert run(tables([message(n, f"{stream.name}.x") for n in (1, 2, 3)]), stream).sent == 3
    first, *others = [
        {name.decode() for name, _ in headers} for _, headers, _ in stored(stream, True)
    ]
    page = Path(__file__).parents[2].joinpath("docs/move-a-stream.md").read_text()
    table = page.partition("### Headers")[2].partition("Other headers")[0]
    named = {
        name for row in table.split("\n| ")[1:] for name in re.findall(r"`(Nats-[\w-]+)`", row)
    }
    assert named == {name.decode() for name in ADDED} == first.union(*others)
    assert named - first == {"Nats-Expected-Last-Msg-Id"}
    assert [named - one for one in others] == [{"Nats-Expected-Last-Sequence"}] * 2


def test_a_target_that_removes_messages_in_mid_run(tables: Tables, stream: Any) -> None:
    """It kept everything when the replay looked at it; the command says so, and exits with 1."""
    archive = tables([message(n, f"{stream.name}.x") for n in range(1, 1501)])

    def limit() -> None:
        while stream.info().state.messages < 300:
            time.sleep(0.01)
        stream.update(max_msgs=50)

    with ThreadPoolExecutor() as pool:
        limited = pool.submit(limit)
        code, out, _ = nats_transform(
            *("replay", "--stream", "OLD", "--to", stream.name, "--server", stream.server.url),
            *("--warehouse", str(archive.dir), "--rate", "1000", "--json"),
        )
        limited.result()
    result = ReplayResult.model_validate_json(out)
    assert (result.sent, result.target_messages, result.removed) == (1500, 50, 1450)
    assert (code, result.refusals) == (1, [])
    assert result.fails("refused")


def test_a_target_that_is_created_again_in_mid_run(tables: Tables, stream: Any) -> None:
    """Nothing is sent into the new stream, which nobody checked."""
    archive = tables([message(n, f"{stream.name}.x") for n in range(1, 1501)])
    config = {
        "subjects": [f"{stream.name}.>"],
        "subject_transform": SubjectTransform(src=">", dest="moved.>"),
    }

    async def make_anew(js: Any) -> None:
        while (await js.stream_info(stream.name)).state.messages < 300:
            assert process.poll() is None
            await asyncio.sleep(0.01)
        # Held meanwhile, or it could look while there is no stream.
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            await js.delete_stream(stream.name)
            await js.add_stream(name=stream.name, **config)
        finally:
            os.killpg(process.pid, signal.SIGCONT)

    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "nats_transform", "replay", "--stream", "OLD"),
            *("--to", stream.name, "--server", stream.server.url, "--rate", "1000"),
            *("--warehouse", str(archive.dir)),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    stream.run(make_anew)
    _, said = process.communicate()
    assert (process.returncode, said.count("\n")) == (2, 1)
    assert says(said, "replay-recreated")
    assert stored(stream) == []


@pytest.mark.parametrize("limit", [None, 100])
def test_a_target_that_loses_what_it_stored(
    warehouse: Any, stream: Any, monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """Each message counts once, however often it is sent; what changed meanwhile is looked at."""
    tables, losses = warehouse(stream), [7]
    mapped = run(tables, stream, fates={"mapped"}).sent

    class Losing(Chain):
        async def settle(self) -> None:
            await super().settle()
            if losses:
                last = stream.info().state.last_seq
                stream.delete(*range(last, last - losses.pop(), -1))
                if limit:
                    stream.update(max_msgs=limit)
                raise StreamLost("refused", reason="it lost stored messages")

    monkeypatch.setattr("jobs.replay.Chain", Losing)
    monkeypatch.setattr(stream, "run", lambda work, run=stream.run: in_a_thread(run, work))
    if limit:
        with refused(JobError, "replay-lost-again", reasons=re.compile("removes messages")):
            run(tables, stream)
    else:
        result = run(tables, stream)
        assert (result.sent, result.already) == (len(SENT) - mapped, mapped)
        assert result.target_messages == len(SENT)


def in_a_thread(work: Callable[..., Any], *args: Any) -> Any:
    """What a function returns that no running event loop may call."""
    with ThreadPoolExecutor() as pool:
        return pool.submit(work, *args).result()


def payloads(target: Stream) -> list[int]:
    return [int(data.strip(b"\x00")) for _, _, data in stored(target)]


def run(warehouse: Warehouse, target: Any, **given: Any) -> ReplayResult:
    server = NatsSettings(servers=target.server.url)
    settings = {"stream": "OLD", "to": target.name, "server": server, "warehouse": warehouse}
    return replay(ReplaySettings(**settings | given))


def reasons(result: ReplayResult) -> dict[str, str]:
    return {refusal.reason: refusal.message for refusal in result.refusals}


def test_twice_stores_once(warehouse: Any, make_stream: Any) -> None:
    target = make_stream(duplicate_window=0.1)
    tables = warehouse(target)
    planned = run(tables, target, dry_run=True)
    assert (planned.sent, planned.dry_run, planned.refusals) == (len(SENT), True, [])
    assert stored(target) == []

    first = run(tables, target, window=7)
    assert (first.sent, first.already, first.breaks, first.removed) == (len(SENT), 0, 0, 0)
    assert first.target_messages == len(SENT)
    assert first.not_sent == {"invalid": COUNT // 5, "lost": COUNT // 5}
    messages = stored(target, own=True)
    assert [data for _, _, data in messages] == [b"\x00%d" % n for n in SENT]
    subject, headers, _ = messages[0]
    assert subject == target.name.encode() + b".\xff"
    msg_id = dict(headers)[b"Nats-Msg-Id"]
    assert headers == [
        (b"Nats-Transform-Source", VERSION.encode() + b" 1 OLD"),
        (b"Nats-Transform-Time", b"2026-01-02T12:00:00.000000001Z"),
        (b"B", b"1"),
        (b"Nats-Expected-Stream", target.name.encode()),
        (b"Nats-Msg-Id", msg_id),
        (b"Nats-Expected-Last-Sequence", b"0"),
    ]
    assert messages[1][0] == f"{target.name}.unmatched".encode()
    assert messages[1][1][2:4] == [(b"B", b"2"), (b"A", b"x")]
    assert messages[1][1][-1] == (b"Nats-Expected-Last-Msg-Id", msg_id)

    second = run(tables, target)
    assert (second.sent, second.already) == (0, len(SENT))
    planned = run(tables, target, dry_run=True)
    assert (planned.sent, planned.already) == (0, len(SENT))
    assert stored(target, own=True) == messages


def test_a_stopped_replay_is_resumed(
    warehouse: Any, make_stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.jetstream.target.FOLDED", 7)
    target = make_stream(max_bytes=20_000, discard="new")
    tables = warehouse(target)
    with refused(JobError, "replay-failed", reason=re.compile("maximum bytes exceeded")):
        run(tables, target)
    before = target.info().state.messages
    assert 0 < before < len(SENT)
    target.run(lambda js: js.update_stream(name=target.name, subjects=[f"{target.name}.>"]))
    result = run(tables, target)
    assert (result.sent, result.already) == (len(SENT) - before, before)
    assert payloads(target) == SENT


def test_a_target_without_room_gets_nothing(tables: Tables, make_stream: Any) -> None:
    target = make_stream(max_msgs=4, discard="new")
    assert run(tables([message(1, f"{target.name}.x")]), target).sent == 1
    archive = tables([message(n, f"{target.name}.x") for n in range(1, 6)])
    for dry_run in (True, False):
        text = reasons(run(archive, target, dry_run=dry_run))["room"]
        assert "has room for 3 more messages (max_msgs), but 4 would come" in text
    assert target.info().state.last_seq == 1
    target.update(max_msgs=5)
    assert run(archive, target).sent == 4


def test_a_rate_is_kept(warehouse: Any, stream: Any) -> None:
    tables = warehouse(stream)
    started = datetime.now(UTC)
    run(tables, stream, rate=100)
    assert (datetime.now(UTC) - started).total_seconds() >= (len(SENT) - 1) / 100


def test_what_cannot_be_replayed(warehouse: Any, stream: Any) -> None:
    tables = warehouse(stream)
    with refused(ArchiveError, "no-stream", stream="NONE"):
        run(tables, stream, to="NONE")
    with refused(JobError, "no-stream-can-have-name"):
        run(tables, stream, to="A B")
    with refused(JobError, "replay-nothing", stream="OTHER"):
        run(tables, stream, stream="OTHER")


def test_mapped_messages_only(warehouse: Any, stream: Any) -> None:
    tables = warehouse(stream)
    mapped = [n for n in range(1, COUNT + 1) if n % 5 in (0, 1)]
    result = run(tables, stream, fates={"mapped"})
    assert result.sent == len(mapped)
    assert result.not_sent["unmatched"] == COUNT // 5
    assert payloads(stream) == mapped
    # The others later, behind them; and none of them twice.
    assert run(tables, stream).sent == COUNT // 5
    assert sorted(payloads(stream)) == SENT


# --- What is refused before the first message is sent ---------------------------------------------

PWN = "ok.a 12 12\r\nNATS/1.0\r\n\r\n\r\nPUB $JS.API.STREAM.DELETE.PRECIOUS 0\r\n\r\n"
HOSTILE = {
    "subject": [
        PWN, "a b", "a\tb", "a\r\nb", "a\x00", "a..b", "a.*", ">", "", "a" * 5000,
        "ok." + "a" * 4060,
    ],
    "captured": ["$JS.API.STREAM.PURGE.PRECIOUS", "$SYS.REQ.SERVER.PING", "$KV.B.x", "other.a"],
    "headers": [
        [("A", "x\r\nNats-Rollup: all")], [("A", "x\ny")], [("", "x")], [("A:B C", "x")],
        [("a\r\n\r\nPUB x 0\r\n", "x")],
    ],
}  # fmt: skip


def test_hostile_archives_send_nothing(tables: Tables, make_stream: Any) -> None:
    """Nothing is sent and nothing on the server changes; each kind is counted and named."""
    precious, target = make_stream(), make_stream(subjects=["ok.>"])
    precious.count(3)
    rows = [message(n, f"ok.{n}") for n in range(1, 4)]
    for subject in HOSTILE["subject"] + HOSTILE["captured"]:
        rows.append(message(len(rows) + 1, subject))
    for headers in HOSTILE["headers"]:
        rows.append(message(len(rows) + 1, "ok.x", headers=headers))
    rows.append(message(len(rows) + 1, "ok.x", data=b"x" * 1_048_576))
    archive = tables(rows)
    for dry_run in (True, False):
        result = run(archive, target, dry_run=dry_run)
        wanted = {reason: len(cases) for reason, cases in HOSTILE.items()} | {"size": 1}
        assert {r: n for r, n in result.not_sent.items() if r in wanted} == wanted
        assert reasons(result).keys() == wanted.keys()
        assert all(text.isprintable() for text in reasons(result).values())
        assert re.search("sequence 4: .*'ok.a 12 12", reasons(result)["subject"])
        assert result.fails("refused")
    assert stored(target) == []
    # Left out, where they are allowed to be; the rest is sent, once.
    for sent in (3, 0):
        result = run(archive, target, allow={"skips"})
        assert (result.refusals, result.sent) == ([], sent)
    assert [s for s, _, _ in stored(target)] == [b"ok.1", b"ok.2", b"ok.3"]
    assert precious.info().state.messages == 3


def test_subjects_with_a_dollar_into_a_stream_for_them(tables: Tables, make_stream: Any) -> None:
    archive = tables([message(1, "$KV.B9.x")])
    exact = make_stream(subjects=["$KV.B9.>"])
    assert run(archive, exact).sent == 1


def test_nothing_is_stored_in_another_stream(tables: Tables, make_stream: Any) -> None:
    """PROD captures what unmatched messages have as subject; the dry run says so, too."""
    prod, target = make_stream(), make_stream()
    archive = tables([message(n, f"{prod.name}.x") for n in range(1, 6)])
    for dry_run in (True, False):
        result = run(archive, target, dry_run=dry_run)
        told = f"5 messages have a subject that stream {target.name} does not take"
        assert told in reasons(result)["captured"]
    assert stored(prod) == stored(target) == []


@pytest.mark.parametrize(
    ("config", "named"),
    [
        pytest.param({"max_msgs_per_subject": 1}, "max_msgs_per_subject", id="per-subject"),
        pytest.param({"max_msgs": 10}, "max_msgs", id="messages"),
        pytest.param({"max_bytes": 10_000}, "max_bytes", id="bytes"),
        pytest.param({"max_age": 3600}, "max_age", id="age"),
        pytest.param({"max_age": 3600, "discard": "new"}, "max_age", id="age-discard-new"),
        pytest.param({"retention": "workqueue"}, "retention workqueue", id="work-queue"),
        pytest.param({"retention": "interest"}, "retention interest", id="interest"),
    ],
)
def test_targets_that_remove_messages(
    tables: Tables, make_stream: Any, config: dict[str, Any], named: str
) -> None:
    target = make_stream(**config)
    archive = tables([message(n, f"{target.name}.x") for n in range(1, 4)])
    text = reasons(run(archive, target))["limits"]
    assert f"removes messages ({named})" in text
    assert "--allow limits" in text
    assert target.info().state.last_seq == 0
    assert run(archive, target, allow={"limits"}).sent == 3


def test_an_old_value_never_becomes_the_latest(tables: Tables, make_stream: Any) -> None:
    target = make_stream(max_msgs_per_subject=1, duplicate_window=0.1)
    archive = tables([message(n, f"{target.name}.k{n % 2}") for n in range(1, 6)])
    first = run(archive, target, allow={"limits"})
    assert (first.sent, first.target_messages, first.removed) == (5, 2, 3)
    again = run(archive, target, allow={"limits"})
    assert (again.sent, again.already, again.target_messages) == (0, 5, 2)
    assert payloads(target) == [4, 5]


def forged(seq: int) -> tuple[bytes, bytes, bytes]:
    """A message of somebody else that says that it is a replayed one."""
    source = f"{VERSION} {seq} OLD"
    return b"x", b"NATS/1.0\r\nNats-Transform-Source: %b\r\n\r\n" % source.encode(), b""


def test_what_the_archive_lacks_was_not_sent(
    tables: Tables, make_stream: Any, tmp_path: Path
) -> None:
    """Forged messages into a target that removes some: before a replay, and while it sends."""
    target, count = make_stream(max_age=3600), 1500
    lines = ({"seq": n, "ts": "2026-01-02T12:00:00Z", "subject": "x"} for n in range(1, count + 1))
    archive = tables([message(n, f"{target.name}.x") for n in range(1, count + 1)])
    ingested(archive, dumped(tmp_path / "dump.jsonl", lines), "OLD")
    target.publish([forged(999_999_999)])

    def forge() -> None:
        until = time.monotonic() + 60
        while target.info().state.messages < 300 and time.monotonic() < until:
            time.sleep(0.01)
        target.publish([forged(999_999_999)])

    with ThreadPoolExecutor() as pool:
        forging = pool.submit(forge)
        result = run(archive, target, allow={"limits"}, rate=1000)
        forging.result()
    assert (result.sent, result.already, result.target_messages) == (count, 0, count + 2)
    assert result.breaks > 0


def test_archived_messages_that_no_transform_took(stream: Any, tmp_path: Path) -> None:
    """Some came after the transform, some are in quarantine: nothing is sent unless allowed."""
    warehouse, dump = Warehouse(dir=tmp_path / "warehouse"), tmp_path / "dump.jsonl"
    rows = [
        {"seq": n, "ts": f"2026-01-0{1 + n % 2}T12:00:00Z", "subject": f"{stream.name}.x"}
        | {"data": str(n)}
        for n in range(1, 10)
    ]

    sift = sifting("by number", lambda seq: seq == 3)
    ingested(warehouse, dumped(dump, rows[:4]), "OLD")
    transformed(warehouse, mappings({}), stream="OLD", sift=sift)
    ingested(warehouse, dumped(dump, rows), "OLD")
    whats = {"quarantined": "1 message of stream OLD is in quarantine", "untransformed": "5 mess"}
    for dry_run in (True, False):
        result = run(warehouse, stream, dry_run=dry_run)
        assert result.fails("refused")
        assert result.not_sent == {"quarantined": 1, "untransformed": 5}
        assert all(reasons(result)[reason].startswith(text) for reason, text in whats.items())
        assert {refusal.allow for refusal in result.refusals} == {"skips"}
    assert payloads(stream) == []
    of_day = run(warehouse, stream, first_day="2026-01-01", dry_run=True)
    assert of_day.not_sent == {"untransformed": 2}
    result = run(warehouse, stream, allow={"skips"})
    assert (result.sent, result.not_sent) == (3, {"quarantined": 1, "untransformed": 5})
    assert payloads(stream) == [1, 2, 4]


def test_other_versions_are_named_safely_and_briefly(tables: Tables, stream: Any) -> None:
    """Whoever publishes into the target chooses their names, and how many there are."""
    block = b"NATS/1.0\r\nNats-Transform-Source: %b 1 OLD\r\n\r\n"
    names = [b"\x1b[31m", b"\xff" * 50, *(b"%d" % n for n in range(50))]
    stream.publish((b"x", block % name, b"") for name in names)
    text = reasons(run(tables([message(1, f"{stream.name}.x")]), stream))["versions"]
    assert f"{len(names)} messages of OLD under another mapping version (" in text
    assert text.isprintable()
    assert len(text) < 300


def test_another_mapping_version_beside_the_first(tables: Tables, stream: Any) -> None:
    rows = [message(n, f"{stream.name}.x") for n in range(1, 11)]
    assert run(tables(rows), stream).sent == 10
    later = tables([row | {"mapping_version": "b" * 64} for row in rows])
    text = reasons(run(later, stream))["versions"]
    assert "10 messages of OLD under another mapping version (aaaaaaaaaaaa)" in text
    assert len(stored(stream)) == 10
    assert run(later, stream, allow={"versions"}).sent == 10
    assert run(later, stream, allow={"versions"}).sent == 0


def test_what_the_target_has_of_an_archive_that_was_replaced(
    tables: Tables, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a wrong dump was removed and the right one ingested: the sequences are the same."""
    monkeypatch.setattr("jobs.jetstream.target.FOLDED", 3)
    rows = [message(n, f"{stream.name}.x") for n in range(1, 11)]
    assert run(tables(rows), stream).sent == 10
    right = tables([row | {"ts_ns": row["ts_ns"] + 10**9 * (row["seq"] > 5)} for row in rows])
    refused = run(right, stream)
    assert (refused.sent, [refusal.allow for refusal in refused.refusals]) == (0, [None])
    assert reasons(refused)["replaced"].startswith(
        f"stream {stream.name} has 5 messages of OLD that this archive has other messages for "
        "(sequence 6 of 2026-01-02T12:00:00.000000006Z, here of 2026-01-02T12:00:01.000000006Z; "
    )
    monkeypatch.setattr("jobs.jetstream.target.TIMES", 4)
    assert "replaced" in reasons(run(right, stream))
    assert run(tables(rows), stream).already == 10
    assert len(stored(stream)) == 10


def test_targets_that_take_nothing_or_change_subjects(
    tables: Tables, make_stream: Any, stream: Any
) -> None:
    mirror = make_stream(mirror=StreamSource(name=stream.name))
    archive = tables([message(1, f"{stream.name}.x")])
    assert "is a mirror" in reasons(run(archive, mirror))["target"]
    transform = SubjectTransform(src="in.*", dest="out.$1")
    changing = make_stream(subjects=["in.*"], subject_transform=transform)
    archive = tables([message(1, "in.x"), message(2, "in.y")])
    text = reasons(run(archive, changing))["ingress"]
    assert "2 messages would be stored under another subject (in.x as out.x; in.y as out.y)" in text
    assert run(archive, changing, allow={"ingress"}).sent == 2
    assert [s for s, _, _ in stored(changing)] == [b"out.x", b"out.y"]


# --- Headers --------------------------------------------------------------------------------------


def test_control_headers_do_not_act_again(tables: Tables, make_stream: Any) -> None:
    target = make_stream(allow_rollup_hdrs=True, allow_msg_ttl=True)
    x = f"{target.name}.x"
    acting = [
        ("Nats-Rollup", "all"), ("Nats-TTL", "1"), ("Nats-Schedule", "@at 2020-01-01T00:00:00Z"),
        ("Nats-Expected-Last-Sequence", "77"), ("Nats-Expected-Stream", "OLD"), ("Nats-Incr", "1"),
        ("nats-rollup", "sub"), ("Nats-Batch-Id", "b"), ("Nats-Stream-Source", "S 1"),
        ("Nats-Trace-Dest", "t"), ("Nats-Trace-Only", "true"), ("Nats-Msg-Id", "same"),
        ("Nats-Transform-Source", VERSION + " 3 OLD"), ("Nats-Of-The-Future", "1"),
    ]  # fmt: skip
    rows = [message(n, x, headers=[*acting, ("Own", "1")]) for n in range(1, 4)]
    rows[2] |= {"headers": [("A", None)]}
    assert run(tables(rows), target).sent == 3
    found = stored(target)
    assert len(found) == 3
    aside = [(b"Nats-Transform-Original-" + n.encode(), v.encode()) for n, v in acting]
    assert found[0][1] == [*aside, (b"Own", b"1")]
    assert found[2][1] == [(b"A", b"")]


def test_a_time_to_live_acts_as_the_server_reads_it(make_stream: Any) -> None:
    """One that is set aside never ends; one that the server refuses would end the replay."""
    stream = make_stream(allow_msg_ttl=True)
    values = [
        "7", "007", "999999999", "1h", "5m0s", "1h0m0s", "90m", "1.5s", "0.5h", "1500ms", "1m30.5s",
        "30s1m", "1s1s", "never", "NEVER", "+1h", ".5h", "5.m", "1h0.000000001s", "1000000us",
        "1d", "1H", "1 h", "-1", "-1h", "+1", "1_0", "0.9s", "999ms", "s", "1.h5", "1e3",
        "9999999h", "999999999h", "always", "1h never",
    ]  # fmt: skip

    async def taken(js: Any) -> list[str]:
        found = []
        for value in values:
            with contextlib.suppress(APIError):
                await js.publish(f"{stream.name}.x", headers={"Nats-TTL": value})
                found.append(value)
        return found

    def acts(value: str) -> bool:
        (line,) = outgoing([b"Nats-TTL: " + value.encode()], frozenset({"ttl"}))
        return line.startswith(b"Nats-TTL")

    assert [value for value in values if acts(value)] == stream.run(taken)


def test_two_archives_into_one_target(tables: Tables, stream: Any) -> None:
    names = ["A", "A:5", "A 5", "A%3A5"]
    for name in names:
        archive = tables([message(n, f"{stream.name}.x") for n in range(1, 4)], name)
    for sent in (3, 0):
        for name in names:
            assert run(archive, stream, stream=name).sent == sent
    assert len(stored(stream)) == 12


def history(server: Any, bucket: str, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Key, value and what its headers say was done, as the bucket's stream keeps them.

    The client's own `history` says "no keys" if the server has sent all before it asks for the
    number that is left.
    """

    async def read(js: Any) -> list[tuple[Any, ...]]:
        state = (await js.stream_info(f"KV_{bucket}")).state
        kept = []
        for seq in range(state.first_seq, state.last_seq + 1):
            with contextlib.suppress(NotFoundError):
                kept.append(await js.get_msg(f"KV_{bucket}", seq))
        operations = ("KV-Operation", "Nats-Marker-Reason")
        return [
            (key, message.data, *((message.headers or {}).get(name) for name in operations))
            for key in keys
            for message in kept
            if message.subject == f"$KV.{bucket}.{key}"
        ]

    return Stream(server, f"KV_{bucket}").run(read)  # type: ignore[no-any-return]


def test_a_bucket_with_its_history(nats_server: Any, tmp_path: Path) -> None:
    """Puts, deletes and a purge; the copy of the bucket has the same history."""

    async def fill(js: Any) -> None:
        kv = await js.create_key_value(bucket="FROM", history=5)
        await js.create_key_value(bucket="COPY", history=5)
        for n in range(8):
            await kv.put("many", b"%d" % n)
        await kv.put("gone", b"1")
        await kv.delete("gone")
        await kv.put("back", b"1")
        await kv.purge("back")
        await kv.put("back", b"2")

    Stream(nats_server, "KV_FROM").run(fill)
    keys = ["many", "gone", "back"]
    before = history(nats_server, "FROM", keys)
    warehouse = Warehouse(dir=tmp_path / "warehouse")
    server = NatsSettings(servers=nats_server.url)
    archived(warehouse, "KV_FROM", server=server)
    mapping = tmp_path / "mapping.conf"
    mapping.write_text('mappings { "$KV.FROM.>": "$KV.COPY.>" }')
    transformed(warehouse, mapping, stream="KV_FROM")
    settings = ReplaySettings(
        stream="KV_FROM", to="KV_COPY", server=server, warehouse=warehouse,
        allow=frozenset({"limits", "rollup"}),
    )  # fmt: skip
    assert replay(settings).sent == 9
    assert history(nats_server, "COPY", keys) == before
    assert replay(settings).sent == 0
    assert history(nats_server, "COPY", keys) == before


def test_a_bucket_whose_values_expire(tables: Tables, nats_server: Any) -> None:
    """A value's time is over and the server notes it: a copy has the note, for as long as asked."""
    keys, expires = ["stays", "short"], Stream(nats_server, "KV_EXPIRES")

    async def fill(js: Any) -> None:
        for bucket in ("NOTED", "GONE"):
            config = KeyValueConfig(bucket=bucket, history=5, limit_marker_ttl=1)
            await js.create_key_value(config)
        # The server lets no value live for less than its note.
        config = KeyValueConfig(bucket="EXPIRES", history=5, limit_marker_ttl=2)
        kv = await js.create_key_value(config)
        await kv.put("stays", b"1")
        await kv.create("short", b"2", msg_ttl=2)
        while (await js.stream_info("KV_EXPIRES")).state.last_seq < 3:
            await asyncio.sleep(0.05)

    expires.run(fill)
    found = stored(expires, own=True)
    before = history(nats_server, "EXPIRES", keys)
    subject, headers, _ = found[-1]
    assert subject == b"$KV.EXPIRES.short"
    assert {b"Nats-Marker-Reason": b"MaxAge", b"Nats-TTL": b"2s"}.items() <= dict(headers).items()
    assert [key for key, *_ in before] == keys

    def copy(bucket: str, *more: str) -> None:
        rows = [
            message(
                seq, subject.decode(), data=data,
                mapped_subject=subject.decode().replace("EXPIRES", bucket),
                headers=[(name.decode(), value.decode()) for name, value in headers],
            )
            for seq, (subject, headers, data) in enumerate(found, start=1)
        ]  # fmt: skip
        target = Stream(nats_server, f"KV_{bucket}")
        for sent in (len(rows),) if more else (len(rows), 0):
            result = run(tables(rows), target, allow={"limits", "rollup", *more})
            assert (result.refusals, result.sent) == ([], sent)

    copy("NOTED")
    assert history(nats_server, "NOTED", keys) == before
    copy("GONE", "ttl")
    until = time.monotonic() + 60
    while [key for key, *_ in history(nats_server, "GONE", keys)] != ["stays"]:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert history(nats_server, "NOTED", keys) == before


# --- Faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("denied", [1, 5, 10])
def test_a_subject_that_the_user_may_not_publish(tables: Tables, denied: int) -> None:
    """The server answers nothing to it, and refuses what comes behind it in the chain."""
    users = """
    authorization { users: [
      { user: a, password: p }
      { user: b, password: p, permissions: { publish: { deny: "*.Denied" } } }
    ] }
    no_auth_user: a
    """
    with nats_server(users) as server:
        target = new_stream(server)
        names = {denied: "Denied"}
        archive = tables([message(n, f"{target.name}.{names.get(n, n)}") for n in range(1, 11)])
        settings = NatsSettings(servers=server.url, user="b", password="p")  # noqa: S106
        started = time.monotonic()
        with refused(JobError, "replay-failed", reason=re.compile(rf"{target.name}\.Denied")):
            run(archive, target, server=settings)
        assert time.monotonic() - started < 30
        assert len(payloads(target)) == denied - 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_job_is_killed_and_run_again(
    tables: Tables, stream: Any, tmp_path: Path, seed: int
) -> None:
    """kill -9 of the whole process; `test_chain` does it at many more moments, without Spark."""
    chance = random.Random(seed)
    count, path = 900, tmp_path / "settings.json"
    archive = tables([message(n, f"{stream.name}.{n % 5}") for n in range(1, count + 1)])
    settings = {
        "stream": "OLD", "to": stream.name, "server": {"servers": stream.server.url},
        "warehouse": {"dir": str(archive.dir)}, "rate": 100,
    }  # fmt: skip
    path.write_text(json.dumps(settings))
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-m", "jobs", "replay", str(path)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        wanted = len(payloads(stream)) + chance.randrange(1, 200)
        while stream.info().state.last_seq < wanted:
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        held = payloads(stream)
        assert held == list(range(1, len(held) + 1))
    result = run(archive, stream)
    assert result.sent + result.already == count
    assert payloads(stream) == list(range(1, count + 1))


@pytest.mark.parametrize("weight", [100, 40])
def test_a_server_that_maps_what_is_sent_again(tables: Tables, weight: int) -> None:
    """As the mapping of a canary does that is in force where the archive is replayed."""
    rows = [message(n, f"in.{n % 3}") for n in range(1, 1001)]
    config = f'mappings {{ "in.*": [ {{ destination: "in.v2.$1", weight: {weight}% }} ] }}'
    with nats_server(config) as server:
        target = new_stream(server, subjects=["in.>"])
        archive = tables(rows)
        with refused(JobError, "replay-remapped", subject=re.compile("in.[0-9]")):
            run(archive, target)
        assert target.info().state.messages <= 500


def test_another_replay_that_ends_before_this_one_sends(
    tables: Tables, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it stored is not taken for messages that mappings gave other subjects."""
    archive = tables([message(n, f"{stream.name}.{n % 3}") for n in range(1, 1001)])
    look = _Run._there
    others = [archive]

    async def overtaken(this: _Run, target: Target) -> Coverage:
        held = await look(this, target)
        while others:
            await asyncio.to_thread(run, others.pop(), stream)
        return held

    monkeypatch.setattr(_Run, "_there", overtaken)
    result = run(archive, stream)
    assert (result.sent, result.already, result.target_messages) == (0, 1000, 1000)


def test_a_target_with_more_subjects_than_a_server_tells(
    tables: Tables, stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.jetstream.stream.COUNTED_SUBJECTS", 2)
    rows = [message(n, f"{stream.name}.{n % 3}") for n in range(1, 601)]
    assert run(tables(rows), stream).sent == 600


def test_subjects_that_the_target_has_already_or_that_are_no_utf8(
    tables: Tables, stream: Any
) -> None:
    stream.publish([(b"\xff", b"", b""), (b"1", b"", b""), (b"\xfe", b"", b"")])
    rows = [message(n, f"{stream.name}.{n % 3}") for n in range(1, 601)]
    rows[3]["subject"] = f"{stream.name}.\udcff"
    result = run(tables(rows), stream)
    assert (result.sent, result.target_messages) == (600, 603)
