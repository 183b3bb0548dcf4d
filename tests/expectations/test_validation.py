"""Running suites: typed reports, kept results, Data Docs without a network, and one pass."""

from __future__ import annotations

import json
import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from expectations.docs import keep, run_checkpoint, summary, write_index
from expectations.expectation import ChecksBroken, Report, Suite, report_on
from expectations.great import suite_of
from expectations.messages import measure_messages, messages_suite
from expectations.transformed import transformed_messages_suite
from nats_transform.digest import Digest
from tests.expectations.tables import (
    MAPPINGS,
    SEED,
    VERSION,
    archive_digest,
    batches,
    measure,
    messages,
    table_digest,
    transformed,
)
from tests.support.archive import Row
from tests.support.browser import Browser
from tests.support.hostile import HOSTILE, RAW, look_at
from tests.support.programs import printed_in_python
from tests.support.rules import mappings

ARCHIVED = messages()
WRITTEN = transformed(ARCHIVED)
ARCHIVE = archive_digest(ARCHIVED)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home and working folder, which must stay so."""
    elsewhere = tmp_path / "nowhere"
    elsewhere.mkdir()
    monkeypatch.setenv("HOME", str(elsewhere))
    monkeypatch.chdir(elsewhere)
    yield elsewhere
    assert not list(elsewhere.iterdir())


def validate(measures: Any, suite: Suite, folder: Path, *, name: str) -> tuple[Report, Path]:
    """The report, and its page."""
    report = report_on(measures, suite)
    return report, keep(report, folder, name=name)


def check(
    rows: list[Row], folder: Path, name: str = "SHOP 2026-11-01", size: int = 700, **options: Any
) -> tuple[Report, Path]:
    settings: dict[str, Any] = {
        "archive": ARCHIVE,
        "seed": SEED,
        "version": VERSION,
        "before": table_digest(WRITTEN),
        "tolerance": 10.0,
        "mappings": MAPPINGS,
    } | options
    measures = measure(version=settings["version"])(batches(rows, size))
    return validate(measures, transformed_messages_suite(**settings), folder, name=name)


def check_messages(
    rows: list[Row], folder: Path, *explained: tuple[int, int]
) -> tuple[Report, Path]:
    suite = messages_suite(archive_digest(rows), explained)
    return validate(measure_messages(batches(rows)), suite, folder, name="SHOP")


def changed(place: int, **values: Any) -> list[Row]:
    rows = list(WRITTEN)
    rows[place] = rows[place] | values
    return rows


def test_a_good_table_passes_in_silence_and_leaves_results_and_pages(
    tmp_path: Path,
    nowhere: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        report, _ = check(WRITTEN, tmp_path / "checks")
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
    (results,) = (tmp_path / "checks" / "results").rglob("*.json")
    kept = json.loads(results.read_text(encoding="utf-8"))
    assert kept["success"] is True
    assert len(kept["results"]) == len(report.results)
    assert report.results[0].blocks


def test_a_bad_table_is_explained(tmp_path: Path) -> None:
    place = next(n for n, row in enumerate(WRITTEN) if row["fate"] == "unmatched")
    rows = changed(place, mapped_subject="a.<script>\udc80</script>..b")
    report, docs = check(rows, tmp_path)
    failures = {failure.name: failure for failure in report.failures}
    assert report.blocks
    legal = failures["ExpectMappedSubjectsToBeLegal"]
    assert legal.observed == "1 message mapped to an illegal subject"
    assert legal.examples[0]["seq"] == WRITTEN[place]["seq"]
    assert legal.examples[0]["mapped_subject"] == r"a.<script>\udc80</script>..b"
    replayed = failures["ExpectEveryOutcomeToAgree"].examples[0]
    assert replayed["expected mapped_subject"] == WRITTEN[place]["subject"]
    assert "\n" not in str(report)
    assert legal.observed in str(report)
    page = docs.read_text(encoding="utf-8")
    assert "<script" not in page
    assert "a.&lt;script&gt;" in page


def test_names_from_outside_in_chromium(browser: Browser, tmp_path: Path) -> None:
    mapped = next(n for n, row in enumerate(WRITTEN) if row["fate"] == "mapped")
    text = HOSTILE.replace("\udcff", "")
    rows = changed(
        mapped,
        subject=HOSTILE,
        mapped_subject=f"{HOSTILE}..x",
        mapping_destination=HOSTILE,
        **dict.fromkeys(
            ("cluster", "mapping_source", "mapping_version", "reason", "fate", "stream"), text
        ),
    )
    weights = mappings({HOSTILE: [(f"x.{HOSTILE}", 40)]})
    given = {"name": HOSTILE, "mappings": weights, "version": text, "before": HOSTILE}
    report, docs = check(rows, tmp_path / "checks", **given)
    assert len(report.failures) > 5
    look_at(browser, docs)
    browser.look(docs, scrolls=True)
    browser.look(tmp_path / "checks" / "data_docs" / "index.html")
    assert not RAW.search((tmp_path / "checks" / "data_docs" / "index.html").read_text("utf-8"))
    assert not RAW.search(str(report))


def test_pages_need_no_network_and_read_as_sentences(tmp_path: Path) -> None:
    report, docs = check(WRITTEN, tmp_path)
    page = docs.read_text(encoding="utf-8")
    index = (tmp_path / "data_docs" / "index.html").read_text(encoding="utf-8")
    for text in (page, index):
        assert "http" not in text
        assert "src=" not in text
        assert "<script" not in text
    assert "All 2,000 messages that went in" in page
    assert f"all {len(report.results)} expectations hold" in page
    for result in report.results:
        assert "$" not in result.expects
    (link,) = (part.partition('"')[0] for part in index.split('href="')[1:])
    assert (tmp_path / "data_docs" / link.replace("%20", " ")) == docs
    home = page.split('href="')[1].partition('"')[0]
    assert (docs.parent / home).resolve() == tmp_path / "data_docs" / "index.html"


def test_runs_are_listed_the_latest_first(tmp_path: Path) -> None:
    suite = messages_suite(ARCHIVE)
    without = [row for row in ARCHIVED if row["seq"] != 5]
    first, second = (
        validate(measure_messages(batches(rows)), suite, tmp_path, name=name)
        for name, rows in (("SHOP first", ARCHIVED), ("a/../<b>", without))
    )
    assert first[0].success
    assert not second[0].success
    assert second[1].is_relative_to(tmp_path / "data_docs" / "messages")
    index = (tmp_path / "data_docs" / "index.html").read_text(encoding="utf-8")
    assert index.index("2 of 5 do not hold") < index.index("all 5 hold")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"success": tr', id="half-written"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"[]", id="list"),
        pytest.param(b'{"statistics": 1, "meta": {"run_id": {}}}', id="other-types"),
        pytest.param(b"\xff", id="not-utf-8"),
    ],
)
def test_kept_results_that_are_damaged_stop_no_run(tmp_path: Path, content: bytes) -> None:
    """Other runs share the folder, and Great Expectations writes results bit by bit."""
    check_messages(ARCHIVED, tmp_path)
    (damaged,) = (tmp_path / "results").rglob("*.json")
    damaged.write_bytes(content)
    check_messages(ARCHIVED, tmp_path)
    index = (tmp_path / "data_docs" / "index.html").read_text(encoding="utf-8")
    assert index.count("all 5 hold") == 1, index


def test_no_flipped_bit_of_kept_results_stops_a_run(tmp_path: Path) -> None:
    check_messages(ARCHIVED, tmp_path)
    results = tmp_path / "results"
    (file,) = results.rglob("*.json")
    data = file.read_bytes()
    listed = summary(file, results)
    chance = random.Random(4)
    damaged = 0
    for _ in range(400):
        place = chance.randrange(len(data))
        flipped = data[place] ^ 1 << chance.randrange(8)
        file.write_bytes(data[:place] + bytes([flipped]) + data[place + 1 :])
        run = summary(file, results)
        assert run is None or run["success"]
        damaged += run != listed
    assert damaged > 50
    write_index(tmp_path)


def test_a_warning_does_not_block(tmp_path: Path) -> None:
    rows = [row | {"subject": "a..b"} if row["seq"] == 9 else row for row in ARCHIVED]
    report, docs = check_messages(rows, tmp_path)
    assert not report.success
    assert not report.blocks
    assert "A warning: it does not block." in docs.read_text(encoding="utf-8")


def test_gaps_that_are_explained_pass(tmp_path: Path) -> None:
    rows = [row for row in ARCHIVED if not 10 <= row["seq"] <= 20]
    for explained, success in (((8, 20), True), ((10, 19), False), ((11, 30), False)):
        assert check_messages(rows, tmp_path, explained)[0].success is success, explained


def test_what_cannot_be_checked_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(ChecksBroken) as caught:
        validate("no measures", messages_suite(ARCHIVE), tmp_path, name="SHOP")
    assert "'str' object has no attribute 'archive'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_messages_at_all_are_fine(tmp_path: Path) -> None:
    suite = transformed_messages_suite(MAPPINGS, archive=Digest(), before=str(Digest()))
    for found, of_table in (
        (measure()([]), suite),
        (measure_messages([]), messages_suite(Digest())),
    ):
        report, _ = validate(found, of_table, tmp_path, name="SHOP")
        assert report.success, str(report)


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.slow), 7, 300, 2000])
def test_order_and_batches_do_not_show(tmp_path: Path, size: int) -> None:
    shuffled = random.Random(size).sample(WRITTEN, len(WRITTEN))
    report, _ = check(shuffled, tmp_path, size=size)
    assert report.success, str(report)


def test_rows_of_another_seed_show(tmp_path: Path) -> None:
    report, _ = check(transformed(ARCHIVED, seed=SEED + 1), tmp_path)
    assert {failure.name for failure in report.failures} == {
        "ExpectTheSameDigest",
        "ExpectEveryOutcomeToAgree",
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
rows = rows.withColumn("mapping_version", F.lit(VERSION)).select(*TRANSFORMED.rows.names)
print(digest(rows))
"""


@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[1]", "local[4]", "local-cluster[2,1,1024]"])
def test_the_size_of_the_cluster_does_not_show(master: str) -> None:
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    found = printed_in_python(TRANSFORM_ELSEWHERE, master, cwd=Path(__file__).parents[2], env=env)
    assert found.strip() == table_digest(WRITTEN)


def test_values_in_the_page_of_a_users_suite_are_text(tmp_path: Path) -> None:
    suite = suite_of(
        "theirs",
        [
            {
                "type": "expect_column_values_to_match_regex",
                "kwargs": {"column": "subject", "regex": "^<script>x</script>$"},
                "severity": "warning",
            },
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "<script>"}},
        ],
    )
    rows = ["<script>alert(1)</script>", HOSTILE.replace("\udcff", "")]  # as tables store text
    frame = pd.DataFrame({"subject": rows})
    results, file = run_checkpoint(suite, frame, tmp_path, name="SHOP")
    page = file.read_text(encoding="utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    first, second = sorted(results, key=lambda result: result.blocks)
    assert (first.blocks, first.observed) == (False, "2 of 2 rows break it")
    assert (second.blocks, second.success) == (True, False)
    assert "does not exist" in second.observed
