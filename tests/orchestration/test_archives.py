"""Archives side by side: what is materialized, what is refused; one does not stop another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from jobs import transform
from jobs.files.transform import TransformTask
from jobs.warehouse import specs, tables
from tests.orchestration.test_submitted_job import unlucky
from tests.support.dagster_project import (
    ASSETS,
    DAYS,
    MAPPING,
    OTHER_WEIGHTS,
    Project,
    failures,
    key,
    materialized,
    values,
)

pytestmark = pytest.mark.dagster


def transformed(project: Project, stream: str) -> int:
    """How many transformed messages are published of a stream."""
    return tables.count_rows(project.warehouse, specs.TRANSFORMED, stream)


def numbers(project: Project, archive: str, asset: str, day: str) -> dict[str, object]:
    """The metadata of the latest materialization of a day."""
    records = dg.AssetRecordsFilter(key(f"{archive}/{asset}"), asset_partitions=[day])
    (record,) = project.instance.fetch_materializations(records, limit=1).records
    return values(record.asset_materialization.metadata)


LAST = {"mapping version", "version", "digest", "snapshot", "input snapshot"}


def reads_well(metadata: Mapping[str, dg.MetadataValue[Any]]) -> None:
    """What people ask for is first, what only programs ask for is last, and numbers are short."""
    names = [name for name in metadata if not name.startswith("dagster/")]
    assert names.index("verdict") == 0 if "verdict" in names else True
    where = [name in LAST for name in names]
    assert where == sorted(where), names
    for name, entry in metadata.items():
        if isinstance(entry, dg.FloatMetadataValue):
            assert entry.value == round(entry.value, 3), name


@pytest.mark.spark
def test_two_archives(project: Project) -> None:
    project.add("east")
    project.add("west", mapping='mappings { "orders.>": "west.orders.>" }')

    for archive in ("east", "west"):
        result = project.made(archive)
        of_days = product(ASSETS[1:], DAYS)
        made = {(f"{archive}/{asset}", day.isoformat()) for asset, day in of_days}
        assert materialized(result) == {(f"{archive}/mapping_version", None)} | made
        checks = result.get_asset_check_evaluations()
        assert len({(check.asset_key, check.check_name) for check in checks}) == 8
        for check in checks:
            assert check.passed
            assert check.description
            reads_well(check.metadata)
            # The UI plots how numbers went.
            assert any(isinstance(entry.value, int | float) for entry in check.metadata.values())
        for event in result.all_events:
            if event.is_step_materialization:
                reads_well(event.materialization.metadata)
    assert transformed(project, "EAST") == 300
    assert transformed(project, "WEST") == 300
    # Each day has its own numbers, though one run made both.
    for day, mapped in zip(DAYS, (113, 112), strict=True):
        assert numbers(project, "east", "messages", day.isoformat())["dagster/row_count"] == 150
        found = numbers(project, "east", "transformed_messages", day.isoformat())
        assert (found["dagster/row_count"], found["mapped"]) == (150, mapped)
        assert found["engine"] == "spark"
        # The split and the balance are of what the checks have counted.
        # Of two destinations the lighter one: the other gets the rest.
        assert "share of orders.v1.$1.$2" not in found
        share = re.search(r"orders\.v2[^|]*\| 40 \| (\S+) \|", str(found["split"]))
        assert float(share[1]) == pytest.approx(found["share of orders.v2.$1.$2"], abs=0.006)
        assert "│" in str(found["split"])
        assert str(found["partitions"]).count("paid") == 3
        assert float(str(found["busiest partition over mean"])) >= 1


def test_a_failed_blocking_check_publishes_nothing(bare_project: Project) -> None:
    bare_project.add("east", mapping=OTHER_WEIGHTS, count=24)
    seed = f"seed: {unlucky('EAST', 24)}"
    bare_project.edit("east", ("seed: 7", seed), ("tolerance: 15", "tolerance: 1"))

    result = bare_project.materialize("east")

    failed = failures(result)
    assert list(failed) == ["east/transformed_messages"]
    message = failed["east/transformed_messages"]
    assert "\n" not in message
    assert "nothing was published" in message
    folder = re.search(r"the files are in file://(\S+)", message)
    staged = list(Path(folder[1]).rglob("*.parquet"))
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in staged) == 24
    assert transformed(bare_project, "EAST") == 0
    checks = _checks(result, "transformed_messages")
    assert checks["weights_within_tolerance"] is False
    assert checks["every_message_once"] is True
    assert "east__weight_audit" not in {
        event.node_name for event in result.all_events if event.is_step_success
    }


def _is(rows: pa.RecordBatch, *sequences: int) -> pa.Array:
    return pc.is_in(rows.column("seq"), pa.array(sequences))


def _without_one(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.filter(pc.invert(_is(rows, 5)))


def _with_one_twice(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([rows, rows.filter(_is(rows, 5))])


def _with_one_altered(rows: pa.RecordBatch) -> pa.RecordBatch:
    data = pc.if_else(_is(rows, 5), pa.scalar(b"other"), rows.column("data"))
    place = rows.schema.get_field_index("data")
    return rows.set_column(place, rows.schema.field("data"), data)


def _with_one_for_another(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([_without_one(rows), rows.filter(_is(rows, 6))])


def _task_with(fault: Callable[[pa.RecordBatch], pa.RecordBatch]) -> type[TransformTask]:
    """A task that makes other rows than it should."""

    class FaultyTask(TransformTask):
        def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            return fault(super()._rows(batch))

    return FaultyTask


def test_a_transform_that_loses_or_alters_messages_publishes_nothing(
    bare_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_project.add("east", count=40)
    bare_project.made("east", ["mapping_version", "messages"])
    for fault, told in (
        (_without_one, "ExpectMessagesToBeConserved: 39 messages"),
        (_with_one_twice, "ExpectMessagesToBeConserved: 41 messages"),
        (_with_one_altered, "ExpectArchiveToBeAsIngested"),
        (_with_one_for_another, "ExpectArchiveToBeAsIngested"),
    ):
        monkeypatch.setattr(transform, "TransformTask", _task_with(fault))

        result = bare_project.materialize("east", ["transformed_messages"])

        assert told in failures(result)["east/transformed_messages"]
        assert _checks(result, "transformed_messages")["every_message_once"] is False
    assert transformed(bare_project, "EAST") == 0


def test_an_archive_that_lost_messages_since_its_ingest_stops_there(bare_project: Project) -> None:
    folder = bare_project.add("east", count=40)
    bare_project.made("east", ["mapping_version", "messages"])
    warehouse = bare_project.warehouse
    table = tables.open_table(warehouse, specs.MESSAGES)
    for file in tables.data_files(table, "EAST"):
        path = file.file_path.removeprefix("file://")
        rows = pq.read_table(path, partitioning=None)
        pq.write_table(rows.slice(0, len(rows) - 1), path)
        Path(path).with_name(f".{Path(path).name}.crc").unlink(missing_ok=True)

    assert "ExpectMessagesToBeConserved: 38 messages" in _failure(
        bare_project, "transformed_messages"
    )
    # From now on the dump has only what is new, so that no ingest compares the rest.
    line = (folder / "messages.jsonl").read_text().splitlines()[-1]
    (folder / "messages.jsonl").write_text(line.replace('"seq": 40', '"seq": 41'))

    result = bare_project.materialize("east", ASSETS[:-1])

    assert _checks(result, "messages") == {
        "every_message_once": False,
        "no_unexplained_gaps": True,  # of what the ingest accounts for
        "subjects_are_legal": True,
    }
    assert transformed(bare_project, "EAST") == 0


def test_sequences_that_the_source_did_not_have_are_explained(bare_project: Project) -> None:
    folder = bare_project.add("east", count=40)
    lines = (folder / "messages.jsonl").read_text().splitlines(keepends=True)
    (folder / "messages.jsonl").write_text("".join(lines[:9] + lines[12:]))

    result = bare_project.made("east", ["mapping_version", "messages"])
    assert all(_checks(result, "messages").values())
    told = numbers(bare_project, "east", "messages", DAYS[0].isoformat())
    assert told["dagster/row_count"] == 17


@pytest.mark.slow
def test_the_same_messages_and_mapping_must_give_the_same_digest(
    bare_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_project.add("east", count=40)
    bare_project.made("east", ASSETS[:-1])
    bare_project.made("east", ["transformed_messages"])

    def without_draws(rows: pa.RecordBatch) -> pa.RecordBatch:
        # Fits the mapping as well as what was there: only the run before can tell.
        draw = pc.if_else(pc.greater(rows.column("seq"), 3), rows.column("draw"), None)
        return rows.set_column(rows.schema.get_field_index("draw"), rows.schema.field("draw"), draw)

    monkeypatch.setattr(transform, "TransformTask", _task_with(without_draws))

    told = _failure(bare_project, "transformed_messages")

    assert "ExpectTheSameDigest" in told
    assert "the job that wrote them" not in told


def _failure(project: Project, asset: str) -> str:
    """Why an asset cannot be made now."""
    return failures(project.materialize("east", [asset]))[f"east/{asset}"]


def _checks(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, bool]:
    """Which checks of an asset passed."""
    return {
        check.check_name: check.passed
        for check in result.get_asset_check_evaluations()
        if check.asset_key.path[-1] == asset
    }


@pytest.mark.parametrize(
    ("file", "text", "asset", "message"),
    [
        pytest.param(
            "mapping.conf",
            'mappings {\n  "a.*": [{ destination: "", weight: 50% }]\n}',
            "mapping_version",
            r"mapping\.conf:2: nats-server crashes",
            id="refused-by-check",
        ),
        pytest.param("messages.jsonl", None, "messages", r"messages\.jsonl", id="no-messages"),
    ],
)
def test_one_archive_fails_and_the_other_goes_on(
    bare_project: Project, file: str, text: str | None, asset: str, message: str
) -> None:
    bad = bare_project.add("bad", count=40)
    bare_project.add("good", count=40)
    (bad / file).unlink()
    if text is not None:
        (bad / file).write_text(text)

    failed = failures(bare_project.materialize("bad"))

    assert list(failed) == [f"bad/{asset}"]
    assert re.search(message, failed[f"bad/{asset}"])
    assert "\n" not in failed[f"bad/{asset}"]
    bare_project.made("good", [asset])


def test_mappings_need_not_be_utf_8(bare_project: Project) -> None:
    """The names in them are bytes, which nothing that Dagster keeps of a run may have raw."""
    folder = bare_project.add("east", count=40)
    odd = MAPPING.encode().replace(b"orders.v2", b"orders.v\xff").replace(b"paid.{", b"p\xff.{")
    (folder / "mapping.conf").write_bytes(odd)
    (folder / "merged.conf").write_bytes(b'mappings { "orders.*.*": "\xff.$1" }')
    result = bare_project.made("east")
    merged = {"east_try_candidate": {"candidate": "merged.conf"}}
    tried = bare_project.run("east_dry_run", ops=merged)
    failure = failures(tried)["east_try_candidate"]
    assert "collision" in failure
    texts = [failure]
    for asset in ASSETS:
        for made in result.asset_materializations_for_node(f"east__{asset}"):
            texts += [f"{name} {entry.value}" for name, entry in made.metadata.items()]
    for check in result.get_asset_check_evaluations():
        texts += [str(check.description), *(str(e.value) for e in check.metadata.values())]
    assert any(r"\udcff" in text for text in texts)
    for text in texts:
        text.encode()  # as the UI does
