"""Tables in an object store, on a local server that speaks S3's protocol.

Spark's own files in S3 take jars that no package index has. Ingest and transform read and write
files by themselves, so they need none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from jobs.errors import ConcurrentWrite, JobError, WarehouseError
from jobs.ingest import IngestSettings, ingest
from jobs.maintain import MaintenanceSettings, maintain
from jobs.session import SessionOnDemand, Spark, SparkSettings
from jobs.transform import TransformSettings, stage
from jobs.transform import publish as publish_transform
from jobs.warehouse import specs, staging, tables, versions
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.backup.archive import read_head, read_messages
from tests.support.exporting import Exporting

DAY = date(2026, 3, 1)
BUCKET = "archive"


@dataclass
class Store:
    """A server with one bucket, and a warehouse in it."""

    server: ThreadedMotoServer
    warehouse: tables.Warehouse
    files: pafs.S3FileSystem

    def names(self) -> set[str]:
        """The paths of all files in the bucket."""
        found = self.files.get_file_info(pafs.FileSelector(BUCKET, recursive=True))
        return {entry.path for entry in found if entry.type == pafs.FileType.File}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        files = pafs.S3FileSystem(
            access_key="key",
            secret_key="secret",  # noqa: S106 - the server takes any
            endpoint_override=endpoint,
            region="eu-west-1",
            allow_bucket_creation=True,
        )
        files.create_dir(BUCKET)
        files.delete_dir_contents(BUCKET)  # moto keeps what earlier tests put there
        for name, value in {
            "TYPE": "sql",
            "URI": f"sqlite:///{tmp_path}/catalog.db",
            "WAREHOUSE": f"s3://{BUCKET}/warehouse",
            "S3__ENDPOINT": endpoint,
            "S3__ACCESS_KEY_ID": "key",
            "S3__SECRET_ACCESS_KEY": "secret",
            "S3__REGION": "eu-west-1",
        }.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__STORE__{name}", value)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it read them on import
        yield Store(server, tables.Warehouse(catalog="store"), files)
    finally:
        server.stop()


def staged(table: Table, sequences: range) -> staging.Staged:
    """Files beside the table, listed as after Spark wrote them."""
    folder = f"{table.location()}/data/stage-{sequences.start}-{sequences.stop}"
    start = datetime.combine(DAY, datetime.min.time(), UTC)
    rows: list[dict[str, Any]] = [
        {"stream": "S", "seq": n, "ts": start + timedelta(seconds=n), "day": DAY, "subject": "a"}
        for n in sequences
    ]
    with table.io.new_output(f"{folder}/_day={DAY}/part-0.parquet").create() as output:
        pq.write_table(
            pa.Table.from_pylist(rows, schema_to_pyarrow(table.schema(), include_field_ids=False)),
            output,
        )
    return staging.Staged(folder, tuple(staging.parquet_files(folder, table)))


def sequences(store: Store) -> list[int]:
    table = tables.open_table(store.warehouse, specs.MESSAGES)
    batches = tables.open_table(store.warehouse, specs.MESSAGES).scan().to_arrow()
    assert table.location().startswith("s3://")
    return sorted(batches.column("seq").to_pylist())


def publish(table: Table, files: staging.Staged, replace: bool = False) -> None:
    staging.publish(table, files, "S", [DAY], replace=replace, properties={"job": "test"})


def test_commits_and_maintenance(store: Store) -> None:
    table = tables.open_table(store.warehouse, specs.MESSAGES, create=True)
    first = staged(table, range(1, 11))
    assert len(first.paths) == 1
    publish(table, first)
    other = tables.open_table(store.warehouse, specs.MESSAGES)
    publish(table, staged(table, range(11, 21)))
    assert sequences(store) == list(range(1, 21))

    late = staged(other, range(100, 110))
    with pytest.raises(ConcurrentWrite):
        publish(other, late)
    assert not any("stage-100" in name for name in store.names())  # what lost is cleared away

    table.refresh()
    publish(table, staged(table, range(1, 6)), replace=True)
    assert sequences(store) == list(range(1, 6))
    left = staged(table, range(200, 210))  # of a job that was killed
    later = datetime.now(UTC) + timedelta(days=30)
    removed = maintain(MaintenanceSettings(warehouse=store.warehouse, now=later))["messages"]
    assert removed.snapshots == 2
    assert not {path.removeprefix("s3://") for path in (*first.paths, *left.paths)} & store.names()
    assert sequences(store) == list(range(1, 6))


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["process", "spark"])
def test_ingest_and_transform_need_no_jar(store: Store, engine: str, request: Any) -> None:
    """Their tasks go through PyIceberg's settings, in this process and in Spark's workers."""
    where: Spark = SessionOnDemand(SparkSettings())
    if engine == "spark":
        where = request.getfixturevalue("spark")
    for part in (0, 1):
        with store.files.open_output_stream(f"{BUCKET}/dumps/{part}.jsonl") as dump:
            for _ in range(10):
                dump.write(b'{"subject": "a", "ts": "2026-03-01T00:00:00Z"}\n')
    for path in (f"s3://{BUCKET}/dumps", f"s3://{BUCKET}/dum*/?.jsonl"):
        wanted = IngestSettings(stream="S", jsonl=path, warehouse=store.warehouse)
        added = ingest(where, wanted)
        names = [f"s3://{BUCKET}/dumps/{part}.jsonl" for part in (0, 1)]
        assert (added.messages, added.files_read) == (20, names)
    assert sequences(store) == list(range(1, 21))
    settings = TransformSettings(stream="S", mapping=Path("-"), warehouse=store.warehouse)
    mappings = AccountMappings([Mapping("a", [Destination("b.{{partition(3)}}")])])
    made = stage(where, settings, mappings, "v")
    result = publish_transform(made)
    assert (result.messages, result.fates["mapped"], result.engine) == (20, 20, engine)
    there = tables.open_table(store.warehouse, specs.TRANSFORMED).scan().to_arrow()
    outcomes = {n: mappings.replay("a", stream="S", seq=n).subject for n in range(1, 21)}
    pairs = zip(there["seq"].to_pylist(), there["mapped_subject"].to_pylist(), strict=True)
    assert dict(pairs) == outcomes
    late = stage(where, settings, mappings, "v")
    publish_transform(stage(where, settings, mappings, "w"))
    with pytest.raises(ConcurrentWrite):
        publish_transform(late)
    gone = {path.removeprefix("s3://") for path in late.files.paths}
    assert gone
    assert not gone & store.names()


def test_mapping_versions(store: Store) -> None:
    for weight in (30, 60, 30):
        mapping = Mapping("a.*", [Destination("b.$1", weight)])
        versions.record(store.warehouse, AccountMappings([mapping]), account="$G", seed=0)
    assert len(versions.read(store.warehouse)) == 2


def test_a_store_that_is_gone(store: Store) -> None:
    table = tables.open_table(store.warehouse, specs.MESSAGES, create=True)
    files = staged(table, range(1, 11))
    store.server.stop()
    with pytest.raises(WarehouseError) as told:
        publish(table, files)
    assert "\n" not in str(told.value)


def test_a_backup_is_exported_into_the_store(store: Store, tmp_path: Path) -> None:
    made = Exporting(tmp_path, warehouse=store.warehouse)
    place = f"s3://{BUCKET}/exports/one"
    result = made.export(to_backup=place)
    folder = f"{BUCKET}/exports/one"
    assert {name for name in store.names() if "/exports/" in name} == {
        f"{folder}/backup.json", f"{folder}/stream.arc.s2"
    }  # fmt: skip
    described = json.loads(store.files.open_input_file(f"{folder}/backup.json").read())
    with store.files.open_input_file(f"{folder}/stream.arc.s2") as file:
        head = read_head(file)
        assert sum(len(batch) for batch in read_messages(file, head.messages)) == result.messages
    assert described["state"] == head.state
    with pytest.raises(JobError, match="is there already"):
        made.export(to_backup=place)
