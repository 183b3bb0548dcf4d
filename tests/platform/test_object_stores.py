"""Tables in each object store that we name, on local servers of their protocols, in three catalogs.

The SQL catalog and that of Glue (of the same server as S3) know where the store is; a REST catalog
tells it with each table.

Spark's own files in a store take jars that no package index has. Ingest and transform read and
write files by themselves, so they need none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from jobs import gate
from jobs.erase import erase
from jobs.errors import ConcurrentWrite, JobError, NoTable, WarehouseError
from jobs.files.storage import Storage
from jobs.ingest import ingest
from jobs.maintain import maintain
from jobs.session import Spark
from jobs.settings.erase import EraseSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.maintain import MaintenanceSettings
from jobs.settings.transform import TransformSettings
from jobs.transform import transform
from jobs.warehouse import specs, staging, tables, versions
from nats_transform.backup.archive import read_head, read_messages
from tests.support.archive import Row, message, staged
from tests.support.command import nats_transform as invoke
from tests.support.configs import HALVES
from tests.support.exporting import Exporting
from tests.support.jobs import HERE, dumped, ingested, transformed
from tests.support.kept import kept_of
from tests.support.object_stores import BUCKET, ObjectStore, azure, gcs, s3
from tests.support.refused import refused
from tests.support.rest_catalog import CREDENTIAL, SCOPE, WAREHOUSE, Catalog, rest_catalog
from tests.support.rules import mappings

START = datetime(2026, 3, 1, tzinfo=UTC)
STORES = [
    "s3 rest",
    *(
        pytest.param(one, marks=pytest.mark.slow)
        for one in ("s3 sql", "s3 glue", "azure sql", "gcs sql")
    ),
]


@dataclass
class Store(ObjectStore):
    """An object store, and a warehouse in it."""

    warehouse: tables.Warehouse
    rest: Catalog | None = None


@pytest.fixture(params=STORES)
def store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Store]:
    kind, _, known_by = request.param.partition(" ")
    with ExitStack() as stack:
        made = stack.enter_context({"s3": s3, "gcs": gcs, "azure": azure}[kind](tmp_path))
        place = f"{made.bucket}/warehouse"
        catalog = {"type": known_by, "warehouse": place}
        rest = None
        if known_by == "sql":
            catalog |= made.settings | {"uri": f"sqlite:///{tmp_path}/catalog.db"}
        elif known_by == "glue":
            catalog |= made.settings | {
                name.replace("s3.", "glue."): value for name, value in made.settings.items()
            }
        else:
            uri, rest = stack.enter_context(rest_catalog(tmp_path, place, made.settings))
            catalog |= {
                "uri": uri,
                "warehouse": WAREHOUSE,
                "credential": CREDENTIAL,
                "scope": SCOPE,
            }
            catalog["oauth2-server-uri"] = f"{uri}/v1/oauth/tokens"
        configure(monkeypatch, catalog)
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it read them on import
        yield Store(**vars(made), warehouse=tables.Warehouse(catalog="store"), rest=rest)


def configure(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    """Give PyIceberg more settings of the catalog."""
    for name, value in settings.items():
        variable = name.upper().replace(".", "__").replace("-", "_")
        monkeypatch.setenv(f"PYICEBERG_CATALOG__STORE__{variable}", value)


def names(*files: staging.Staged) -> set[str]:
    """What the store calls staged files."""
    return {file.file_path.partition("://")[2] for one in files for file in one.data_files}


def messages(sequences: range) -> list[Row]:
    return [message(n, "a", START + timedelta(seconds=n)) for n in sequences]


def sequences(store: Store) -> list[int]:
    table = tables.open_table(store.warehouse, specs.MESSAGES)
    assert table.location().startswith(store.bucket)
    return sorted(table.scan().to_arrow()["seq"].to_pylist())


def publish(table: Table, files: staging.Staged, replace: bool = False) -> None:
    staging.publish(table, files, "S", [START.date()], replace=replace, properties={"job": "test"})


def test_commits_and_maintenance(store: Store) -> None:
    table = tables.open_table(store.warehouse, specs.MESSAGES, create=True)
    first = staged(table, messages(range(1, 11)))
    assert len(first.data_files) == 1
    publish(table, first)
    other = tables.open_table(store.warehouse, specs.MESSAGES)
    publish(table, staged(table, messages(range(11, 21))))
    assert sequences(store) == list(range(1, 21))

    late = staged(other, messages(range(100, 110)))
    with pytest.raises(ConcurrentWrite):
        publish(other, late)
    assert not names(late) & store.names()  # what lost is cleared away

    table.refresh()
    publish(table, staged(table, messages(range(1, 6))), replace=True)
    assert sequences(store) == list(range(1, 6))
    left = staged(table, messages(range(200, 210)))  # of a job that was killed
    later = datetime.now(UTC) + timedelta(days=30)
    removed = maintain(MaintenanceSettings(warehouse=store.warehouse, now=later))["messages"]
    assert removed.snapshots == 2
    assert not names(first, left) & store.names()
    assert sequences(store) == list(range(1, 6))


def test_erasure(store: Store, tmp_path: Path) -> None:
    line = '{"seq": %d, "ts": "2026-03-0%d", "subject": "u.%s", "data": "of %s"}\n'
    names = {1: "a", 2: "secret", 3: "b", 4: "secret"}
    dump = tmp_path / "dump.jsonl"
    dump.write_text("".join(line % (n, 1 + n // 4, who, who) for n, who in names.items()))
    ingested(store.warehouse, dump)
    for branch in (None, "next"):
        transformed(store.warehouse, mappings({"u.*": "v.$1"}), branch)
    which = EraseSettings(
        stream="S", subject="u.secret", reason="r", yes=True, warehouse=store.warehouse
    )
    result = erase(HERE, which)
    assert (result.messages, result.refused) == (2, None)
    rewritten = {name: its.rewritten for name, its in result.tables.items()}
    assert rewritten == {"messages": 2, "transformed_messages": 4}
    assert (ingested(store.warehouse, dump).added, sequences(store)) == (0, [1, 3])
    for path in store.names():
        data = store.files.open_input_file(path).read()
        assert b"secret" not in data
        if path.endswith(".parquet"):
            assert "secret" not in str(pq.read_table(pa.BufferReader(data)).to_pylist())
    rows = [path for path in store.names() if re.search(r"messages/data/.*\.parquet$", path)]
    assert len(rows) == 3  # of messages, of the main branch and of the other one


PARTS = ("dumps/0.jsonl", "dumps/more/1.jsonl")


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["process", "spark"])
def test_ingest_and_transform_need_no_jar(
    store: Store, engine: str, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their tasks go through PyIceberg's settings, in this process and in Spark's workers."""
    configure(monkeypatch, store.settings)  # a REST catalog gives out those of its tables alone
    where: Spark = request.getfixturevalue("spark") if engine == "spark" else HERE
    for part in PARTS:
        with store.files.open_output_stream(f"{BUCKET}/{part}") as dump:
            for _ in range(10):
                dump.write(b'{"subject": "a", "ts": "2026-03-01T00:00:00Z"}\n')
    for path in (f"{store.bucket}/dumps", f"{store.bucket}/dum*/{{?,mo*/?}}.jsonl"):
        wanted = IngestSettings(stream="S", jsonl=path, warehouse=store.warehouse)
        added = ingest(where, wanted)
        dumps = [f"{store.bucket}/{part}" for part in PARTS]
        assert (added.messages, added.files_read) == (20, dumps)
    assert sequences(store) == list(range(1, 21))
    settings = TransformSettings(stream="S", mapping=Path("-"), warehouse=store.warehouse)
    rules = mappings({"a": "b.{{partition(3)}}"})
    result = transform(where, settings, rules)
    assert (result.messages, result.fates["mapped"], result.engine) == (20, 20, engine)
    there = tables.open_table(store.warehouse, specs.TRANSFORMED).scan().to_arrow()
    outcomes = {n: rules.replay("a", stream="S", seq=n).subject for n in range(1, 21)}
    pairs = zip(there["seq"].to_pylist(), there["mapped_subject"].to_pylist(), strict=True)
    assert dict(pairs) == outcomes
    publish, late = gate.publish, set[str]()

    def overtaken(spark: Any, table: Any, files: staging.Staged, *given: Any, **more: Any) -> Any:
        """Comes to the gate while another run passes it."""
        monkeypatch.setattr(gate, "publish", publish)
        late.update(names(files))
        transform(where, settings, rules)
        return publish(spark, table, files, *given, **more)

    monkeypatch.setattr(gate, "publish", overtaken)
    with pytest.raises(ConcurrentWrite):
        transform(where, settings, rules)
    assert late
    assert not late & store.names()


