"""The files of a dump: every one is read, named as left out, or refused."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import ArchiveError, JobError, WarehouseError
from jobs.files.storage import Storage
from jobs.progress import watched
from jobs.settings.warehouse import Warehouse
from jobs.sources.files import DumpFiles, find_files
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import open_table
from nats_transform.errors import sentence
from tests.cases import rows
from tests.support.command import nats_transform
from tests.support.exporting import Exporting
from tests.support.jobs import archived, ingested
from tests.support.object_stores import BUCKET, ObjectStore, s3
from tests.support.refused import refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    found = tmp_path / "dumps"
    found.mkdir()
    return found


def fill(folder: Path, *names: str) -> None:
    """Files with a message each, whose subject is the file's name."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"subject": name, "ts": 0}) + "\n")


def find(path: str) -> DumpFiles:
    return find_files(Storage(), path)


def below(folder: Path, files: Iterable[str]) -> list[str]:
    return [file.removeprefix(f"{folder}/") for file in files]


@pytest.mark.parametrize(("names", "given", "read", "left_out"), rows("dumps.yaml", "files"))
def test_what_is_read(
    folder: Path,
    warehouse: Warehouse,
    names: tuple[str, ...],
    given: str,
    read: list[str],
    left_out: list[str],
) -> None:
    fill(folder, *names)
    found = find(str(folder / given))
    assert below(folder, [file.path for file in found.read]) == read
    assert below(folder, found.left_out) == left_out
    said: list[str] = []
    with watched(said.append):
        result = ingested(warehouse, folder / given)
    assert result.files_read == [str(folder / name) for name in read]
    assert result.files_not_read == [str(folder / name) for name in left_out]
    rows = open_table(warehouse, MESSAGES).scan(selected_fields=("seq", "subject")).to_arrow()
    assert rows.sort_by("seq")["subject"].to_pylist() == read
    assert said[0] == f"looking through {folder / given}"


@pytest.mark.parametrize(
    ("names", "given", "code", "path"), rows("dumps.yaml", "mistakes in files")
)
def test_what_is_refused(
    folder: Path, names: tuple[str, ...], given: str, code: str, path: str
) -> None:
    fill(folder, *names)
    with refused(ArchiveError, code, path=folder / path):
        find(str(folder / given))


def test_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "a")
    for given in (folder, folder / "a"):
        with refused(ArchiveError, "dump-not-a-file", path=re.compile("/a$")):
            find(str(given))


@pytest.mark.parametrize(
    ("target", "code"),
    [
        pytest.param("", "dump-folders-too-deep", id="that-leads-back"),
        pytest.param("gone", "dump-dead-link", id="to-a-file-that-is-gone"),
    ],
)
def test_links_that_are_refused(folder: Path, target: str, code: str) -> None:
    fill(folder, "a")
    (folder / "link").symlink_to(folder / target)
    with refused(ArchiveError, code, path=re.compile("/link$")):
        find(str(folder))


def test_a_store_without_an_account() -> None:
    with refused(WarehouseError, "azure-without-account"):
        find("abfss://dumps/a.jsonl")


def test_a_link_to_a_file_that_is_read_is_left_out(folder: Path) -> None:
    fill(folder, "b", "c", "d/e")
    (folder / "a").symlink_to("c")
    (folder / "z").symlink_to("d", target_is_directory=True)
    found = find(str(folder))
    assert below(folder, [file.path for file in found.read]) == ["b", "c", "d/e"]
    assert below(folder, found.left_out) == ["a", "z/e"]
    only = find(str(folder / "a"))
    assert below(folder, [file.path for file in only.read]) == ["a"]


