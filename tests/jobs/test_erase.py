"""Erasure: messages leave every table and file, and nothing brings them back."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from pyiceberg.avro.file import AvroFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import Record

from jobs.census import CENSUS
from jobs.dry_run.simulate import SIMULATED
from jobs.erase import EraseResult
from jobs.errors import ArchiveError, ConcurrentWrite, NoTable, WarehouseError
from jobs.files.commit import arrow_schema
from jobs.files.erasure import Old, Rewrite
from jobs.files.narrow import is_narrow
from jobs.files.selection import Selection
from jobs.files.storage import Storage
from jobs.maintain import maintain, remove_stream
from jobs.settings.erase import EraseSettings
from jobs.settings.maintain import MaintenanceSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.accounting import Archived
from jobs.warehouse.specs import MESSAGES, QUARANTINED, TRANSFORMED
from jobs.warehouse.tables import data_files, open_table
from nats_transform.kernel.coverage import Coverage
from tests.cases import rows
from tests.support import disks
from tests.support.archive import archive, message, rows_of
from tests.support.command import nats_transform
from tests.support.exporting import Exporting
from tests.support.jobs import (
    archived,
    counted,
    dumped,
    erased,
    ingested,
    on,
    promoted,
    sifting,
    transformed,
    tried,
    verified,
)
from tests.support.meanwhile import just_before
from tests.support.refused import refused
from tests.support.rules import mappings
from tests.support.stream_backups import back_up
from tests.support.streams import Stream

DAY = date(2026, 3, 1)
SECRET = "q7Zsecret9"  # noqa: S105 - planted, and looked for
OTHERS = 40
OLD, NEW = (mappings({"u.*.*": f"{name}.$1.$2"}) for name in ("old", "new"))


def is_secret(seq: int) -> bool:
    return seq % 10 == 3


def secrets(path: Path, count: int = OTHERS) -> Path:
    """A dump of four days; each tenth message tells the secret everywhere it can."""
    names = {seq: SECRET if is_secret(seq) else f"p{seq}" for seq in range(1, count + 1)}
    return dumped(
        path,
        (
            {
                "seq": seq,
                "ts": str(datetime(2026, 3, 1, tzinfo=UTC) + timedelta(hours=seq * 2.4)),
                "subject": f"u.{who}.in",
                "cluster": who,
                "headers": {"User": ["x", who], "X": "1"},
                "data": f"payload of {who} " * 20,
            }
            for seq, who in names.items()
        ),
    )


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return secrets(tmp_path / "dump.jsonl")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """An archive with a census, two versions in snapshots, and a branch; tests copy its folder."""
    folder = tmp_path_factory.mktemp("made")
    warehouse = Warehouse(dir=folder / "warehouse")
    ingested(warehouse, secrets(folder / "dump.jsonl"))
    counted(warehouse)
    transformed(warehouse, NEW)
    transformed(warehouse, OLD)
    transformed(warehouse, NEW, "next", first_day=DAY)
    return warehouse


@pytest.fixture
def whole(made: Warehouse, warehouse: Warehouse) -> Warehouse:
    shutil.copytree(made.folder, warehouse.folder)
    return warehouse


def texts(value: Any) -> Iterator[bytes]:
    """Every text in a value."""
    match value:
        case dict():
            for pair in value.items():
                yield from texts(pair)
        case list() | tuple():
            for one in value:
                yield from texts(one)
        case _:
            yield value if isinstance(value, bytes) else str(value).encode()


def contents(path: Path) -> Iterator[bytes]:
    """What is in a file, as it is and unpacked."""
    yield path.read_bytes()
    if path.suffix == ".parquet":
        try:
            file = pq.ParquetFile(path)
        except pa.ArrowInvalid:
            return  # unfinished
        yield repr(file.metadata.to_dict()).encode()
        for rows in file.iter_batches():
            yield from texts(rows.to_pylist())
            for column in rows.columns:  # words that no row has any more
                if pa.types.is_dictionary(column.type):
                    yield from texts(column.dictionary.to_pylist())
    elif path.suffix == ".avro":
        with AvroFile[Record](PyArrowFileIO().new_input(str(path))) as records:
            yield from (repr(record).encode() for record in records)


def told(warehouse: Warehouse, secret: str = SECRET) -> list[Path]:
    """The files of a warehouse with the secret."""
    files = [path for path in warehouse.folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if any(secret.encode() in text for text in contents(path))]


def sequences_of(warehouse: Warehouse, spec: Any = MESSAGES, branch: str | None = None) -> set[int]:
    return {row.seq for row in rows_of(on(warehouse, branch), spec=spec)}


STAY = {seq for seq in range(1, OTHERS + 1) if not is_secret(seq)}
GONE = {seq for seq in range(1, OTHERS + 1) if is_secret(seq)}


@pytest.mark.parametrize(
    "which", [{"subject": f"*.{SECRET}.>"}, {"header": f"User={SECRET}"}], ids=["subject", "header"]
)
def test_no_byte_stays(whole: Warehouse, which: dict[str, str]) -> None:
    assert len(told(whole)) > 10  # the search finds it
    before = Archived.of(open_table(whole, MESSAGES), "S")
    result = erased(whole, **which)
    assert (result.messages, result.refused) == (len(GONE), None)
    check_erased(whole, before)
    assert sequences_of(whole) == STAY
    after = Archived.of(open_table(whole, MESSAGES), "S")
    (stone,) = after.erased
    assert stone.sequences == " ".join(f"{seq}-{seq}" for seq in sorted(GONE))
    assert (stone.by, stone.reason) == ("me", "ticket 1")
    assert before.bytes - after.bytes == stone.bytes > 0
    assert (after.messages, after.erased_on()) == (len(STAY), len(GONE))
    assert (after.first_seq, after.last_seq) == (1, OTHERS)
    assert transformed(whole, OLD).erased == len(GONE)
    assert counted(whole).messages == len(STAY)
    assert told(whole) == []


def test_a_day_that_was_erased_is_not_gone(whole: Warehouse) -> None:
    erased(whole, seq="1..9")
    days = [day for table in verified(whole).tables for day in table.days]
    assert DAY not in days
    assert verified(whole).holds


def test_a_dump_does_not_bring_them_back(whole: Warehouse, dump: Path) -> None:
    erased(whole, header=f"User={SECRET}")
    again = ingested(whole, dump)
    assert (again.added, again.messages, again.erased, again.gaps) == (0, len(STAY), len(GONE), 0)
    assert ingested(whole, secrets(dump, OTHERS + 10)).added == 10
    assert sequences_of(whole) == STAY | {*range(OTHERS + 1, OTHERS + 11)}


@pytest.mark.server
def test_neither_the_stream_nor_its_backup_brings_them_back(
    warehouse: Warehouse, stream: Stream, tmp_path: Path
) -> None:
    block = b"NATS/1.0\r\nUser: %b\r\n\r\n"
    stream.publish(
        (
            b"u.%b.in" % (who := SECRET.encode() if is_secret(seq) else b"p%d" % seq),
            block % who,
            b"payload of " + who,
        )
        for seq in range(1, OTHERS + 1)
    )
    backup = back_up(stream, tmp_path / "backup")

    ingest = partial(archived, warehouse, from_stream=stream.name)
    live = {"server": {"servers": stream.server.url}}
    assert ingest(**live).added == OTHERS
    result = erased(warehouse, subject=f"{stream.name}.u.{SECRET}.>")
    assert result.messages == len(GONE)
    assert told(warehouse) == []
    # The first and the last message that it knows are compared: none of them may be an erased one.
    assert erased(warehouse, seq="1..2").messages == 2
    assert erased(warehouse, seq=f"{OTHERS}").messages == 1
    stays = STAY - {1, 2, OTHERS}
    for source in (live, {"backup": backup}):
        again = ingest(**source)
        assert (again.added, again.messages, again.gaps) == (0, len(stays), 0)
    stream.count(5)
    assert ingest(**live).added == 5
    assert sequences_of(warehouse) == stays | {*range(OTHERS + 1, OTHERS + 6)}
    assert told(warehouse) == []
    assert ingest(**live).erased == len(GONE) + 3


def test_sequences_that_are_not_archived_yet(whole: Warehouse, dump: Path) -> None:
    shown = erased(whole, seq=f"38..{OTHERS + 5}", yes=False)
    assert (shown.messages, shown.sequences) == (3, f"38-{OTHERS + 5}")
    assert erased(whole, seq=f"38..{OTHERS + 5}").messages == 3
    again = ingested(whole, secrets(dump, OTHERS + 10))
    assert (again.added, again.gaps, again.erased) == (5, 0, 3)
    assert sequences_of(whole) == {*range(1, 38)} | {*range(OTHERS + 6, OTHERS + 11)}
    repeated = erased(whole, seq=f"38..{OTHERS + 5}")
    assert (repeated.messages, repeated.tombstones) == (0, ())


def test_all_messages(whole: Warehouse, dump: Path) -> None:
    result = erased(whole, subject=">")
    assert result.messages == OTHERS
    assert told(whole) == told(whole, "payload of") == []
    again = ingested(whole, dump)
    assert (again.added, again.messages, again.erased) == (0, 0, OTHERS)
    for job in (lambda: transformed(whole, OLD), lambda: verified(whole)):
        with refused(ArchiveError, "no-messages-of-stream", cure=re.compile(str(OTHERS))):
            job()


def test_without_yes_nothing_changes(whole: Warehouse) -> None:
    before = disks.contents(whole.folder)
    result = erased(whole, subject=f"u.{SECRET}.in", yes=False, reason="")
    assert result.messages == len(GONE)
    assert result.refused is not None
    given = ("erase", "--stream", "S", "--header", f"User={SECRET}")
    code, out, err = nats_transform(*given, "--warehouse", whole.folder)
    assert (code, disks.contents(whole.folder)) == (1, before)
    assert out.startswith("S: 4 messages would be erased\n2026-03-01: 1 message\n")
    assert err == "nothing was erased: add --yes to erase; it can't be undone\n"
    assert SECRET not in out + err


@pytest.mark.parametrize(("which", "count"), rows("requests.yaml", "erasures"))
def test_what_is_meant(warehouse: Warehouse, dump: Path, which: dict[str, str], count: int) -> None:
    ingested(warehouse, dump)
    assert erased(warehouse, yes=False, **which).messages == count


@pytest.mark.parametrize(
    "which",
    [{"subject": f"u.{SECRET}x.>"}, {"header": f"User={SECRET}x"}],
    ids=["subject", "header"],
)
def test_a_request_that_matches_nothing_is_refused(whole: Warehouse, which: dict[str, str]) -> None:
    """It is a typo, and the messages that were meant are still there."""
    before = open_table(whole, MESSAGES).metadata_location
    (option,) = which
    for yes in (False, True):
        result = erased(whole, yes=yes, **which)
        assert (result.messages, result.sequences, result.tombstones) == (0, "", ())
        assert result.refused.startswith(f"no archived message matches --{option}")
    assert open_table(whole, MESSAGES).metadata_location == before
    given = (f"--{option}", which[option], "--reason", "ticket 1", "--yes")
    where = ("--stream", "S", "--warehouse", str(whole.folder))
    code, out, error = nats_transform("erase", *where, *given)
    assert (code, out, error) == (1, "", f"{result.refused}\n")


def test_a_second_run_of_a_request_is_fine(whole: Warehouse) -> None:
    """A tombstone does not say which filter was given, so its reason tells the request."""
    request = {"subject": f"u.{SECRET}.in", "reason": "ticket 1"}
    assert erased(whole, seq=f"{OTHERS + 1}..{OTHERS + 2}", reason="ticket 1").refused is None
    assert erased(whole, subject="u.typo.in", reason="ticket 1").refused is not None
    assert erased(whole, **request).messages == len(GONE)
    again = erased(whole, **request)
    assert (again.messages, again.refused) == (0, None)
    assert erased(whole, **request | {"reason": "ticket 2"}).refused is not None


@pytest.fixture
def stopped(whole: Warehouse, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    """An archive in which an erasure was stopped after its tombstone was written."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("jobs.erase._finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            erased(whole, subject=f"u.{SECRET}.in")
    return whole