COMMANDS = (
    ("ingest", "--stream", "S", "--jsonl", "dump.jsonl"),
    ("transform", "--stream", "S", "--mapping", "mapping.conf"),
    ("audit", "--stream", "S", "--mapping", "mapping.conf"),
    ("dry-run", "--stream", "S", "--candidate", "mapping.conf"),
    ("maintain",),
)


def lasting(value: Any) -> Any:
    """A JSON document without what is new in each run."""
    if isinstance(value, list):
        return [lasting(one) for one in value]
    if not isinstance(value, dict):
        return value
    fleeting = ("snapshot", "run_id", "seconds", "warehouse", "bytes")
    return {key: lasting(one) for key, one in value.items() if not any(f in key for f in fleeting)}


def test_all_commands_say_what_they_say_in_a_folder(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"subject": f"a.{n}", "ts": f"2026-03-01T{n // 60:02}:00Z"} for n in range(600)]
    dumped(tmp_path / "dump.jsonl", rows)
    (tmp_path / "mapping.conf").write_text(HALVES.replace("orders", "a"))
    told = {}
    for where in (("--catalog", "store"), ("--warehouse", "folder")):
        for command in COMMANDS:
            code, out, err = invoke(*command, *where, "--json")
            assert code == 0, (command, err)
            told[where[0], command[0]] = lasting(json.loads(out))
    for command, *_ in COMMANDS:
        assert told["--catalog", command] == told["--warehouse", command]


