"""Backups that real servers made: of 2.15 read as they are, of an older one restored in private."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nats.js.api import SubjectTransform

from jobs.errors import ArchiveError
from jobs.jetstream.connection import connection
from jobs.jetstream.headers import format_headers
from jobs.jetstream.process import NatsServer
from jobs.jetstream.process import nats_server as run_nats_server
from jobs.jetstream.stream import JetStreamSettings, StreamState, stream_state
from jobs.progress import Step, watched
from jobs.settings.warehouse import Warehouse
from jobs.sources.archive import ArchiveSource
from jobs.sources.backup import Backup, open_backup, restored
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import open_table
from nats_transform.backup import archive as format
from nats_transform.backup.s2 import Decoder
from nats_transform.kernel.coverage import Coverage
from tests.support.archive import sequences
from tests.support.backups import Entry, archive, packed, state_of
from tests.support.jobs import archived
from tests.support.refused import refused, told
from tests.support.stream_backups import back_up
from tests.support.streams import Stream

pytestmark = pytest.mark.server
OLD = Path(__file__).parent / "backup-2.14.6"
"""Of a stream OLD with two odd messages and 300 plain ones, of which three were deleted.

Made with nats-server 2.14.6, compression s2, by tests.support.stream_backups.back_up.
"""


# --- The format of nats-server 2.15 ---------------------------------------------------------------


def test_a_backup_and_its_stream_are_the_same(
    make_stream: Callable[..., Any], tmp_path: Path
) -> None:
    """Both archives are equal, and the stream goes on where its backup ended."""
    stream = make_stream()
    odd = [
        (b"a.\xff", b"NATS/1.0\r\nb:1\r\nA: 2\r\nA: 3\r\n\r\n", b"\x00\xff"),
        (b"empty", b"", b""),
        (b"marker", b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n", b""),
        (b"large", b"", bytes(1_000_000)),
    ]
    stream.publish(odd)
    stream.count(300)
    stream.delete(10, 11, 303, 304)
    folder = back_up(stream, tmp_path / "backup")
    live = {"server": {"servers": stream.server.url}}
    for number, more in enumerate(
        [
            {},
            {"subject": f"{stream.name}.n.3", "since": 5, "until": 290},
            {"publish_messages": 50, "readers": 3},
        ]
    ):
        places = (Warehouse(dir=tmp_path / f"{name}-{number}") for name in ("backup", "live"))
        of_backup, of_stream = places
        found = [
            archived(place, stream.name, **source, **more).model_dump(exclude={"snapshot_id"})
            for place, source in ((of_backup, {"backup": folder}), (of_stream, live))
        ]
        assert found[0] == found[1]
        assert found[0]["messages"] > 30
        assert archived(of_backup, stream.name, backup=folder, **more).added == 0
    whole = Warehouse(dir=tmp_path / "backup-0")
    rows = open_table(whole, MESSAGES).scan(row_filter="seq = 1").to_arrow().to_pylist()
    usual = format_headers([(b"b", b"1"), (b"A", b"2"), (b"A", b"3")])
    assert rows[0]["headers_raw"] == odd[0][1] != usual

    stream.count(10)
    followed = archived(whole, stream.name, **live)
    assert (followed.messages, followed.added) == (310, 10)
    again = archived(whole, stream.name, backup=folder)
    assert (again.messages, again.added) == (310, 0)


@pytest.fixture(scope="module")
def odd(nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A stream whose transform stores illegal subjects, and its backup."""
    change = SubjectTransform(src="ODD.in.*", dest="ODD.out.{{split(1,-)}}")
    stream = Stream(nats_server, "ODD")

    async def fill(js: Any) -> None:
        await js.add_stream(name="ODD", subjects=["ODD.>"], subject_transform=change)
        for subject in ODD:
            await js.publish(f"ODD.{subject}", b"x")

    stream.run(fill)
    return stream, back_up(stream, tmp_path_factory.mktemp("odd") / "backup")


# Stored as out.a, out..17, out.17, out., out.a.17.b, out.*.17, in.*, in.> and x.17.
ODD = ["in.a", "in.--17", "in.17--", "in.-", "in.a-17-b", "in.*-17", "in.*", "in.>", "x.17"]