def test_a_request_that_matches_nothing_finishes_others(stopped: Warehouse) -> None:
    result = erased(stopped, subject="u.typo.in", reason="ticket 2")
    assert (result.messages, result.tombstones[0].is_finished) == (len(GONE), True)
    assert result.refused.startswith("no archived message matches --subject")
    assert told(stopped) == []


def test_an_erasure_that_was_stopped_makes_no_gaps(stopped: Warehouse, dump: Path) -> None:
    assert ingested(stopped, dump).gaps == 0
    erased(stopped, reason="")
    assert ingested(stopped, dump).gaps == 0


def test_sequences_without_a_message(tmp_path: Path) -> None:
    """What the stream had deleted was never there to erase; what is not archived yet may come."""
    warehouse = Exporting(tmp_path).warehouse  # sequences 11, 12, 14, 15 and 20 of 11 to 25
    for seq in ("13", "16..19"):
        result = erased(warehouse, seq=seq)
        assert (result.sequences, result.tombstones) == ("", ())
        assert result.refused.startswith("no archived message matches --seq")
    for seq, messages in (("13..14", 1), ("13..14", 0), ("25..26", 0), ("3", 0)):
        result = erased(warehouse, seq=seq)
        assert (result.messages, result.refused) == (messages, None)


def test_illegal_subjects_are_meant_too(warehouse: Warehouse, tmp_path: Path) -> None:
    """A stream's subject transform stores them; nobody can publish them."""
    subjects = ["u.x", "u..x", "u.", "u.*.x", "v..x"]
    lines = ({"seq": n, "ts": str(DAY), "subject": text} for n, text in enumerate(subjects, 1))
    ingested(warehouse, dumped(tmp_path / "odd.jsonl", lines))
    erased(warehouse, subject="u.>")
    assert [row.subject for row in rows_of(warehouse, "S")] == [b"v..x"]


