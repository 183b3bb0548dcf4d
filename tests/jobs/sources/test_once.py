"""A dump of JSON lines is parsed once, whatever becomes of the file that keeps its rows."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import jobs.sources.blocks
from jobs.settings.warehouse import Warehouse
from jobs.sources.blocks import Block, ReadOnce
from jobs.sources.files import DumpFile
from jobs.sources.json_lines import JsonLines
from jobs.warehouse.rows import header_lists, rows_of
from tests.support.jobs import dumped, ingested

BLOCKS = [Block(DumpFile("a", 1)), Block(DumpFile("b", 1)), Block(DumpFile("b", 1), start=7)]


class Reader:
    """Gives two batches a block, with bytes that are not UTF-8, nulls and repeated headers."""

    def __init__(self) -> None:
        self.read: list[Block] = []

    def __call__(self, block: Block) -> Iterator[pa.RecordBatch]:
        self.read.append(block)
        for n in range(2):
            subject = pa.array([block.file.path.encode() + b"\xff", None], pa.binary())
            pairs = (
                pa.array([text] * 2, pa.binary()).view(pa.string()) for text in (b"K", b"\xfe")
            )
            yield rows_of(
                "S",
                pa.array([block.start + n, None], pa.int64()),
                pa.array([n, None], pa.int64()),
                subject.view(pa.string()),
                pa.array([None, "east"]),
                header_lists([0, 2, 2], *pairs),
                pa.nulls(2, pa.binary()),
                pa.array([b"\x00", None], pa.binary()),
            )


def rows(read: ReadOnce | Reader) -> list[list[pa.RecordBatch]]:
    return [list(read(block)) for block in BLOCKS]


def test_each_block_is_read_once() -> None:
    reader = Reader()
    with ReadOnce(reader) as once:
        assert rows(once) == rows(once) == rows(Reader())
    assert reader.read == BLOCKS


def test_a_block_that_was_not_read_to_its_end_is_read_again() -> None:
    reader = Reader()
    with ReadOnce(reader) as once:
        next(iter(once(BLOCKS[0])))
        assert rows(once) == rows(Reader())
    assert reader.read == [BLOCKS[0], *BLOCKS]


@pytest.mark.parametrize("room", [0, 5_000])
def test_what_there_is_no_room_for_is_read_again(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs.sources.blocks, "KEPT_BYTES", room)
    reader = Reader()
    with ReadOnce(reader) as once:
        assert rows(once) == rows(once) == rows(Reader())
        assert os.fstat(once._file.fileno()).st_size <= room
    assert reader.read[:3] == BLOCKS
    assert len(reader.read) == (6 if room == 0 else 5)


def test_a_full_disk_only_costs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite

    def full_soon(file: int, data: memoryview, place: int) -> int:
        if place > 3_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:1_000], place)  # a part of it, as the call may

    monkeypatch.setattr(os, "pwrite", full_soon)
    with ReadOnce(Reader()) as once:
        assert rows(once) == rows(once) == rows(Reader())


def test_a_worker_of_spark_gets_the_reader_itself() -> None:
    with ReadOnce(Reader()) as once:
        copy = pickle.loads(pickle.dumps(once))  # noqa: S301 - made here
        assert rows(copy) == rows(Reader())


def test_an_ingest_parses_lines_once_and_leaves_nothing(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, parsed = JsonLines.__call__, list[Block]()

    def counted(self: JsonLines, block: Block) -> Iterator[pa.RecordBatch]:
        parsed.append(block)
        return read(self, block)

    monkeypatch.setattr(JsonLines, "__call__", counted)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    for name in "ab":
        lines = [{"subject": f"{name}.{n}", "ts": 1767355200 + n, "data": "x"} for n in range(3)]
        dumped(tmp_path / f"{name}.jsonl", lines)
    assert ingested(warehouse, tmp_path / "*.jsonl").messages == 6
    assert sorted(Path(block.file.path).name for block in parsed) == ["a.jsonl", "b.jsonl"]
    assert not list((tmp_path / "temporary").iterdir())