@pytest.mark.parametrize(
    "wanted", [">", "out.>", "*.>", "out.*", "out.*.17", "*.*", "out.17", "in.*", "in.>"]
)
def test_a_filter_takes_illegal_subjects_as_the_server_does(
    odd: tuple[Any, Path], warehouse: Warehouse, wanted: str
) -> None:
    stream, folder = odd
    subject = f"{stream.name}.{wanted}"

    async def consume(js: Any) -> list[int]:
        consumer = await js.pull_subscribe(subject, stream=stream.name)
        messages = await consumer.fetch(len(ODD), timeout=0.5)
        return [message.metadata.sequence.stream for message in messages]

    archived(warehouse, backup=folder, subject=subject)
    assert sequences(open_table(warehouse, MESSAGES)) == stream.run(consume)


STORES = [
    pytest.param("", {"compression": "s2"}, id="compressed"),
    pytest.param("", {"storage": "memory"}, id="in-memory"),
    pytest.param("", {"max_msgs": 100, "discard": "old"}, id="limited"),
    pytest.param("", {"retention": "workqueue"}, id="work-queue"),
    pytest.param("jetstream { key: secret, cipher: aes }", {}, id="encrypted"),
]


@pytest.mark.parametrize(("server_config", "config"), STORES)
def test_every_kind_of_store_is_read_whole(
    make_stream: Callable[..., Any], tmp_path: Path, server_config: str, config: dict[str, Any]
) -> None:
    with run_nats_server(server_config) as server:
        stream = make_stream(server=server, **config)
        stream.count(400, 500)
        folder = back_up(stream, tmp_path / "backup", "stream.tar.s2")  # as older tools name it
    assert rows_of(open_backup(folder))[0] == (100 if config.get("max_msgs") else 400)