ONLY_REST = pytest.mark.parametrize("store", ["s3 rest"], indirect=True)


@ONLY_REST
@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [
        pytest.param(503, None, 0, id="refused"),
        pytest.param(401, None, 0, id="no longer logged in"),
        pytest.param(None, 502, 10, id="done, and the answer lost"),
    ],
)
def test_a_commit_that_fails_keeps_its_files(
    store: Store, before: int | None, after: int | None, rows: int
) -> None:
    """Whether it was done is not known: what it may have made part of the table must stay."""
    table = tables.open_table(store.warehouse, specs.MESSAGES, create=True)
    files = staged(table, messages(range(1, 11)))
    store.rest.failing, store.rest.failing_after = before, after
    with pytest.raises(WarehouseError):
        publish(table, files)
    store.rest.failing = store.rest.failing_after = None
    assert names(files) <= store.names()
    assert sequences(store) == list(range(1, rows + 1))


@ONLY_REST
def test_the_catalog_refuses_a_commit_that_another_overtook(store: Store) -> None:
    """The job looked at the table, and found it as it was; only the catalog can know better."""
    table = tables.open_table(store.warehouse, specs.MESSAGES, create=True)
    late = staged(table, messages(range(1, 11)))
    other = tables.open_table(store.warehouse, specs.MESSAGES)
    first = staged(other, messages(range(5, 21)))
    store.rest.overtaking = lambda: publish(other, first)
    with pytest.raises(ConcurrentWrite):
        publish(table, late)
    assert store.rest.statuses[409] == 1
    assert sequences(store) == list(range(5, 21))
    assert not names(late) & store.names()


@ONLY_REST
def test_a_job_outlives_its_token(store: Store) -> None:
    table = tables.open_table(store.warehouse, specs.MESSAGES, create=True)
    files = staged(table, messages(range(1, 11)))
    store.rest.tokens.clear()
    publish(table, files)
    assert sequences(store) == list(range(1, 11))
    assert store.rest.statuses[401]


@ONLY_REST
def test_keys_come_from_the_catalog_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table whose catalog was not asked for keys, nothing can be read."""
    table = tables.open_table(store.warehouse, specs.MESSAGES, create=True)
    assert table.io.properties["s3.secret-access-key"] == "secret"
    configure(monkeypatch, {"header.X-Iceberg-Access-Delegation": "remote-signing"})
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    other = tables.open_table(store.warehouse, specs.MESSAGES)
    assert "s3.secret-access-key" not in other.io.properties


@ONLY_REST
@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("CREDENTIAL", "archivist:wrong", "wrong credential"),
        ("SCOPE", "catalog", "wrong scope"),
        ("WAREHOUSE", "other", "no such warehouse"),
        ("URI", "http://127.0.0.1:9", "refused"),
    ],
)
def test_a_catalog_that_refuses_says_so_on_one_line(
    store: Store, monkeypatch: pytest.MonkeyPatch, setting: str, value: str, told: str
) -> None:
    monkeypatch.setenv(f"PYICEBERG_CATALOG__STORE__{setting}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    for create in (False, True):
        with pytest.raises(WarehouseError, match=told):
            tables.open_table(store.warehouse, specs.MESSAGES, create=create)


def test_what_is_only_read_makes_nothing(store: Store) -> None:
    with pytest.raises(NoTable):
        tables.open_table(store.warehouse, specs.MESSAGES)
    assert not tables.open_catalog(store.warehouse).list_namespaces()


def test_a_table_that_is_let_go_keeps_nothing(store: Store) -> None:
    """The garbage collector is not waited for: each file system may have threads and sockets."""

    def look() -> None:
        table = tables.open_table(store.warehouse, specs.MESSAGES, create=True)
        Storage.of(table).find(table.metadata_location)

    # Less than one of each call: libraries and the servers here close a little later.
    assert all(count < 10 for count in kept_of(look, calls=10).values())


def test_mapping_versions(store: Store) -> None:
    for weight in (30, 60, 30):
        rules = mappings({"a.*": [("b.$1", weight)]})
        versions.record(store.warehouse, rules, account="$G", seed=0)
    assert len(versions.read(store.warehouse)) == 2


def test_a_store_that_is_gone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, {"glue.max-retries": "0"})
    table = tables.open_table(store.warehouse, specs.MESSAGES, create=True)
    files = staged(table, messages(range(1, 11)))
    store.stop()
    with pytest.raises(WarehouseError):
        publish(table, files)


def test_a_backup_is_exported_into_the_store(store: Store, tmp_path: Path) -> None:
    made = Exporting(tmp_path, warehouse=store.warehouse)
    place = f"{store.bucket}/exports/one"
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
    with refused(JobError, "new-backup-exists"):
        made.export(to_backup=place)
    with refused(JobError, "new-backup-unwritable"):
        made.export(to_backup="nothing://x/y")
