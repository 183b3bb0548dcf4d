"""Dry runs on real tables."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession

from jobs.census import CENSUS
from jobs.dry_run.question import looked_at, read_question
from jobs.dry_run.run import dry_run
from jobs.errors import ArchiveError, NoTable
from jobs.settings.dry_run import DryRunSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import TRANSFORMED
from jobs.warehouse.tables import open_table, snapshot_id
from nats_transform import InvalidConfig
from nats_transform.config.files import Files
from nats_transform.errors import sentence
from nats_transform.lint.findings import Severity
from nats_transform.migration import Question
from tests.cases import rows
from tests.support import command
from tests.support.archive import Row, archive, message
from tests.support.censuses import census_file
from tests.support.command import nats_transform, printed
from tests.support.files import write_files, written
from tests.support.jobs import archived, counted, transformed
from tests.support.refused import refused
from tests.support.streams import Stream

DAY = date(2026, 3, 1)
# A byte that is not UTF-8 reads as a surrogate escape.
SUBJECTS = ["orders.eu.1", "orders.us.1", "orders.us.2", "orders.eu.\udcff", "a..b", None]


def messages(first: int = 1, count: int = 60) -> list[Row]:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    return [
        message(
            seq,
            SUBJECTS[seq % len(SUBJECTS)],
            noon + timedelta(days=seq % 2),
            cluster=("east", "west")[seq % 4 == 0],
            data=b"abc",
        )
        for seq in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """An archive of two days, without a census."""
    where = Warehouse(dir=tmp_path_factory.mktemp("dry-run"))
    archive(where, messages())
    return where


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    return written(tmp_path / "new.conf", 'mappings { "orders.*.*": "shop.$2" }')


def asked(candidate: Path, **more: Any) -> DryRunSettings:
    """A dry run of stream S."""
    return DryRunSettings(stream="S", candidate=candidate, **more)


def told(result: Any) -> list[tuple[str, float, int]]:
    return [(f.code, f.messages, f.subjects) for f in result.dry_run.findings]


@pytest.mark.spark
def test_the_subjects_of_all_days(
    spark: SparkSession, warehouse: Warehouse, candidate: Path
) -> None:
    settings = asked(candidate, warehouse=warehouse, run_id="run-1")
    result = dry_run(spark, settings)
    assert told(result) == [
        ("collision", 20, 2),
        ("irreversible", 40, 4),
        ("illegal-subject", 20, 2),
    ]
    assert result.dry_run.messages == 60
    assert result.dry_run.subjects == len(SUBJECTS)
    assert result.dry_run.bytes == 180
    assert result.dry_run.clusters == ("east", "west")
    assert result.days == (DAY, DAY + timedelta(days=1))
    assert result.run_id == "run-1"
    lossless = {e.subject for f in result.dry_run.findings for e in f.examples}
    assert "orders.eu.\udcff" in lossless
    assert snapshot_id(open_table(warehouse, CENSUS)) == result.census_snapshot
    assert result.fails(Severity.ERROR)
    # A second run takes the census that is there.
    again = dry_run(spark, settings)
    assert (again.census_snapshot, again.dry_run) == (result.census_snapshot, result.dry_run)


@pytest.mark.spark
@pytest.mark.parametrize("exact", [False, True], ids=["census", "replay"])
def test_no_spark_and_any_number_of_parts(
    exact: bool,
    spark: SparkSession,
    warehouse: Warehouse,
    candidate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = asked(candidate, warehouse=warehouse, exact=exact, seed=3)
    found = dry_run(spark, settings).dry_run
    for most in (2**18, 4):
        monkeypatch.setattr("jobs.dry_run.scattered.PART_ROWS", most)
        assert dry_run(lambda: pytest.fail("asked for Spark"), settings).dry_run == found


@pytest.mark.spark
def test_a_replay_agrees_with_the_census(
    spark: SparkSession, warehouse: Warehouse, candidate: Path, tmp_path: Path
) -> None:
    settings = asked(candidate, warehouse=warehouse)
    exact = settings.model_copy(update={"exact": True})
    replayed = dry_run(spark, exact)
    assert replayed.dry_run == dry_run(spark, settings).dry_run
    assert (replayed.seed, replayed.census_snapshot) == (0, None)
    # Where weights decide, it is what `transform` makes of the messages.
    weighted = written(
        tmp_path / "weights.conf",
        'mappings { "orders.*.*": [{destination: "a.$1.$2", weight: 60},'
        ' {destination: "b.$1.$2", weight: 40}] }',
    )
    exact = exact.model_copy(update={"candidate": weighted, "seed": 7})
    found = dry_run(spark, exact).dry_run
    transformed(warehouse, weighted, seed=7)
    rows = open_table(warehouse, TRANSFORMED).scan(selected_fields=("mapping_destination",))
    drawn = Counter(rows.to_arrow()["mapping_destination"].to_pylist())
    assert {(c.after or "").removeprefix("orders.*.* -> "): c.messages for c in found.changes} == {
        to: count for to, count in drawn.items() if to
    }
    assert drawn.total() - drawn[None] == 40
    shares = dry_run(spark, settings.model_copy(update={"candidate": weighted})).dry_run
    assert sorted(change.messages for change in shares.changes) == [16, 24]


@pytest.mark.spark
def test_five_thousand_rules(spark: SparkSession, warehouse: Warehouse, tmp_path: Path) -> None:
    rules = "\n".join(f'"orders.eu.{n}": "shop.{n}"' for n in range(5000))
    candidate = written(tmp_path / "many.conf", f"mappings {{\n{rules}\n}}")
    stream = '{"config": {"name": "S", "subjects": ["orders.>", "shop.>"]}}'
    streams = written(tmp_path / "S.json", stream)
    found = dry_run(spark, asked(candidate, warehouse=warehouse, streams=streams)).dry_run
    codes = Counter(finding.code for finding in found.findings)
    assert codes["rule-never-hit"] == 4999
    assert [(c.after, c.messages) for c in found.changes] == [("orders.eu.1 -> shop.1", 10)]


@pytest.mark.spark
def test_some_days(spark: SparkSession, warehouse: Warehouse, candidate: Path) -> None:
    settings = asked(candidate, warehouse=warehouse, first_day=DAY)
    assert dry_run(spark, settings).dry_run.messages == 30
    with refused(ArchiveError, "no-messages-on-days", first="2026-03-01"):
        dry_run(spark, settings.model_copy(update={"first_day": date(2027, 1, 1)}))
    with refused(ArchiveError, "no-messages-of-stream", stream="T"):
        dry_run(spark, settings.model_copy(update={"stream": "T"}))


@pytest.mark.spark
def test_a_census_that_is_behind_is_counted_anew(
    spark: SparkSession, tmp_path: Path, candidate: Path
) -> None:
    where = Warehouse(dir=tmp_path / "warehouse")
    settings = asked(candidate, warehouse=where)
    with pytest.raises(NoTable):
        dry_run(spark, settings)
    archive(where, messages(1, 12))
    counted(where)
    archive(where, messages(13, 12))
    assert dry_run(spark, settings).dry_run.messages == 24


STREAM = {"config": {"name": "S", "subjects": ["a"]}}


def question_of(folder: Path, candidate: Path, **other: Path | None) -> Question:
    """What is asked with the streams, consumers and users of a folder, or with other files."""
    names = {"streams": "streams", "consumers": "consumers", "permissions": "server.conf"}
    files = {option: folder / name for option, name in names.items()}
    return read_question(asked(candidate, **files | other))


def test_what_the_files_hold(tmp_path: Path, candidate: Path) -> None:
    consumer = {"stream_name": "S", "name": "c", "config": {"filter_subject": "a"}}
    users = "users: [{user: u, password: p, permissions: {publish: 'a'}}]"
    files = {"streams/s.json": STREAM, "consumers/c.json": consumer}
    write_files(tmp_path, files | {"server.conf": f"authorization {{ {users} }}"})
    accounts = written(
        tmp_path / "accounts.conf",
        """accounts {
          ACME {
            mappings { a: b }
            exports: [{stream: "a.>"}, {service: "s"}, {stream: x, accounts: [B]}]
          }
          B { imports: [{stream: {account: ACME, subject: a.b}, to: c}, {service: {account: ACME,
              subject: s}}] }
          C { imports: [{stream: {account: B, subject: q}}] }
        }""",
    )
    bare = written(tmp_path / "bare.conf", "accounts { ACME { mappings { a: c } } }")
    for settings in (
        asked(accounts, account="ACME"),
        asked(bare, mapping=accounts, account="ACME"),
    ):
        shared = read_question(settings).shared
        assert sorted(map(str, shared)) == ["export a.>", "export x", "import of a.b by account B"]
    inputs = question_of(tmp_path, candidate)
    assert [stream.name for stream in inputs.streams] == ["S"]
    assert [(c.stream, c.name, c.filters) for c in inputs.consumers] == [("S", "c", ("a",))]
    assert [user.name for user in inputs.users] == ["u"]
    assert inputs.current.mappings == ()


def test_mapping_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("candidate", "mapping")
    files = {name: written(tmp_path / f"{name}.conf", "mappings { a: b }") for name in names}
    given = DryRunSettings(stream="S", **files)
    read, text = [], Files.text

    def noted(files: Files, path: Any, *more: Any) -> str:
        read.append(Path(path).stem)
        return text(files, path, *more)

    monkeypatch.setattr(Files, "text", noted)
    looked_at(given, read_question(given), (), knows_headers=True)
    assert sorted(read) == sorted(names)


def test_users_of_another_account_than_the_mappings(tmp_path: Path) -> None:
    u, v, x = (f"{{user: {u}, password: p, permissions: {{publish: a}}}}" for u in "uvx")
    accounts = f"ACME {{ mappings {{ a: b }}, users: [{x}] }}, APPS {{ users: [{u}, {v}] }}"
    conf = written(tmp_path / "accounts.conf", f"accounts {{ {accounts} }}")
    given = {"account": "ACME", "permissions": conf}
    users = read_question(asked(conf, **given, permissions_account="APPS")).users
    assert [user.name for user in users] == ["u", "v"]
    assert [user.name for user in read_question(asked(conf, **given)).users] == ["x"]


@pytest.mark.parametrize(("name", "document", "code"), rows("dry_run_usage.yaml", "files"))
def test_bad_files_are_one_line(
    name: str, document: object, code: str, tmp_path: Path, candidate: Path
) -> None:
    consumer = {"stream_name": "S", "name": "c", "config": {}}
    files = {"streams/s.json": STREAM, "consumers/ok.json": consumer, "server.conf": "port: 4222"}
    write_files(tmp_path, files | {name: document})
    with pytest.raises(InvalidConfig) as caught:
        question_of(tmp_path, candidate)
    assert getattr(caught.value.fields.get("reason"), "code", caught.value.code) == code
    assert str(caught.value).startswith(str(tmp_path / name))


def test_a_pipe_among_the_consumers_does_not_block(tmp_path: Path, candidate: Path) -> None:
    write_files(tmp_path, {"streams/s.json": STREAM})
    os.mkfifo(tmp_path / "c.json")
    with refused(InvalidConfig, "not-a-regular-file"):
        question_of(tmp_path, candidate, consumers=tmp_path / "c.json", permissions=None)


def test_an_empty_folder_says_what_to_save(tmp_path: Path, candidate: Path) -> None:
    with refused(InvalidConfig, "folder-without-json", command="nats stream info NAME --json"):
        read_question(asked(candidate, streams=tmp_path))


@pytest.mark.parametrize(
    ("config", "candidate", "current", "unseen"), rows("dry_run_usage.yaml", "not looked at")
)
def test_what_subjects_cannot_show_is_said(
    config: dict[str, Any], candidate: str, current: str, unseen: list[str], tmp_path: Path
) -> None:
    write_files(tmp_path, {"s.json": {"config": {"name": "S", **config}}})
    settings = DryRunSettings(
        census=census_file(tmp_path / "census.parquet", {b"a": 1}, stream="S"),
        candidate=written(tmp_path / "new.conf", f"mappings {{ {candidate} }}"),
        mapping=written(tmp_path / "old.conf", f"mappings {{ {current} }}"),
        streams=tmp_path / "s.json",
        clusters=("east", "west"),
    )
    said = [one.what for one in dry_run(lambda: pytest.fail("Spark"), settings).not_looked_at]
    starts = ("how publishers wrote", "messages of cluster east", "messages of cluster west")
    assert [start for start in starts if any(what.startswith(start) for what in said)] == unseen
    assert "mirrors and sources in other accounts and domains" in said


def test_consumers_need_streams(tmp_path: Path, candidate: Path) -> None:
    with refused(ValidationError, "consumers-without-streams"):
        asked(candidate, consumers=tmp_path)


@pytest.mark.server
@pytest.mark.parametrize("more", [(), ("--exact",)], ids=["census", "replay"])
def test_a_cluster_that_is_not_utf_8(stream: Stream, tmp_path: Path, more: tuple[str, ...]) -> None:
    """Publishers say their cluster in a header, any bytes; the dry run counts all of them."""
    blocks = [b"NATS/1.0\r\nC: %s\r\n\r\n" % name for name in (b"eu\xff", b"eu\xfe", b"us")]
    stream.publish([(b"orders", block, b"x") for block in blocks])
    candidate = tmp_path / "new.conf"
    candidate.write_bytes(
        b'mappings { "%s.orders": [{destination: "old", weight: 100},'
        b' {destination: "new", weight: 100, cluster: "eu\xff"}] }' % stream.name.encode()
    )
    where = Warehouse(dir=tmp_path / "warehouse")
    archived(where, stream.name, server={"servers": stream.server.url}, cluster_header="C")
    args = ("dry-run", "--stream", stream.name, "--candidate", candidate, "--fail-on", "never")
    args += ("--warehouse", where.folder, *more)
    found = json.loads(printed(*args, "--json", "--report", tmp_path / "page.html"))
    assert found["summary"]["messages"] == 3
    changes = {one["after"].split()[-1]: one["messages"] for one in found["changes"]}
    assert changes == {"old": 2, "new": 1}
    assert nats_transform(*args)[0] == 0


def test_the_command(warehouse: Warehouse, candidate: Path, tmp_path: Path) -> None:
    where = ("dry-run", "--stream", "S", "--warehouse", warehouse.folder, "--candidate")
    page = tmp_path / "page.html"
    out = printed(*where, candidate, "--report", page, code=1)
    assert "\nlooked at 0 streams, 0 consumers; 0 users with permissions\n" in out
    assert "\nnot looked at: streams (--streams DIR, --server URL or --context NAME); " in out
    assert "error collision: mapping orders.*.*: 2 subjects become 1, because the new" in out
    assert "(20 messages, 33.3 %, 2 subjects)" in out
    assert "1 error, 1 warning, 1 info" in out
    assert page.read_text().startswith("<!doctype html>")
    out = printed(*where, candidate, "--json", "--fail-on", "never")
    assert out.count("\n") == 1
    document = json.loads(out)
    codes = ["collision", "irreversible", "illegal-subject"]
    assert [f["code"] for f in document["findings"]] == codes
    assert document["summary"]["error"] == 1
    # nats-server takes it, and `check` does not: the first message would crash the server.
    crash = written(tmp_path / "crash.conf", 'mappings { "orders.*.*": "" }')
    out = printed(*where, crash, code=1)
    assert "error check-empty-destination: mapping orders.*.*: nats-server crashes" in out
    good = written(tmp_path / "good.conf", 'mappings { "orders.*.*": "shop.$1.$2" }')
    assert nats_transform(*where, good)[0] == 0
    assert nats_transform(*where, good, "--fail-on", "info")[0] == 1


def test_the_command_tells_what_room_would_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the streams do not capture hides nothing of what comes once they do."""
    monkeypatch.chdir(tmp_path)
    census_file(Path("census.parquet"), {b"orders.eu": 5})
    orders = {"name": "ORDERS", "subjects": ["orders.*"]}
    orders["republish"] = {"src": "orders.*", "dest": "live.{{wildcard(1)}}"}
    mapping = 'mappings { "orders.*": "shop.$1" }'
    write_files(tmp_path, {"new.conf": mapping, "streams/ORDERS.json": {"config": orders}})
    args = ("dry-run", "--census", "census.parquet", "--candidate", "new.conf")
    args += ("--streams", "streams")
    out = printed(*args, code=1)
    now, _, room = out.partition("\nif the streams captured the new subjects too:\n")
    assert "error not-captured: stream ORDERS: " in now
    assert now.endswith("\n1 error")
    assert "republish-stops" not in now
    assert room.startswith("warning republish-stops: stream ORDERS: ")
    document = json.loads(nats_transform(*args, "--json")[1])
    assert [one["code"] for one in document["findings"]] == ["not-captured"]
    assert [one["code"] for one in document["with_room"]] == ["republish-stops"]
    told = "if the streams captured the new subjects too: "
    for form in ("github", "markdown", "sarif"):
        assert told in unescape(nats_transform(*args, "--format", form)[1])


@pytest.mark.parametrize(("args", "code", "told"), rows("dry_run_usage.yaml", "options"))
def test_bad_usage_is_one_line(
    args: str, code: str | None, told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    users = "users: [{user: u, password: p, permissions: {publish: a}}]"
    files = {
        "ok.conf": "mappings { a: b }",
        "bad.conf": 'mappings { "a.*": "b.$9" }',
        "acme.conf": f"accounts {{ ACME {{ mappings {{ a: b }}\n{users} }} }}",
    }
    write_files(tmp_path, files)
    said = command.refused("dry-run", "--candidate", *args.split())
    assert (told if code is None else sentence(code, **told)) in said
