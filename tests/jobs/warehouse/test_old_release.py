"""An archive that release 0.1.0 made: it is read, grows new columns and keeps its digests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.erase import erase
from jobs.ingest import ingest
from jobs.session import SessionOnDemand
from jobs.settings.erase import EraseSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import TransformResult, transform
from jobs.warehouse.accounting import Archived
from jobs.warehouse.specs import MESSAGES, TRANSFORMED
from jobs.warehouse.tables import open_table, snapshot_properties
from nats_transform.digest import Digest

ARCHIVE = Path(__file__).parent / "archive-0.1.0"
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
    settings = TransformSettings(
        stream="OLD", mapping=ARCHIVE / "m.conf", seed=3, warehouse=old, run_id="again"
    )
    return transform(SessionOnDemand(SparkSettings()), settings)


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


@pytest.mark.spark
def test_gets_nothing_from_the_same_dump(old: Warehouse, spark: SparkSession) -> None:
    settings = IngestSettings(stream="OLD", jsonl=str(ARCHIVE / "dump.jsonl"), warehouse=old)
    result = ingest(spark, settings)
    assert (result.added, result.messages, result.digest) == (0, 40, INGESTED)
    assert "subject_raw" in open_table(old, MESSAGES).schema().column_names
    assert transform_again(old).digest == TRANSFORM


def test_messages_are_erased_from_it(old: Warehouse) -> None:
    """Those whose text is not UTF-8, too."""
    settings = EraseSettings(
        stream="OLD", subject="orders.\udcff.*", reason="r", yes=True, warehouse=old
    )
    result = erase(SessionOnDemand(SparkSettings()), settings)
    (stone,) = result.tombstones
    assert (result.refused, result.messages > 0) == (None, True)
    archived = Archived.of(open_table(old, MESSAGES), "OLD")
    both = archived.digest_of() + Digest.parse(stone.messages, stone.digest)
    assert str(both) == INGESTED
    assert transform_again(old).messages == 40 - stone.messages
    files = [path for path in old.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"orders.\xff" in path.read_bytes()]
