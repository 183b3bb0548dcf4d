"""Running suites: typed reports, kept results, Data Docs without a network, and one pass."""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from expectations.measures.digests import row_hash
from expectations.suites import Reference
from expectations.validation import (
    ChecksBroken,
    Report,
    validate_messages,
    validate_transformed_messages,
)
from jobs.warehouse.specs import MESSAGES, TRANSFORMED
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform import spark as compiled
from tests.expectations.tables import (
    MAPPINGS,
    SEED,
    VERSION,
    archive_digest,
    messages,
    table_digest,
    transformed,
)
from tests.support.archive import Row, frame
from tests.support.browser import CHROMIUM
from tests.support.hostile import HOSTILE, RAW, look_at

pytestmark = pytest.mark.spark

ARCHIVED = messages()
WRITTEN = transformed(ARCHIVED)
ARCHIVE = Reference(len(ARCHIVED), archive_digest(ARCHIVED))


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home and working folder, which must stay so."""
    elsewhere = tmp_path / "nowhere"
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(elsewhere))
    monkeypatch.chdir(elsewhere)
    yield elsewhere
    assert not list(elsewhere.iterdir())


def check(rows: DataFrame, folder: Path, **options: Any) -> Report:
    settings: dict[str, Any] = {
        "name": "SHOP 2026-11-01",
        "archive": ARCHIVE,
        "seed": SEED,
        "version": VERSION,
        "written": table_digest(WRITTEN),
        "archive_hash": row_hash(MESSAGES.spark_schema),
        "table_hash": row_hash(TRANSFORMED.spark_schema),
        "tolerance": 10.0,
        "mappings": MAPPINGS,
    }
    return validate_transformed_messages(rows, folder=folder, **settings | options)


def check_messages(rows: DataFrame, folder: Path, **options: Any) -> Report:
    hashed = row_hash(MESSAGES.spark_schema)
    return validate_messages(rows, folder, **{"name": "SHOP", "row_hash": hashed} | options)


def changed(place: int, **values: Any) -> list[Row]:
    rows = list(WRITTEN)
    rows[place] = rows[place] | values
    return rows


def test_a_good_table_passes_in_silence_and_leaves_results_and_pages(
    spark: SparkSession,
    tmp_path: Path,
    nowhere: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = frame(spark, WRITTEN)
    rows.count()
    capfd.readouterr()
    with caplog.at_level(logging.WARNING):
        report = check(rows, tmp_path / "checks")
    assert report.success
    assert not report.blocks
    assert not report.failures
    assert {result.topic for result in report.results} == {
        "conservation",
        "determinism",
        "subjects",
        "weights",
        "partitions",
    }
    assert capfd.readouterr() == ("", "")
    assert [r.getMessage() for r in caplog.records if r.name.startswith("great_exp")] == []
    assert {entry.name for entry in (tmp_path / "checks").iterdir()} == {"results", "data_docs"}
    kept = json.loads(report.results_path.read_text(encoding="utf-8"))
    assert kept["success"] is True
    assert len(kept["results"]) == len(report.results)
    assert json.loads(json.dumps(report.as_json()))["results"][0]["blocks"] is True


def test_a_bad_table_is_explained(spark: SparkSession, tmp_path: Path) -> None:
    place = next(n for n, row in enumerate(WRITTEN) if row["fate"] == "unmatched")
    rows = changed(place, mapped_subject="a.<script>\udc80</script>..b")
    report = check(frame(spark, rows), tmp_path)
    failures = {failure.name: failure for failure in report.failures}
    assert report.blocks
    legal = failures["ExpectMappedSubjectsToBeLegal"]
    assert legal.observed == "1 message mapped to an illegal subject"
    assert legal.examples[0]["seq"] == WRITTEN[place]["seq"]
    assert legal.examples[0]["mapped_subject"] == r"a.<script>\udc80</script>..b"
    replayed = failures["ExpectScalarReplayToAgree"].examples[0]
    assert replayed["expected mapped_subject"] == WRITTEN[place]["subject"]
    assert "\n" not in str(report)
    assert legal.observed in str(report)
    assert str(report.docs_path) in str(report)
    page = report.docs_path.read_text(encoding="utf-8")
    assert "<script" not in page
    assert "a.&lt;script&gt;" in page


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
def test_names_from_outside_in_chromium(spark: SparkSession, tmp_path: Path) -> None:
    mapped = next(n for n, row in enumerate(WRITTEN) if row["fate"] == "mapped")
    text = HOSTILE.replace("\udcff", "")
    rows = changed(
        mapped,
        subject=HOSTILE,
        mapped_subject=f"{HOSTILE}..x",
        mapping_destination=HOSTILE,
        **dict.fromkeys(
            ("cluster", "mapping_source", "mapping_version", "reason", "fate", "stream"),
            text,
        ),
    )
    weights = AccountMappings([Mapping(HOSTILE, [Destination(f"x.{HOSTILE}", 40)])])
    report = check(
        frame(spark, rows),
        tmp_path / "checks",
        name=HOSTILE,
        mappings=weights,
        version=text,
        before=HOSTILE,
    )
    assert len(report.failures) > 5
    look_at(report.docs_path, tmp_path)
    assert not RAW.search((tmp_path / "checks" / "data_docs" / "index.html").read_text("utf-8"))
    assert not RAW.search(str(report))


def test_pages_need_no_network_and_read_as_sentences(spark: SparkSession, tmp_path: Path) -> None:
    report = check(frame(spark, WRITTEN), tmp_path)
    page = report.docs_path.read_text(encoding="utf-8")
    index = (tmp_path / "data_docs" / "index.html").read_text(encoding="utf-8")
    for text in (page, index):
        assert "http" not in text
        assert "src=" not in text
        assert "<script" not in text
    assert 'All <span class="badge badge-secondary" >2,000</span> messages that went in' in page
    assert f"all {len(report.results)} expectations hold" in page
    for result in report.results:
        assert "$" not in result.expects
    (link,) = (part.partition('"')[0] for part in index.split('href="')[1:])
    assert (tmp_path / "data_docs" / link.replace("%20", " ")) == report.docs_path
    home = page.split('href="')[1].partition('"')[0]
    assert (report.docs_path.parent / home).resolve() == tmp_path / "data_docs" / "index.html"


def test_runs_are_listed_the_latest_first(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark, ARCHIVED)
    first = check_messages(rows, tmp_path, name="SHOP first")
    second = check_messages(rows.where("seq <> 5"), tmp_path, name="a/../<b>")
    assert first.success
    assert not second.success
    assert second.docs_path.is_relative_to(tmp_path / "data_docs" / "messages")
    index = (tmp_path / "data_docs" / "index.html").read_text(encoding="utf-8")
    assert index.index("1 of 4 do not hold") < index.index("all 4 hold")


def test_a_warning_does_not_block(spark: SparkSession, tmp_path: Path) -> None:
    rows = [row | {"subject": "a..b"} if row["seq"] == 9 else row for row in ARCHIVED]
    report = check_messages(frame(spark, rows), tmp_path, name="SHOP")
    assert not report.success
    assert not report.blocks
    assert "A warning: it does not block." in report.docs_path.read_text(encoding="utf-8")


def test_gaps_that_are_explained_pass(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark, ARCHIVED).where("seq NOT BETWEEN 10 AND 20")
    for explained, success in (((8, 20), True), ((10, 19), False), ((11, 30), False)):
        report = check_messages(rows, tmp_path, name="SHOP", explained=[explained])
        assert report.success is success, explained


def test_what_cannot_be_checked_is_no_verdict(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark, ARCHIVED).withColumn("subject", F.raise_error(F.lit("disk on fire")))
    with pytest.raises(ChecksBroken) as caught:
        check_messages(
            rows.withColumn("subject", F.col("subject").cast("string")), tmp_path, name="SHOP"
        )
    assert "disk on fire" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_messages_at_all_are_fine(spark: SparkSession, tmp_path: Path) -> None:
    empty = spark.createDataFrame([], TRANSFORMED.spark_schema)
    report = check(empty, tmp_path, archive=Reference(0, "0" * 16), written="0" * 16)
    assert report.success, str(report)
    report = check_messages(
        spark.createDataFrame([], MESSAGES.spark_schema),
        tmp_path,
        name="SHOP",
        ingested=Reference(0, "0" * 16),
    )
    assert report.success, str(report)


def test_the_checks_of_a_table_read_it_once(spark: SparkSession, tmp_path: Path) -> None:
    read = spark.sparkContext.accumulator(0)

    def seen(subject: str) -> str:
        read.add(1)
        return subject

    count = F.udf(seen, T.StringType(), useArrow=False).asNondeterministic()
    rows = frame(spark, ARCHIVED).withColumn("subject", count("subject"))
    assert check_messages(rows, tmp_path, name="SHOP").success
    assert read.value == len(ARCHIVED)
    rows = frame(spark, WRITTEN).withColumn("subject", count("subject"))
    assert check(rows, tmp_path).success
    assert read.value == len(ARCHIVED) + len(WRITTEN)


def _by_spark(spark: SparkSession, partitions: int, seed: int) -> DataFrame:
    """What Spark makes of the archive, shuffled and in so many partitions."""
    shuffled = random.Random(partitions).sample(ARCHIVED, len(ARCHIVED))
    rows = compiled.apply(MAPPINGS, frame(spark, shuffled).repartition(partitions), seed=seed)
    rows = rows.withColumn("mapping_version", F.lit(VERSION))
    return rows.select(*TRANSFORMED.spark_schema.names)


@pytest.mark.parametrize("partitions", [1, 2, 9])
def test_order_and_partitions_do_not_show(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    report = check(_by_spark(spark, partitions, SEED), tmp_path, before=table_digest(WRITTEN))
    assert report.success, str(report)


def test_rows_of_another_seed_show(spark: SparkSession, tmp_path: Path) -> None:
    report = check(_by_spark(spark, 3, SEED + 1), tmp_path)
    assert {failure.name for failure in report.failures} == {
        "ExpectTheSameDigest",
        "ExpectScalarReplayToAgree",
    }


TRANSFORM_ELSEWHERE = """
import sys
from pyspark.sql import SparkSession, functions as F
from nats_transform.spark.digest import digest
from jobs.warehouse.specs import TRANSFORMED
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform import spark as compiled
from tests.expectations.tables import MAPPINGS, SEED, VERSION, messages
from tests.support.archive import frame

spark = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false").getOrCreate()
rows = compiled.apply(MAPPINGS, frame(spark, messages()), seed=SEED)
rows = rows.withColumn("mapping_version", F.lit(VERSION)).select(*TRANSFORMED.spark_schema.names)
print(digest(rows))
"""


@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[1]", "local[4]", "local-cluster[2,1,1024]"])
def test_the_size_of_the_cluster_does_not_show(master: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", TRANSFORM_ELSEWHERE, master],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"},
    )
    assert found.stdout.strip() == table_digest(WRITTEN)