@pytest.mark.parametrize(("which", "code"), rows("requests.yaml", "no erasures"))
def test_what_cannot_be_meant(which: dict[str, Any], code: str) -> None:
    with refused(ValidationError, code):
        EraseSettings(stream="S", **which)
    with pytest.raises(ValidationError, match="match pattern"):
        EraseSettings(stream="S", seq="a")


def test_headers_that_are_not_utf8(warehouse: Warehouse, tmp_path: Path) -> None:
    line = '{"seq": %d, "ts": "2026-03-01", "subject": "a", "headers": {"User": "%s"}}\n'
    dump = tmp_path / "dump.jsonl"
    dump.write_text(line % (1, "\\udcff\\udcfe") + line % (2, "\\\\xFF\\\\xFE"))
    ingested(warehouse, dump)
    assert erased(warehouse, header="User=\udcff\udcfe").messages == 1
    assert sequences_of(warehouse) == {2}
    assert told(warehouse, r"b'\xff\xfe'") == []


def test_a_stream_that_is_not_there(whole: Warehouse, tmp_path: Path) -> None:
    nothing = Warehouse(dir=tmp_path / "none")
    with pytest.raises(NoTable):
        erased(nothing, seq="1", yes=False)
    assert not nothing.folder.exists()
    with refused(ArchiveError, "no-messages-of-stream", stream="T"):
        erased(whole, "T", seq="1", yes=False)
    with refused(ArchiveError, "no-unfinished-erasure", stream="S"):
        erased(whole)


