"""An archive that release 0.1.0 made: every command reads it, and its digests stay."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.ingest import ingest
from jobs.jetstream.process import nats_server
from jobs.settings.ingest import IngestSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import TransformResult
from jobs.warehouse.accounting import Archived
from jobs.warehouse.specs import MESSAGES, TRANSFORMED
from jobs.warehouse.tables import open_table, snapshot_properties
from nats_transform.digest import Digest
from tests.cases import rows
from tests.support.command import nats_transform
from tests.support.jobs import erased, transformed, verified
from tests.support.streams import new_stream

ARCHIVE = Path(__file__).parent / "archive-0.1.0"
MAPPING = ARCHIVE / "m.conf"
# As 0.1.0 printed them.
INGESTED = "675d36701af8f4df"
TRANSFORM = "5b9a0eccbee0d815"
FATES = {"mapped": 30, "unmatched": 5, "lost": 0, "filtered": 0, "invalid": 5}


@pytest.fixture
def old(tmp_path: Path) -> Warehouse:
    """A copy of the archive, far from where it was made."""
    shutil.copytree(ARCHIVE / "warehouse", tmp_path / "warehouse")
    return Warehouse(dir=tmp_path / "warehouse")


def transform_again(old: Warehouse) -> TransformResult:
    """In this process: the JVM of a session on demand would take longer than the work."""
    return transformed(old, MAPPING, stream="OLD", seed=3, run_id="again")


def test_is_read_as_it_is(old: Warehouse) -> None:
    messages = open_table(old, MESSAGES)
    assert snapshot_properties(messages)["digest"] == INGESTED
    assert messages.scan(selected_fields=("seq",)).to_arrow().num_rows == 40
    assert "subject_raw" not in messages.schema().column_names


def test_is_transformed_to_the_same_digest_with_new_columns(old: Warehouse) -> None:
    result = transform_again(old)
    assert result.engine == "process"
    assert (result.digest, result.archive_digest) == (TRANSFORM, INGESTED)
    assert result.fates == FATES
    table = open_table(old, TRANSFORMED)
    assert set(TRANSFORMED.schema.column_names) <= set(table.schema().column_names)
    rows = table.scan().to_arrow()
    rows.validate(full=True)  # every text is UTF-8 now
    raw = {row["seq"]: row["subject_raw"] for row in rows.to_pylist()}
    assert (raw[1], raw[8]) == (b"orders.\xff.2", None)
    assert {row["mapping_destination_raw"] for row in rows.to_pylist()} == {b"k\xfe.$1", None}


def test_is_transformed_again_without_a_change(old: Warehouse) -> None:
    transform_again(old)
    assert transform_again(old).digest == TRANSFORM


def test_outcomes_alone_are_held_against_the_files(old: Warehouse) -> None:
    """It noted no digest of the columns that they have."""
    assert Archived.of(open_table(old, MESSAGES), "OLD").narrow_of() is None
    result = transformed(old, MAPPING, stream="OLD", seed=3, columns="outcomes")
    assert (result.messages, result.fates) == (40, FATES)
    checked = verified(old, stream="OLD").tables[-1]
    assert (checked.table, checked.report.success) == (TRANSFORMED.name, True)


@pytest.mark.spark
def test_gets_nothing_from_the_same_dump(old: Warehouse, spark: SparkSession) -> None:
    settings = IngestSettings(stream="OLD", jsonl=str(ARCHIVE / "dump.jsonl"), warehouse=old)
    result = ingest(spark, settings)
    assert (result.added, result.messages, result.digest) == (0, 40, INGESTED)
    assert "subject_raw" in open_table(old, MESSAGES).schema().column_names
    assert transform_again(old).digest == TRANSFORM


def test_messages_are_erased_from_it(old: Warehouse) -> None:
    """Those whose text is not UTF-8, too."""
    result = erased(old, "OLD", subject="orders.\udcff.*")
    (stone,) = result.tombstones
    assert (result.refused, result.messages > 0) == (None, True)
    archived = Archived.of(open_table(old, MESSAGES), "OLD")
    both = archived.digest_of() + Digest.parse(stone.messages, stone.digest)
    assert str(both) == INGESTED
    assert transform_again(old).messages == 40 - stone.messages
    files = [path for path in old.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"orders.\xff" in path.read_bytes()]


def run(old: Warehouse, command: str, *more: str) -> tuple[int, str]:
    """The exit code of a command on the archive, and all that it prints."""
    # The paths of a checkout may have a blank.
    words = [str(MAPPING) if word == "MAPPING" else word for word in command.split()]
    code, out, error = nats_transform(*words, *more, "--warehouse", old.folder)
    return code, out + error


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        *rows("old_release.yaml", "commands"),
        pytest.param(
            "certify --stream OLD --candidate MAPPING --streams TMP",
            0,
            "35 messages of 40 tried",
            marks=pytest.mark.server,
        ),
    ],
)
def test_every_command_reads_it(
    old: Warehouse, tmp_path: Path, command: str, code: int, says: str
) -> None:
    (tmp_path / "new.json").write_text('{"name": "NEW", "subjects": ["o.>", "o2.>", "e.>", "k.>"]}')
    found = run(old, command.replace("TMP", str(tmp_path)))
    assert (found[0], says in found[1]) == (code, True), found[1]


def test_it_has_all_after_one_transform(old: Warehouse, tmp_path: Path) -> None:
    """As CHANGELOG.md says: into a branch, compare, promote."""
    transform_settings = ("--stream", "OLD", "--seed", "3", "--mapping", str(MAPPING))
    assert run(old, "transform --branch next", *transform_settings)[0] == 0
    code, out = run(old, "compare main next")
    assert (code, "40 more are equal" in out, "0 differ" in out) == (0, True, True)
    assert "see --json" not in out
    assert run(old, "promote next")[0] == 0
    code, out = run(old, "verify-table --stream OLD")
    assert (code, out.count("40 messages of 2 days")) == (0, 2)
    assert "whether 2 files of messages changed" in out  # those of 0.1.0 have no hash
    assert "OLD: undecided, 40 messages" in run(old, "audit --stream OLD")[1]
    (tmp_path / "s.json").write_text('{"name": "OLD", "subjects": ["orders.>", "kv.>"]}')
    export = f"export --stream OLD --invalid gap --original {tmp_path}/s.json"
    code, out = run(old, export, "--to-backup", str(tmp_path / "backup"))
    assert "with 35 messages" in out, out


@pytest.mark.server
def test_is_replayed(old: Warehouse) -> None:
    with nats_server() as server:
        new = new_stream(server, subjects=["orders.>", "o.>", "o2.>", "e.>", "k.>", "plain"])
        replay = f"replay --stream OLD --to {new.name} --server {server.url} --allow skips"
        code, out = run(old, replay)
        assert (code, new.info().state.messages) == (0, 30), out
        assert run(old, replay)[0] == 0  # what is there already is not sent again
        assert new.info().state.messages == 30
