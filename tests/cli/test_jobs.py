"""The commands that run jobs: what they print, and their one-line errors."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.jetstream.process import NatsServer
from jobs.settings.warehouse import VARIABLE as WAREHOUSE_VARIABLE
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import TRANSFORMED
from jobs.warehouse.tables import open_table
from tests.conformance.client import Client
from tests.support.command import document, printed, refused
from tests.support.command import nats_transform as run
from tests.support.configs import HALVES
from tests.support.exporting import Exporting, consumer
from tests.support.jobs import dumped
from tests.support.programs import SCRIPT, ended
from tests.support.saying import mistakes, says

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def folder(folder: Path) -> Path:
    """An empty current folder with a mapping."""
    (folder / "mapping.conf").write_text(HALVES)
    return folder


def publish(server: NatsServer, stream: str, subjects: Sequence[str]) -> None:
    """Makes a stream with a message on each subject."""
    with Client(server.url) as client:
        client.add_stream(stream, f"{stream}.>")
        for subject in subjects:
            client.request(f"{stream}.{subject}", "data")


def dump(folder: Path, subjects: Sequence[str]) -> str:
    """A Parquet dump with a message on each subject."""
    noon, count = datetime(2026, 11, 30, 12, tzinfo=UTC), len(subjects)
    columns = {"seq": range(1, count + 1), "subject": subjects, "ts": [noon] * count}
    pq.write_table(pa.table(columns), folder / "dump.parquet")
    return str(folder / "dump.parquet")


def test_ingest_and_transform_in_a_process_of_their_own(folder: Path) -> None:
    orders = [f"orders.{n}" for n in range(100)]
    argv = [SCRIPT, "ingest", "--stream", "ORDERS", "--parquet", dump(folder, [*orders, "other"])]
    done = ended(*argv, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    ingested = json.loads(done.stdout)
    expected = {"stream": "ORDERS", "messages": 101, "first_seq": 1, "last_seq": 101, "gaps": 0}
    assert ingested.items() >= expected.items()
    assert {"bytes", "digest", "snapshot_id"} <= ingested.keys()

    transform = ("transform", "--stream", "ORDERS", "--mapping", "mapping.conf")
    transformed = document(*transform)
    fates = {"mapped": 100, "unmatched": 1, "lost": 0, "filtered": 0, "invalid": 0}
    expected = {"stream": "ORDERS", "messages": 101, "days": ["2026-11-30"], "seed": 0}
    assert transformed.items() >= (expected | {"fates": fates}).items()
    assert {"mapping_version", "digest", "snapshot_id"} <= transformed.keys()
    again = document(*transform, "--seed", "1")
    assert again["digest"] != transformed["digest"]

    out = printed(*transform, "--day", "2026-11-30")
    assert out.startswith("ORDERS: 101 messages of 1 day\n  mapped     100\n")
    assert f"digest {transformed['digest']}, snapshot " in out
    made = {"mapping.conf", "dump.parquet", "warehouse"}
    assert {entry.name for entry in folder.iterdir()} == made


def test_a_day_without_messages_is_told(folder: Path) -> None:
    assert run("ingest", "--stream", "S", "--parquet", dump(folder, ["orders.1"]))[0] == 0
    transform = ["transform", "--stream", "S", "--mapping", "mapping.conf", "--day", "2026-12-01"]
    told = "stream S has no messages on 2026-12-01: nothing was published\n"
    assert run(*transform) == (1, "", told)
    code, out, err = run(*transform, "--json")
    assert (code, err) == (1, told)
    assert (json.loads(out)["days"], json.loads(out)["snapshot_id"]) == ([], None)
    table = open_table(Warehouse(dir=folder / "warehouse"), TRANSFORMED)
    assert table.current_snapshot() is None
    assert not list(folder.glob("warehouse/**/transformed_messages/data/*"))
    told = refused("verify-table", "--stream", "S", "--day", "2030-01-01")
    assert says(told, "no-messages-on-days", stream="S")
    # Nor is there a stream whose name is like that of another.
    assert "'B'" in refused("transform", "--stream", "B", "--mapping", "mapping.conf")


def test_a_mistyped_stream_is_answered_with_its_name(nats_server: NatsServer, folder: Path) -> None:
    publish(nats_server, "PARCELS", ["a"])
    live = ("ingest", "--server", nats_server.url, "--warehouse", "here", "--stream")
    assert run(*live, "PARCELS")[0] == 0
    archived = ("--stream", "PARCLES", "--warehouse", "here")
    for given in (
        (*live, "PARCLES"),
        (*live, "parcels"),
        ("transform", "--mapping", "mapping.conf", *archived),
        ("audit", "--mapping", "mapping.conf", *archived),
        ("dry-run", "--candidate", "mapping.conf", *archived),
        ("census", "export", "--out", "census.parquet", *archived),
    ):
        assert refused(*given).endswith("; did you mean PARCELS?\n"), given


def test_ingest_from_a_server(nats_server: NatsServer, folder: Path) -> None:
    publish(nats_server, "LIVE", ["a", "b", "c"])
    args = ["ingest", "--stream", "LIVE", "--server", nats_server.url, "--warehouse", "here"]
    assert printed(*args, "--subject", "none").splitlines() == [
        "LIVE: 0 messages added",
        "no message there has the subject, sequence or time that you asked for",
    ]
    assert document(*args)["messages"] == 3
    assert printed(*args).startswith("LIVE: 0 messages added\n")
    assert (folder / "here").is_dir()


def test_the_warehouse_of_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WAREHOUSE_VARIABLE, str(folder / "there"))
    document("ingest", "--stream", "A", "--parquet", dump(folder, ["a"]))
    assert (folder / "there").is_dir()
    assert not (folder / "warehouse").exists()
    document("ingest", "--stream", "A", "--parquet", dump(folder, ["a"]), "--warehouse", "here")
    assert (folder / "here").is_dir()


@pytest.mark.parametrize(("args", "told"), mistakes("ingest"))
def test_what_cannot_be_ingested_is_one_line_and_leaves_nothing(
    nats_server: NatsServer, folder: Path, args: str, told: str
) -> None:
    if "EMPTY" in args:
        publish(nats_server, "EMPTY", [])
    given = args.replace("SERVER", nats_server.url).replace("NINES", "9" * 5000).split()
    assert re.search(told, refused("ingest", "--stream", "NONE", *given))
    assert {entry.name for entry in folder.iterdir()} == {"mapping.conf"}


@pytest.mark.parametrize(
    "command",
    [
        "ingest --stream A --server nats://u:se,cret@127.0.0.1:1",
        "ingest --stream A --server nats://u:12,secret@127.0.0.1:1",
        "ingest --stream A --parquet s3://k:secret@bucket/dump",
        "export --stream A --untransformed --config c.json --to-backup s3://k:secret@bucket/b",
        "verify --plan p --step 1 --monitor http://admin:secret@localhost:8222",
    ],
)
def test_an_address_with_a_secret_is_not_printed(folder: Path, command: str) -> None:
    line = refused(*command.split())
    assert not any(part in line for part in ("u:se", "u:12", "secret", "cret@"))
    assert says(line, "server-address") or says(line, "secret-in-address")


def test_a_warehouse_that_cannot_be_written(folder: Path) -> None:
    (folder / "file").touch()
    path = dump(folder, ["a"])
    line = refused("ingest", "--stream", "A", "--parquet", path, "--warehouse", "file/warehouse")
    assert str(folder / "file") in line


@pytest.mark.parametrize(("args", "told"), mistakes("transform"))
def test_what_cannot_be_transformed_is_one_line_and_leaves_nothing(
    folder: Path, args: str, told: str
) -> None:
    (folder / "bad.conf").write_text("mappings { foo: 'b.*' }")
    (folder / "accounts.conf").write_text("accounts { A { mappings { foo: bar } } }")
    assert re.search(told, refused("transform", "--stream", "ORDERS", *args.split()))
    if "accounts.conf" in args:
        assert re.search(told, refused("audit", "--stream", "ORDERS", *args.split()))
    assert not (folder / "warehouse").exists()


def test_what_an_export_prints(tmp_path: Path) -> None:
    made = Exporting(tmp_path, {"d": [{"subject": "b.x"}]}, d=consumer("d"), all=consumer())
    common = ("export", "--stream", "S", "--warehouse", str(tmp_path / "warehouse"))
    common += ("--original", str(made.backup))
    out = printed(*common, "--untransformed", "--to-backup", str(tmp_path / "back"))
    assert out.splitlines() == [
        f"{tmp_path}/back: stream S with 5 messages",
        "sequences 11 to 25, 10 of them without a message",
        "subjects a.*, b.*, c.*, d",
        "consumers all, d",
        "digest " + out.split()[-1],
    ]
    given = ("--mapping", str(made.mapping), "--to-backup", str(tmp_path / "new"))
    found = document(*common, *given, code=1)
    assert (found["messages"], found["consumers"]) == (5, ["all"])
    assert [finding["code"] for finding in found["findings"]] == ["consumer"]
    assert says(refused(*common, *given), "new-backup-exists", place=f"{tmp_path}/new")


def test_scattered_sequences_of_an_erasure_are_a_short_line() -> None:
    rows = (
        {"seq": n, "subject": f"shop.{n % 2}", "ts": "2025-11-30T10:00:00Z"} for n in range(1, 1001)
    )
    printed("ingest", "--stream", "S", "--jsonl", dumped(Path("dump.jsonl"), rows))
    given = ("erase", "--stream", "S", "--subject", "shop.1")
    (line,) = [line for line in run(*given)[1].splitlines() if "sequences" in line]
    assert line.startswith("sequences 1-1, 3-3, 5-5, ")
    assert line.endswith(", 39-39 (and 480 more), which no ingest brings back")
    assert len(json.loads(run(*given, "--json")[1])["sequences"].split()) == 500


def test_a_replay_is_refused_then_sent(nats_server: NatsServer) -> None:
    rows = [
        {"seq": 1, "ts": "2026-01-01T00:00:00Z", "subject": "old.a", "data": "1"},
        {"seq": 2, "ts": "2026-01-01T00:00:01Z", "subject": "other \u001b[31m", "data": "2"},
        {"seq": 3, "ts": "2026-01-01T00:00:02Z", "subject": "other", "data": "3"},
    ]
    dumped(Path("dump.jsonl"), rows)
    Path("mapping.conf").write_text('mappings { "old.*": "new.$1" }')
    with Client(nats_server.url) as client:
        client.add_stream("TARGET", "new.>")
    printed("ingest", "--stream", "S", "--jsonl", "dump.jsonl")
    printed("transform", "--stream", "S", "--mapping", "mapping.conf")
    replay = ("replay", "--stream", "S", "--to", "TARGET", "--server", nats_server.url)
    for more in (("--dry-run",), ()):
        code, out, _ = run(*replay, *more)
        assert code == 1
        assert "refused: 1 message has a subject that the protocol cannot carry" in out
        assert "(other: stream TARGET does not capture it)" in out
        assert "--allow skips" in out
        assert "S into TARGET: nothing would be sent" in out
        assert "\x1b" not in out
    out = printed(*replay, "--fates", "mapped")
    assert "S into TARGET: 1 message sent" in out
    assert "TARGET holds 1 message" in out
    found = document(*replay, "--allow", "skips")
    assert (found["sent"], found["already"]) == (0, 1)
    assert found["not_sent"] == {"captured": 1, "subject": 1}
    assert run(*replay, "--fates", "lost")[0] == 2