def test_other_streams_stay(whole: Warehouse, dump: Path) -> None:
    before = ingested(whole, dump, "T")
    erased(whole, subject=">")
    after = Archived.of(open_table(whole, MESSAGES), "T")
    assert (after.messages, after.digest) == (before.messages, before.digest)
    result = verified(whole, stream="T")
    assert (result.holds, result.erased) == (True, 0)


def test_a_removed_stream_does_not_come_back_with_them(whole: Warehouse, dump: Path) -> None:
    erased(whole, subject=f"u.{SECRET}.in")
    remove_stream(whole, "S")
    again = ingested(whole, dump)
    assert (again.added, again.gaps, again.erased) == (len(STAY), 0, len(GONE))
    assert sequences_of(whole) == STAY


def test_a_stream_is_removed_when_all_its_messages_were_erased(whole: Warehouse) -> None:
    """Its accounts go, and an ingest may have another filter; the tombstones stay."""
    erased(whole, subject=">")
    assert remove_stream(whole, "S") == {"messages": 0}
    there = Archived.of(open_table(whole, MESSAGES), "S")
    assert (there, there.erased_on()) == (there.buried, OTHERS)
    with refused(ArchiveError, "no-rows-of-stream", stream="S"):
        remove_stream(whole, "S")


def test_a_branch_keeps_its_own_days(whole: Warehouse) -> None:
    """Days that it shares with the table are not its own afterwards."""
    erased(whole, subject=f"u.{SECRET}.in")
    assert len(open_table(whole, TRANSFORMED).metadata.snapshots) == 3
    result = promoted(whole)
    assert (result.refused, result.days) == (None, {"S": [DAY]})
    assert told(whole) == []