def test_folders_named_as_columns_are_columns(folder: Path, warehouse: Warehouse) -> None:
    for cluster in ("east", "west"):
        (folder / f"cluster={cluster}").mkdir()
        row = pa.table({"subject": ["a"], "ts": [0]})
        pq.write_table(row, folder / f"cluster={cluster}" / "1.parquet")
    for stream, given in (("S0", folder), ("S1", folder / "cluster=*")):
        result = archived(warehouse, stream, parquet=str(given))
        rows = open_table(warehouse, MESSAGES).scan(row_filter=f"stream = '{stream}'").to_arrow()
        assert sorted(rows["cluster"].to_pylist()) == ["east", "west"]
        assert len(result.files_read) == 2


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """One that speaks S3; each test has a folder of its own in it. The environment has its keys."""
    with s3(tmp_path_factory.mktemp("store")) as made, pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "key")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield made


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_store_that_the_environment_names(
    variable: str, store: ObjectStore, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As AWS's own tools take it; no catalog is needed for a dump."""
    with store.files.open_output_stream(f"{BUCKET}/dumps/a.jsonl") as dump:
        dump.write(b'{"subject": "a", "ts": 0}\n')
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv(variable, store.settings["s3.endpoint"])
    dumps = f"{store.bucket}/dumps/"
    added = archived(warehouse, jsonl=dumps)
    assert (added.messages, added.files_read) == (1, [f"{dumps}a.jsonl"])


def test_a_whole_bucket(
    store: ObjectStore, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.settings["s3.endpoint"])
    store.files.create_dir("whole")
    with store.files.open_output_stream("whole/a.jsonl") as dump:
        dump.write(b'{"subject": "a", "ts": 0}\n')
    for path in ("s3://whole", "s3://whole/"):
        assert archived(warehouse, jsonl=path).files_read == ["s3://whole/a.jsonl"]


@pytest.mark.parametrize("place", ["exports/one", "exports/a#b?c%20d/", "other:"])
def test_a_backup_in_a_store_that_the_environment_names(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It is there, and under the name that was given; a warehouse in a folder has no keys."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.settings["s3.endpoint"])
    before = store.names()
    made = Exporting(tmp_path)
    made.export(to_backup=f"{store.bucket}/{place}")
    there = f"{BUCKET}/{place.rstrip('/')}"
    assert store.names() - before == {f"{there}/backup.json", f"{there}/stream.arc.s2"}
    with refused(JobError, "new-backup-exists"):
        made.export(to_backup=f"{store.bucket}/{place}")


# Names, and the code and fields of what is said of them, in which @ stands for the folder.
STORED: dict[str, tuple[tuple[str, ...], str | None, dict[str, Any]]] = {
    "..": (("a", "../../b"), "dump-hidden-name", {"path": "@/..", "start": "."}),
    "here": (("a", "./b"), "dump-hidden-name", {"path": "@/.", "start": "."}),
    "empty-folder": (("a", "/b"), "dump-two-slashes", {"path": "@"}),
    "deep": (("d/" * 300 + "a",), "dump-folders-too-deep", {"path": "@", "most": 20}),
    "only-a-folder": (("a/",), "no-file-with-messages", {"path": "@", "also": "@/a/"}),
    "column": (("subject=%0A/a",), "lines-folder-column", {"path": "@", "name": "subject"}),
    "file-and-folder": (("a", "a/b"), None, {}),
    "folder-with-content": (("a", "b.jsonl/"), None, {}),
    "blanks": ((" /a", "a "), None, {}),
    "long": (("x" * 1000,), None, {}),
    "signs": (("%2e%2e%2fa", "a%00", "[a-z]*", "a?b#c", "a\\b", "'\""), None, {}),
    "unprinted": (("\x1b[31ma\x07", "a\u202egnp", "\x85\u2028", "<b>"), None, {}),
}


@pytest.mark.parametrize(("names", "code", "fields"), STORED.values(), ids=STORED)
def test_names_in_a_store_are_any_text(
    store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    code: str | None,
    fields: dict[str, Any],
) -> None:
    """Each is read or refused in one line, and nothing raw is printed."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.settings["s3.endpoint"])

    def put_and_ingest(folder: str, line: bytes) -> tuple[int, str, str]:
        inside = f"{BUCKET}/{tmp_path.name}/{folder}"
        for name in names:
            url = f"{store.settings['s3.endpoint']}/{inside}/{quote(name)}"
            head = {"Content-Type": "application/octet-stream"}
            wanted = urllib.request.Request(url, line, head, method="PUT")  # noqa: S310
            urllib.request.urlopen(wanted).close()  # noqa: S310
        arguments = ("--jsonl", f"s3://{inside}/", "--warehouse", tmp_path / folder, "--json")
        return nats_transform("ingest", "--stream", "S", *arguments)

    message = "message 1" if code is None else sentence(code, **fields)
    ended, out, err = put_and_ingest("good", b'{"subject": "a", "ts": 0}\n')
    if code is None:
        assert (ended, err) == (0, "")
        result = json.loads(out)
        there = f"s3://{BUCKET}/{tmp_path.name}/good"
        of_folders = [f"{there}/{name}" for name in names if name.endswith("/")]
        read = [f"{there}/{name}" for name in names if not name.endswith("/")]
        assert (result["files_read"], result["files_not_read"]) == (sorted(read), of_folders)
        assert result["messages"] == len(read)
        ended, out, err = put_and_ingest("bad", b"{}\n")
    assert (ended, out, err.count("\n")) == (2, "", 1)
    assert err.rstrip("\n").isprintable()
    assert all(part in err for part in message.split("@")), err