def test_messages_whose_time_to_live_is_over(
    make_stream: Callable[..., Any], tmp_path: Path
) -> None:
    stream = make_stream(allow_msg_ttl=True)
    stream.publish([(b"t", b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n", b"x")] * 10)
    stream.count(90)
    folder = back_up(stream, tmp_path / "backup")
    while stream.info().state.messages > 90:  # pytest's timeout ends it
        time.sleep(0.1)
    assert rows_of(open_backup(folder)) == (100, list(range(1, 101)))


def source_of(backup: Backup, publish_messages: int = 1000, **settings: Any) -> ArchiveSource:
    wanted = JetStreamSettings(stream=backup.stream, **settings)
    return ArchiveSource(backup, wanted, publish_messages)


def rows_of(backup: Backup, **settings: Any) -> tuple[int, list[int]]:
    """How many messages are planned, and the sequences that are read."""
    source = source_of(backup, **settings)
    spans = source.plan(Coverage())
    found: list[int] = []
    for span in spans:
        read, parts = source.tasks(span, Coverage())
        found += [seq for part in parts for rows in read(part) for seq in rows["seq"].to_pylist()]
    return sum(span.messages for span in spans), found


DAY = 86_400 * 10**9
TIMES = [0, 1, DAY, DAY + 1, DAY - 5, 2 * DAY, 2 * DAY + 1, 5 * DAY, 4 * DAY, 6 * DAY]
"""Of ten messages with the sequences 3, 6, 9, ...: a clock was set back twice."""
DATED: list[Entry] = [(b"s.%d" % (n % 2), t, 3 * n, b"", b"x" * 90) for n, t in enumerate(TIMES, 1)]


def dated_backup(folder: Path, config: dict[str, Any] | None = None, **said: int) -> Backup:
    """A backup of these messages that may say something else of them."""
    state = state_of(DATED) | said
    (folder / "stream.arc.s2").write_bytes(packed(archive(DATED, state), 70))
    described = {"config": {"name": "S"} | (config or {}), "state": state}
    (folder / "backup.json").write_text(json.dumps(described))
    return open_backup(folder)


@pytest.fixture
def dated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backup:
    """A backup of these messages, in chunks and batches that cut it everywhere."""
    monkeypatch.setattr(format, "_BATCH", 3)
    monkeypatch.setattr(format, "_BUFFER", 256)
    monkeypatch.setattr("jobs.sources.archive.TASK_BYTES", 1)
    return dated_backup(tmp_path)


def test_the_check_of_an_archive_says_how_far_it_is(dated: Backup) -> None:
    found: list[Step] = []
    wanted = JetStreamSettings(stream=dated.stream)
    with watched(lambda _: found.append(steps[-1])) as steps:
        ArchiveSource(dated, wanted, 1000).plan(Coverage())
    assert [(step.what, step.done, step.total) for step in found] == [
        (f"checking {dated.folder}", 10, 10)
    ]


def at(ns: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns / 1000)


@pytest.mark.parametrize(
    ("settings", "sequences"),
    [
        pytest.param({}, range(3, 31, 3), id="all"),
        pytest.param({"since": 4, "until": 12}, [6, 9, 12], id="sequences"),
        pytest.param({"until": 0}, [], id="none"),
        pytest.param({"since": at(DAY)}, range(9, 31, 3), id="since"),
        pytest.param({"until": at(2 * DAY)}, [3, 6, 9, 12, 15], id="until"),
        pytest.param({"since": at(7 * DAY)}, [], id="later-than-all"),
        pytest.param({"subject": "s.1"}, range(3, 31, 6), id="subject"),
        pytest.param({"subject": "s.1", "since": at(DAY)}, range(9, 31, 6), id="subject-since"),
    ],
)
@pytest.mark.parametrize("publish_messages", [1, 3, 1000])
@pytest.mark.parametrize("readers", [1, 4])
def test_ranges(
    dated: Backup, settings: Any, sequences: Any, publish_messages: int, readers: int
) -> None:
    found = rows_of(dated, publish_messages=publish_messages, readers=readers, **settings)
    assert found == (len(sequences), list(sequences))


def test_spans_end_at_midnight(dated: Backup) -> None:
    spans = source_of(dated, publish_messages=1).plan(Coverage())
    assert [(span.first, span.last) for span in spans] == [
        (3, 8), (9, 17), (18, 23), (24, 29), (30, 30),
    ]  # fmt: skip
    some = source_of(dated).plan(Coverage.of([(1, 7), (12, 12), (28, 40)]))
    assert [(s.first, s.last, s.messages) for s in some] == [(8, 11, 1), (13, 27, 5)]


@pytest.mark.parametrize("changed", [pytest.param(0, id="first"), pytest.param(8, id="last")])
@pytest.mark.parametrize("subject", [None, "s.1"])
def test_a_backup_of_another_stream_is_refused(
    dated: Backup, warehouse: Warehouse, subject: str | None, changed: int
) -> None:
    """The message that tells them apart need not be at an end of what the table covers."""
    ingest = partial(archived, warehouse, backup=dated.folder, subject=subject, until=29)
    ingest()
    name, time, *rest = DATED[changed]
    other = [*DATED[:changed], (name, time + 1, *rest), *DATED[changed + 1 :]]
    dated.content.write_bytes(packed(archive(other), 70))
    with refused(ArchiveError, "backup-of-other-stream", sequence=3 * changed + 3):
        ingest()


@pytest.fixture
def backup(stream: Any, tmp_path: Path) -> Path:
    stream.count(500, 200)
    stream.delete(3, 4, 500)
    return back_up(stream, tmp_path / "backup")


_DAMAGED = "backup-file-damaged|backup-not-restored"  # the server may be the first to see it
_EMPTY, _RANDOM = "file-damaged: backup-empty", "file-damaged: backup-packed-fault: s2-not-a-stream"
# What is done to a backup: what is told of one in the format of 2.15, and of an older one.
DAMAGE = {
    "truncated": ("file-damaged: backup-cut-off", _DAMAGED),
    "flipped": ("file-damaged: backup-packed-fault: s2-(checksum|damaged)", _DAMAGED),
    "flipped-at-the-end": ("file-damaged: backup-packed-fault: s2-", _DAMAGED),
    "empty": (_EMPTY, _EMPTY),
    "random": (_RANDOM, _RANDOM),
    "no-content": ("not-a-backup",) * 2,
    "no-description": ("not-a-backup",) * 2,
    "both": ("backup-of-both",) * 2,
    "not-json": ("backup-info-unreadable",) * 2,
    "nested": ("backup-info-unreadable",) * 2,
    "no-state": ("backup-info-unreadable",) * 2,
    "other-state": ("backup-state-differs", "restored-differs"),
}


def spoil(folder: Path, how: str) -> None:
    (content,) = folder.glob("stream.*")
    info = folder / "backup.json"
    data = bytearray(content.read_bytes())
    match how:
        case "truncated":
            content.write_bytes(data[: len(data) * 2 // 3])
        case "flipped":
            data[len(data) // 2] ^= 0x10
            content.write_bytes(data)
        case "flipped-at-the-end":
            data[-40] ^= 0x01
            content.write_bytes(data)
        case "empty":
            content.write_bytes(b"")
        case "random":
            content.write_bytes(os.urandom(len(data)))
        case "no-content":
            content.unlink()
        case "no-description":
            info.unlink()
        case "both":
            for name in ("stream.arc.s2", "stream.tar.s2"):
                (folder / name).write_bytes(data)
        case "not-json":
            info.write_text("{")
        case "nested":
            info.write_text("[" * 200_000 + "]" * 200_000)
        case "no-state":
            info.write_text(json.dumps({"config": {"name": "S"}}))
        case "other-state":
            say_of(folder, messages=json.loads(info.read_text())["state"]["messages"] + 1)


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_backups(backup: Path, warehouse: Warehouse, how: str) -> None:
    """Nothing is ingested, and there is one line that says why."""
    spoil(backup, how)
    with pytest.raises(ArchiveError) as caught:
        archived(warehouse, backup=backup)
    assert re.search(DAMAGE[how][0], told(caught.value))
    assert not warehouse.folder.exists()


@pytest.mark.parametrize(
    ("config", "messages", "is_damaged"),
    [
        pytest.param({}, 11, True, id="fewer-than-it-says"),
        pytest.param({"max_age": 10**9}, 11, False, id="fewer-as-they-age"),
        pytest.param({"max_age": 10**9}, 9, True, id="more-than-it-says"),
        pytest.param({"retention": "workqueue"}, 11, False, id="fewer-as-they-are-taken"),
    ],
)
def test_messages_that_a_limit_removed_meanwhile(
    tmp_path: Path, config: dict[str, Any], messages: int, is_damaged: bool
) -> None:
    backup = dated_backup(tmp_path, {"retention": "limits"} | config, messages=messages)
    if is_damaged:
        with refused(ArchiveError, "backup-count-differs", said=messages):
            rows_of(backup)
    else:
        assert rows_of(backup)[0] == 10


# --- The format before ----------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return shutil.copytree(OLD, tmp_path / "old")


def test_a_backup_of_an_older_server(old: Path, warehouse: Warehouse) -> None:
    result = archived(warehouse, "OLD", backup=old)
    assert (result.messages, result.first_seq, result.last_seq, result.gaps) == (299, 1, 301, 2)
    rows = open_table(warehouse, MESSAGES).scan(row_filter="seq <= 2").to_arrow().to_pylist()
    odd, empty = sorted(rows, key=lambda row: row["seq"])
    assert (odd["subject_raw"], odd["data"]) == (b"OLD.a.\xff", b"\x00\xff")
    assert (empty["subject"], empty["data"], empty["headers"]) == ("OLD.empty", b"", [])


def say_of(folder: Path, config: dict[str, Any] | None = None, **state: int) -> None:
    """Changes what a backup says of its stream."""
    described = json.loads((folder / "backup.json").read_text())
    described["config"] |= config or {}
    described["state"] |= state
    (folder / "backup.json").write_text(json.dumps(described))


def restore_old(folder: Path) -> None:
    backup = open_backup(folder)
    assert not backup.is_archive()
    with restored(backup):
        pass


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_backups_of_an_older_server(old: Path, how: str) -> None:
    spoil(old, how)
    with pytest.raises(ArchiveError) as caught:
        restore_old(old)
    assert re.search(DAMAGE[how][1], told(caught.value))


@pytest.mark.parametrize(
    ("config", "more", "is_damaged"),
    [
        pytest.param({"allow_msg_ttl": True}, 10, False, id="fewer-as-their-time-is-over"),
        pytest.param({"allow_msg_ttl": True}, -10, True, id="more-than-it-says"),
        pytest.param({"allow_msg_ttl": False}, 10, True, id="fewer-without-a-reason"),
    ],
)
def test_messages_of_an_older_backup_that_are_gone(
    old: Path, config: dict[str, Any], more: int, is_damaged: bool
) -> None:
    say_of(old, config, messages=299 + more)
    if is_damaged:
        with refused(ArchiveError, "restored-differs", key="messages", said=299 + more):
            restore_old(old)
    else:
        restore_old(old)


def test_what_is_restored(old: Path) -> None:
    backup = open_backup(old)
    with restored(backup) as nats:

        async def state() -> StreamState:
            async with connection(nats) as client:
                return await stream_state(client, backup.stream)

        found = asyncio.run(state())
    names = ("messages", "bytes", "first_seq", "last_seq")
    assert [found.messages, found.bytes, found.first, found.last] == [
        backup.state[name] for name in names
    ]


def test_blocks_that_unpack_to_far_more_than_they_say(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say_of(old, bytes=1)
    monkeypatch.setattr("jobs.sources.backup.SPARE_BYTES", 0)
    with refused(ArchiveError, "backup-unpacks-too-large"):
        restore_old(old)


def with_more(folder: Path, *members: tarfile.TarInfo) -> None:
    """More members at the end of the tar file of a backup; each file of them is empty."""
    (content,) = folder.glob("stream.*")
    unpacked = np.zeros(8 * 2**20, np.uint8)
    with content.open("rb") as file:
        size = Decoder(file).into(unpacked)
    changed = io.BytesIO(unpacked[:size].tobytes())
    with tarfile.open(fileobj=changed, mode="a", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            tar.addfile(member)
    content.write_bytes(packed(changed.getvalue()))


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found


@pytest.mark.parametrize(
    ("more", "told"),
    [
        pytest.param([member("../" * 30 + "{0}/evil")], "unexpected content", id="above"),
        pytest.param(
            [member("msgs/x", tarfile.SYMTYPE, "{0}"), member("msgs/x/evil")],
            "unexpected content",
            id="symbolic-link",
        ),
        pytest.param([member("msgs/x", tarfile.LNKTYPE, "/etc/passwd")], "unexpected", id="link"),
        pytest.param([member("msgs/x", tarfile.FIFOTYPE)], "unexpected content", id="pipe"),
        pytest.param([member("msgs/x", tarfile.CHRTYPE)], "unexpected content", id="device"),
        pytest.param([member("msgs/" + "a" * 100_000)], "file name too long", id="long"),
        pytest.param([member("{0}/evil")], None, id="absolute"),  # within the private folder
        pytest.param([member("msgs/" + "a/" * 1900 + "b")], None, id="deep"),
    ],
)
def test_members_that_no_server_writes(
    old: Path,
    tmp_path: Path,
    more: list[tarfile.TarInfo],
    told: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is written elsewhere, and nothing is left."""
    outside, scratch = tmp_path / "outside", tmp_path / "scratch"
    outside.mkdir()
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    for one in more:
        one.name, one.linkname = one.name.format(outside), one.linkname.format(outside)
    with_more(old, *more)
    try:
        with pytest.raises(ArchiveError, match=told) if told else contextlib.nullcontext():
            restore_old(old)
        assert list(outside.iterdir()) == list(scratch.iterdir()) == []
    finally:
        subprocess.run(["rm", "-r", scratch], check=True)  # pytest could not remove what is left


def test_a_backup_for_which_there_is_no_room(old: Path) -> None:
    say_of(old, bytes=2**60)
    with refused(ArchiveError, "backup-no-room"), restored(open_backup(old)):
        pass