def test_a_stream_without_accounts(warehouse: Warehouse) -> None:
    """Whose messages another program put into the table."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    archive(warehouse, [message(n, f"u.{SECRET if n == 2 else n}", noon) for n in range(1, 4)])
    assert erased(warehouse, subject=f"u.{SECRET}").messages == 1
    assert sequences_of(warehouse) == {1, 3}
    assert told(warehouse) == []
    transformed(warehouse, OLD)


def test_a_narrow_table(whole: Warehouse) -> None:
    """It stays narrow, so jobs go on taking payloads from `messages`."""
    transformed(whole, NEW, columns="outcomes")
    erased(whole, header=f"User={SECRET}")
    assert told(whole) == []
    assert verified(whole).holds
    table = open_table(whole, TRANSFORMED)
    files = data_files(table)
    assert all(is_narrow(table, [file]) for file in files)
    chosen = Selection(table, "S", None, {"mapped"}, ("seq", "data"))
    rows = pa.Table.from_batches(chosen.in_order())
    assert set(rows["seq"].to_pylist()) == STAY
    assert all(rows["data"].to_pylist())


def test_a_file_keeps_the_columns_that_it_has(whole: Warehouse, tmp_path: Path) -> None:
    table = open_table(whole, TRANSFORMED)
    (first, *_) = table.scan().plan_files()
    path = first.file.file_path.removeprefix("file://")
    rows = pq.read_table(path).drop_columns(["data", "headers", "headers_raw", "ts"])
    old = tmp_path / "narrow.parquet"
    pq.write_table(rows, old)
    rewrite = Rewrite(
        Storage(), str(tmp_path), arrow_schema(table.schema()), Coverage.of([(3, 3)]), ()
    )
    done = rewrite(Old(str(old), DAY))
    new = pq.read_table(done.written.path)
    assert new.schema.names == rows.schema.names
    assert new.to_pylist() == [row for row in rows.to_pylist() if row["seq"] != 3]
    assert rewrite(Old(done.written.path, DAY)) is None


def test_bounds_of_columns(warehouse: Warehouse, dump: Path) -> None:
    """Other programs may keep the lowest and highest subject of each file."""
    ingested(warehouse, secrets(dump, 1))
    for spec in (MESSAGES, TRANSFORMED):
        table = open_table(warehouse, spec, create=True)
        bounds = {"write.metadata.metrics.default": "full"} | {
            name: "full" for name in table.properties if ".metrics." in name
        }
        table.transaction().set_properties(bounds).commit_transaction()
    ingested(warehouse, secrets(dump))
    transformed(warehouse, OLD)
    transformed(warehouse, NEW)
    assert any(path.suffix == ".avro" for path in told(warehouse))
    erased(warehouse, header=f"User={SECRET}")
    assert told(warehouse) == []


def test_what_stopped_jobs_left(whole: Warehouse) -> None:
    """Whole files are looked into. Those that nobody can read wait a day, or until nobody works."""
    path = next(path for path in told(whole) if path.match(f"{TRANSFORMED.name}/data/*/*.parquet"))
    left = [path.parents[1] / name / path.name for name in ("refused", "killed", "clean")]
    for copy, data in zip(left, (path.read_bytes(), path.read_bytes()[:-9], b""), strict=True):
        copy.parent.mkdir()
        copy.write_bytes(data)
    scratch = whole.folder / "nats" / CENSUS.name / "data" / "x" / "groups.arrow"
    scratch.parent.mkdir()
    scratch.write_bytes(SECRET.encode())
    pq.write_table(pa.table({"stream": ["T"], "seq": [3]}), left[2])
    result = erased(whole, subject=f"u.{SECRET}.in")
    assert [copy.exists() for copy in left] == [False, True, True]
    assert re.match("2 unfinished files of jobs .* again after 20", result.refused)
    assert not result.tombstones[0].is_finished
    checked = verified(whole)
    assert (checked.holds, checked.is_erasing) == (True, True)
    yesterday = time.time() - 86_401
    os.utime(scratch, (yesterday, yesterday))
    result = erased(whole)
    assert [copy.exists() for copy in (*left, scratch)] == [False, True, True, False]
    assert result.refused is not None
    result = erased(whole, no_other_jobs=True)
    assert [copy.exists() for copy in left] == [False, False, True]
    assert (result.refused, result.messages, result.tombstones[0].is_finished) == (None, 4, True)
    assert told(whole) == []


def test_a_simulation(whole: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "m.conf").write_text('mappings { "u.*.in": "v.$1" }')
    (tmp_path / "V.json").write_text('{"config": {"name": "V", "subjects": ["v.*"]}}')
    tried(whole, tmp_path / "m.conf", streams=tmp_path / "V.json", simulate=True)
    assert len(list(open_table(whole, SIMULATED).scan().plan_files())) > 0
    erased(whole, subject=f"u.{SECRET}.in")
    assert told(whole) == []
    assert list(open_table(whole, SIMULATED).scan().plan_files()) == []


def test_a_quarantine(whole: Warehouse) -> None:
    odd = sifting("odd", lambda seq: seq % 2)
    assert transformed(whole, OLD, sift=odd).quarantined == {"odd": OTHERS // 2}
    erased(whole, subject=f"u.{SECRET}.in")
    assert sequences_of(whole, QUARANTINED) == {seq for seq in STAY if seq % 2}
    assert sequences_of(whole, TRANSFORMED) == {seq for seq in STAY if not seq % 2}
    assert verified(whole).holds
    assert told(whole) == []


# ---- Processes that die, and others that work


def eraser(warehouse: Warehouse) -> subprocess.Popen[str]:
    """A process that erases; it was ready before, so that a kill hits the work, not the start."""
    which = {"subject": f"u.{SECRET}.>", "yes": True, "reason": "ticket 1", "by": "me"}
    settings = EraseSettings.model_validate({"stream": "S", "warehouse": warehouse, **which})
    program = (
        "import sys; from jobs.registry import JOBS; from jobs.settings.spark import *; "
        "job = JOBS['erase']; job.function; "
        "given = job.model.model_validate_json(sys.argv[1]); print('ready', flush=True); "
        "input(); job.run(given, SparkSettings())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, settings.model_dump_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
    return process


def check_erased(warehouse: Warehouse, before: Archived) -> None:
    """Nothing of the messages is there, and one finished tombstone says what left."""
    assert told(warehouse) == []
    after = Archived.of(open_table(warehouse, MESSAGES), "S")
    (stone,) = after.erased
    assert (stone.messages, stone.is_finished) == (len(GONE), True)
    assert stone.digest == str(before.digest_of() - after.digest_of())
    assert (after.covered, after.gaps) == (before.covered, 0)
    for branch in (None, "next"):
        assert sequences_of(warehouse, TRANSFORMED, branch) == STAY
        result = verified(warehouse, branch)
        assert (result.holds, result.erased) == (True, len(GONE))
        assert not result.not_transformed
        assert all(verified.report.success for verified in result.tables)
    assert set(open_table(warehouse, TRANSFORMED).metadata.refs) == {"main", "next", "next.base"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [3, 30])
def test_killed_at_many_moments(whole: Warehouse, tmp_path: Path, kills: int) -> None:
    """Each kill is at another moment; the same command finishes what it left."""
    before = Archived.of(open_table(whole, MESSAGES), "S")
    chance, moments = random.Random(kills), Counter[str]()
    with eraser(_copy(whole, tmp_path / "first")) as first:
        started = time.monotonic()
        assert first.wait() == 0
        took = time.monotonic() - started
    for number in range(kills):
        copy = _copy(whole, tmp_path / f"copy {number}")
        with eraser(copy) as process:
            time.sleep(chance.uniform(0, took))
            process.kill()
        stones = Archived.of(open_table(copy, MESSAGES), "S").erased
        moment = "before" if not stones else "after" if stones[0].is_finished else "between"
        moments[moment] += 1
        # Machines are busy now and then.
        took *= {"before": 1.1, "between": 1, "after": 0.85}[moment]
        result = erased(copy, subject=f"u.{SECRET}.>")
        assert result.refused is None
        check_erased(copy, before)
        shutil.rmtree(copy.folder)
    assert moments["between"] >= kills // 4, moments


def _copy(warehouse: Warehouse, to: Path) -> Warehouse:
    shutil.copytree(warehouse.folder, to)
    return Warehouse(dir=to)


JOBS_AT_WORK: dict[str, Callable[[Warehouse], Any]] = {
    "ingest": lambda it: ingested(it, secrets(it.folder.parent / "more.jsonl", OTHERS + 10)),
    "transform": lambda it: transformed(it, OLD),
    "transform on a branch": lambda it: transformed(it, NEW, "next"),
    "census": counted,
    "promote": promoted,
}


@pytest.mark.parametrize("job", JOBS_AT_WORK)
def test_a_job_that_is_about_to_publish(
    whole: Warehouse, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    """It has asked whether its messages are there still, and they were."""
    module = "jobs.promote" if job == "promote" else "jobs.warehouse.staging"
    done = list[EraseResult]()

    def erase(*_: Any) -> None:
        done.append(erased(whole, subject=f"u.{SECRET}.>", seq=None))

    just_before(monkeypatch, f"{module}.commit", erase)
    if job == "ingest":  # it tries again
        JOBS_AT_WORK[job](whole)
    else:
        with pytest.raises(ConcurrentWrite):
            JOBS_AT_WORK[job](whole)
    assert len(done) == 1
    erased(whole, subject=f"u.{SECRET}.>")  # the messages that came since
    assert told(whole) == []
    assert sequences_of(whole, TRANSFORMED, "next") == STAY
    JOBS_AT_WORK[job](whole)
    assert told(whole) == []


def test_a_transform_of_another_day_that_has_a_quarantine(
    whole: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists of files that it has read are gone; nothing is damaged."""
    odd = sifting("odd", lambda seq: seq % 2)
    transformed(whole, OLD, sift=odd)
    just_before(monkeypatch, "jobs.gate.publish", lambda *_: erased(whole, seq=f"{OTHERS}"))
    with pytest.raises(ConcurrentWrite):
        transformed(whole, OLD, sift=odd, first_day=DAY)
    transformed(whole, OLD, sift=odd, first_day=DAY)
    assert verified(whole).holds


def test_two_at_once(whole: Warehouse) -> None:
    """Where one sees files that the other has not finished, it says so, and a later run ends it."""
    both = [{"subject": f"u.{SECRET}.>"}, {"seq": "1..20"}]
    with ThreadPoolExecutor() as pool:
        at_work = [pool.submit(erased, whole, **which) for which in both]
        results = [future.result() for future in at_work]
    assert all("unfinished file" in (result.refused or "unfinished file") for result in results)
    if Archived.of(open_table(whole, MESSAGES), "S").unfinished:  # the other may have ended both
        assert any(result.refused for result in results)
        assert erased(whole, no_other_jobs=True).refused is None
    after = Archived.of(open_table(whole, MESSAGES), "S")
    stay = {seq for seq in STAY if seq > 20}
    assert all(stone.is_finished for stone in after.erased)
    assert (after.messages, after.erased_on()) == (len(stay), OTHERS - len(stay))
    for branch in (None, "next"):
        assert sequences_of(whole, TRANSFORMED, branch) == stay
        assert verified(whole, branch).holds
    assert told(whole) == told(whole, "payload of p7 ") == []


@pytest.mark.slow
def test_beside_jobs_that_work(whole: Warehouse, tmp_path: Path) -> None:
    """They may have to run again, and nothing that they do brings a message back."""
    done, counts, errors = threading.Event(), Counter[str](), set[str]()

    def work(name: str, job: Callable[[], Any]) -> None:
        while not (done.is_set() and counts[name]):  # each gets through, if only afterwards
            began = time.monotonic()
            try:
                job()
                counts[name] += 1
            except WarehouseError as error:
                errors.add(str(error))
            time.sleep(3 * (time.monotonic() - began))  # as much slower as the machine is

    tidy = MaintenanceSettings(warehouse=whole, retention=timedelta(0))
    jobs: dict[str, Callable[[], Any]] = {
        "maintain": lambda: maintain(tidy),
        "transform": lambda: transformed(whole, NEW),
        "branch": lambda: transformed(whole, OLD, "next"),
        "ingest": lambda: ingested(
            whole, secrets(tmp_path / "more.jsonl", OTHERS + 2 * (counts["ingest"] + 1))
        ),
        "census": lambda: counted(whole),
    }
    with ThreadPoolExecutor() as pool:
        at_work = [pool.submit(work, *job) for job in jobs.items()]
        try:
            for first in range(1, OTHERS, 10):
                erased(whole, seq=f"{first}..{first + 3}")
        finally:
            done.set()
        for future in at_work:
            future.result()
    assert all("\n" not in error for error in errors)
    result = erased(whole, subject=f"u.{SECRET}.>", no_other_jobs=True)
    assert result.refused is None
    assert told(whole) == told(whole, "payload of p11 ") == []
    for branch in (None, "next"):
        transformed(whole, OLD, branch)
        assert verified(whole, branch).holds
