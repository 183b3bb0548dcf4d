"""Dumps: each way to write a column, and one line for each way to get it wrong."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession

import jobs.ingest
import jobs.sources.dump
import jobs.sources.json_lines
import jobs.sources.parquet
from benchmarks.frames import read
from jobs.errors import ArchiveError, JobError
from jobs.files.storage import Storage
from jobs.ingest import IngestResult, ingest
from jobs.settings.ingest import DumpColumns, IngestSettings
from jobs.settings.warehouse import Warehouse
from jobs.sources.dump import DumpSource
from jobs.sources.files import find_files
from jobs.sources.line import Parser, parse_line
from jobs.sources.parquet import open_parquet
from jobs.sources.times import epoch_ns
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import open_table
from nats_transform.errors import InvalidValue, NatsTransformError
from nats_transform.kernel.messages import HEADERS
from tests.cases import load, rows
from tests.support.archive import rows_of
from tests.support.jobs import archived, verified
from tests.support.refused import refused

NOON_NS = 1767355200_123456789
NOON = datetime(2026, 1, 2, 12, 0, 0, 123456)
S = pa.string()


@pytest.mark.parametrize(("written", "expected"), rows("dumps.yaml", "times"))
def test_times(written: Any, expected: int) -> None:
    assert epoch_ns(written) == expected


@pytest.mark.parametrize("written", load("dumps.yaml")["no times"])
def test_what_is_no_time(written: Any) -> None:
    with pytest.raises(InvalidValue):
        epoch_ns(written)


@pytest.mark.parametrize(("fields", "ts_ns"), rows("dumps.yaml", "fields of a time"))
def test_the_time_of_a_line(fields: str, ts_ns: int) -> None:
    line = f'{{"subject": "a", {fields}}}'.encode()
    assert parse_line(line, 1, "a.jsonl", Parser(DumpColumns()))[1] == ts_ns


class Asked(list[str]):
    """The names of a dump's columns; remembers which were asked for."""

    def __contains__(self, name: object) -> bool:
        self.append(str(name))
        return name not in ("ts", "ts_ns")  # else it would not ask for the other times


def test_the_page_names_the_fields_of_a_line() -> None:
    page = Path(__file__).parents[3].joinpath("docs/archives.md").read_text()
    table = page.partition("## Dumps: JSON lines")[2].partition("Each line needs a time")[0]
    named = {
        name
        for row in table.split("\n| `")[1:]
        for name in re.findall(r"`(\w+)`", f"`{row.partition(' |')[0]}")
    }
    line: dict[str, Any] = {"seq": 7, "subject": "a", "cluster": "c", "headers": {"H": "v"}}
    line |= {"data": "x", "ts": 1, "ts_ns": 5, "time": 2}
    assert named == {*line}
    asked = Asked()
    DumpColumns().find(asked)
    assert {*asked} == named | {"subject_raw", "cluster_raw", "headers_raw"}  # of our own table


LINE: dict[str, Any] = {"subject": "a", "ts": 0}


class Dumps:
    """A folder for dumps, and the archive that they are ingested into."""

    def __init__(self, folder: Path, warehouse: Warehouse) -> None:
        self.folder, self.warehouse = folder, warehouse

    def parquet(self, file: str = "dump.parquet", **columns: Any) -> Path:
        """A dump with these columns."""
        path = self.folder / file
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), path)
        return path

    def jsonl(self, *lines: Any, name: str = "dump.jsonl") -> Path:
        """A dump with these lines."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("".join(text + "\n" for text in texts))
        return path

    def ingest(self, *lines: Any, **settings: Any) -> IngestResult:
        """Ingests these lines, or the source that the settings name."""
        if lines:
            settings["jsonl"] = self.jsonl(*lines)
        settings = {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()}
        return archived(self.warehouse, **settings)

    def rows(self) -> list[Any]:
        return rows_of(self.warehouse)


@pytest.fixture
def dumps(tmp_path: Path, warehouse: Warehouse) -> Dumps:
    return Dumps(tmp_path, warehouse)


@pytest.mark.parametrize(
    ("column", "ts_ns"),
    [
        pytest.param(pa.array([NOON], pa.timestamp("us", "UTC")), NOON_NS // 1000 * 1000, id="us"),
        pytest.param(pa.array([NOON], pa.timestamp("us")), NOON_NS // 1000 * 1000, id="no-zone"),
        pytest.param(pa.array([NOON_NS], pa.timestamp("ns", "UTC")), NOON_NS, id="ns"),
        pytest.param(
            pa.array([NOON], pa.timestamp("ms", "UTC")), NOON_NS // 10**6 * 10**6, id="ms"
        ),
        pytest.param(pa.array(["2026-01-02T12:00:00.123456789Z"]), NOON_NS, id="iso"),
        pytest.param(pa.array([NOON_NS]), NOON_NS, id="epoch-ns"),
        pytest.param(pa.array([NOON_NS // 10**9]), NOON_NS // 10**9 * 10**9, id="epoch-s"),
        pytest.param(pa.array([NOON.date()]), 1767312000_000000000, id="day"),
        pytest.param(pa.array([-1]), -(10**9), id="before-1970"),
        pytest.param(pa.array(["2026-01-02 12:00:00,123456789"]), NOON_NS, id="comma"),
        pytest.param(pa.array(["1969-12-31T23:59:59.999999999Z"]), -1, id="iso-before-1970"),
        pytest.param(pa.array([5], pa.timestamp("ns", "UTC")), 5, id="ns-near-1970"),
        pytest.param(pa.array([-(10**11)], pa.timestamp("ns")), -(10**11), id="ns-before-1970"),
    ],
)
def test_parquet_times(dumps: Dumps, column: Any, ts_ns: int) -> None:
    row = first_row(dumps.parquet(subject=["a"], when=column), time="when")
    assert row["ts_ns"] == ts_ns
    assert row["ts"].timestamp() == pytest.approx(ts_ns / 1e9, abs=1e-5)
    assert row["day"] == datetime.fromtimestamp(ts_ns // 10**9, UTC).date()


def wanted(**columns: Any) -> IngestSettings:
    return IngestSettings(stream="S", parquet="given", columns=DumpColumns(**columns))


def batches(path: Path, **columns: Any) -> Iterator[pa.RecordBatch]:
    """What is read of a file."""
    read, blocks = open_parquet(
        Storage(), find_files(Storage(), str(path)), wanted(**columns), None
    )
    return (batch for block in blocks for batch in read(block))


def first_row(path: Path, **columns: Any) -> dict[str, Any]:
    return next(batches(path, **columns)).to_pylist()[0]


MAP, MAP_OF_LISTS = pa.map_(S, S), pa.map_(S, pa.list_(S))
PAIRS = pa.list_(pa.struct([("name", S), ("value", S)]))


PARQUET_HEADERS = {
    "pairs": (
        pa.array([[{"name": "b", "value": "1"}, {"name": "a", "value": "2"}]], PAIRS),
        [("b", "1"), ("a", "2")],
    ),
    "map": (pa.array([[("b", "1"), ("a", "2")]], MAP), [("b", "1"), ("a", "2")]),
    "map-of-lists": (
        pa.array([[("b", ["1", "2"]), ("a", ["3"])]], MAP_OF_LISTS),
        [("b", "1"), ("b", "2"), ("a", "3")],
    ),
    "struct": (pa.array([{"b": "1", "a": None}], pa.struct([("b", S), ("a", S)])), [("b", "1")]),
    "null": (pa.array([None], MAP), []),
}


@pytest.mark.parametrize(("column", "expected"), PARQUET_HEADERS.values(), ids=PARQUET_HEADERS)
def test_parquet_headers(dumps: Dumps, column: Any, expected: list[Any]) -> None:
    row = first_row(dumps.parquet(subject=["a"], ts=[0], headers=column))
    assert [tuple(pair.values()) for pair in row["headers"]] == expected


def test_parquet_with_its_own_names(dumps: Dumps) -> None:
    path = dumps.parquet(
        topic=pa.array([b"a.\xff", b"b"], pa.binary()),
        offset=pa.array([7, 9], pa.int32()),
        at=pa.array([NOON, NOON], pa.timestamp("us", "UTC")),
        site=["eu", None],
        body=["aGk=", None],
    )
    names = {"subject": "topic", "seq": "offset", "time": "at", "cluster": "site", "data": "body"}
    columns = DumpColumns(data_encoding="base64", **names)
    result = dumps.ingest(parquet=path, columns=columns)
    assert (result.messages, result.first_seq, result.last_seq, result.gaps) == (2, 7, 9, 1)
    rows = dumps.rows()
    assert [(r.subject, r.seq, r.cluster, r.data) for r in rows] == [
        (b"a.\xff", 7, "eu", b"hi"),
        (b"b", 9, None, b""),
    ]
    assert {r.day for r in rows} == {date(2026, 1, 2)}


def test_parquet_is_numbered_in_file_order(
    dumps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several files of several row groups, read in blocks smaller than a file."""
    folder = tmp_path / "dump"
    folder.mkdir()
    subjects = [f"s.{n}" for n in range(15_000)]
    for part in range(3):
        columns = {"subject": subjects[5000 * part :][:5000], "ts": [0] * 5000}
        table = pa.table(columns | {"data": [b"x" * 50] * 5000})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=700)
    monkeypatch.setattr(jobs.sources.parquet, "BLOCK_BYTES", 40_000)
    dumps.ingest(parquet=folder, columns=DumpColumns(first_seq=11))
    wanted = [(subject.encode(), seq) for seq, subject in enumerate(subjects, 11)]
    assert [(row.subject, row.seq) for row in dumps.rows()] == wanted


BYTES = pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)


@BYTES
def test_the_table_itself_is_a_dump(dumps: Dumps, tmp_path: Path, kind: pa.DataType) -> None:
    """Text that is not UTF-8 comes from the columns beside it, also as Polars writes them."""
    odd = '"cluster": "\\udcfe", "headers": {"K": "\\udcff\\\\", "L": ""}'
    first = dumps.ingest(
        f'{{"subject": "a.\\udcff\\\\", "ts": 0, "seq": 1, {odd}}}',
        {"subject": "b", "ts": 1, "seq": 2, "cluster": "c", "headers": {"K": ["1", "2"]}},
    )
    table = open_table(dumps.warehouse, MESSAGES).scan().to_arrow()
    for number, name in enumerate(table.schema.names):
        if name.endswith("_raw"):
            table = table.set_column(number, name, table[name].cast(kind))
    pq.write_table(table, tmp_path / "export.parquet")
    shutil.rmtree(dumps.warehouse.folder)
    again = dumps.ingest(parquet=tmp_path / "export.parquet")
    assert (again.digest, again.refused) == (first.digest, None)


@BYTES
def test_headers_are_those_of_their_block(dumps: Dumps, kind: pa.DataType) -> None:
    block = b"NATS/1.0\r\nA:1\r\nB: 2\r\n\r\n"
    column = pa.array([[{"name": "C", "value": "3"}]], PAIRS)
    row = first_row(
        dumps.parquet(subject=["a"], ts=[0], headers=column, headers_raw=pa.array([block], kind))
    )
    assert [tuple(pair.values()) for pair in row["headers"]] == [("A", "1"), ("B", "2")]
    assert row["headers_raw"] == block


@pytest.mark.spark
def test_spark_and_this_process_make_the_same_of_a_dump(
    dumps: Dumps, spark: SparkSession, tmp_path: Path
) -> None:
    """Also of the table itself, exported by Spark."""
    path = dumps.jsonl(
        {"subject": "a", "ts": NOON_NS, "headers": {"B": "1", "A": ["2", "3"]}},
        '{"subject": "b.\\udcff", "ts": 0}',
    )
    first = dumps.ingest(jsonl=path)
    assert first.engine == "process"
    exported = str(tmp_path / "export")
    read(spark, open_table(dumps.warehouse, MESSAGES), MESSAGES).write.parquet(exported)
    for number, source in enumerate(({"parquet": exported}, {"jsonl": str(path)})):
        other = Warehouse(dir=tmp_path / f"other-{number}")
        again = ingest(spark, IngestSettings(stream="S", warehouse=other, **source))
        assert (again.digest, again.engine) == (first.digest, "spark")
        assert ingest(spark, IngestSettings(stream="S", warehouse=other, **source)).added == 0


def test_json_lines(dumps: Dumps) -> None:
    result = dumps.ingest(
        {"subject": "a", "ts": "2026-01-02T12:00:00.123456789Z", "cluster": "eu", "data": "grüße"},
        "",
        '{"subject":"b.\\udcff", "ts": 1767355200, "headers": {"z":"1", "A":["2","3"], "z":"4"}}',
        {"subject": "c", "time": 0, "data": None, "headers": None},
    )
    assert (result.messages, result.gaps) == (3, 0)
    rows = dumps.rows()
    assert [r.seq for r in rows] == [1, 2, 3]
    assert [r.subject for r in rows] == [b"a", b"b.\xff", b"c"]
    assert [r.ts_ns for r in rows] == [NOON_NS, 1767355200_000000000, 0]
    assert [r.data for r in rows] == ["grüße".encode(), b"", b""]
    pairs = [(b"z", b"1"), (b"A", b"2"), (b"A", b"3"), (b"z", b"4")]
    assert [tuple(header.values()) for header in rows[1].headers] == pairs
    assert [r.cluster for r in rows] == ["eu", None, None]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({"cluster": "us"}, ["us", "us"], id="fixed"),
        pytest.param({"cluster_header": "C"}, ["ap", "eu"], id="header-or-column"),
    ],
)
def test_cluster(dumps: Dumps, settings: dict[str, Any], expected: list[str]) -> None:
    dumps.ingest(LINE | {"headers": {"C": ["ap", "xx"]}}, LINE | {"cluster": "eu"}, **settings)
    assert [r.cluster for r in dumps.rows()] == expected


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        pytest.param({"since": 2}, [2, 3], id="from-sequence"),
        pytest.param({"until": 2}, [1, 2], id="to-sequence"),
        pytest.param({"since": datetime(2026, 1, 2)}, [2, 3], id="from-time"),
        pytest.param({"since": datetime(2026, 1, 2), "until": datetime(2026, 1, 3)}, [2], id="day"),
    ],
)
def test_ranges(dumps: Dumps, bounds: dict[str, Any], expected: list[int]) -> None:
    days = ["2026-01-01T23:59:59Z", "2026-01-02", "2026-01-03"]
    dumps.ingest(*({"subject": "a", "ts": day} for day in days), **bounds)
    assert [r.seq for r in dumps.rows()] == expected


def test_a_repeat_changes_nothing_and_a_longer_dump_adds(dumps: Dumps) -> None:
    lines = [{"subject": f"s.{n}", "ts": NOON_NS + n, "data": str(n)} for n in range(10)]
    first = dumps.ingest(*lines[:6])
    again = dumps.ingest(*lines[:6])
    assert again == first.model_copy(update={"added": 0, "days": [], "report": None})
    more = dumps.ingest(*lines)
    assert (more.messages, more.added, more.gaps) == (10, 4, 0)
    assert len(open_table(dumps.warehouse, MESSAGES).metadata.snapshots) == 2


def sparse(sequences: Iterable[int], day: str = "2026-01-02") -> list[dict[str, Any]]:
    return [{"seq": seq, "subject": f"s.{seq}", "ts": day} for seq in sequences]


LATE = [{"seq": 1, "subject": "s", "ts": "2026-01-01"}, *sparse([2])]
LATE += [{"seq": 3, "subject": "s", "ts": "2026-01-01"}, *sparse([4])]


@pytest.mark.parametrize(
    ("contents", "added"),
    [
        pytest.param([sparse(range(2, 20, 2)), sparse(range(1, 20, 2))], [9, 10], id="other-half"),
        pytest.param([sparse([1, 2, 3]), sparse([2])], [3, 0], id="a-part-again"),
        pytest.param([sparse([5, 1, 9, 3]), sparse(range(1, 10))], [4, 5], id="out-of-order"),
        pytest.param([sparse([1, 4]), sparse([2]), sparse([1, 2, 3])], [2, 1, 1], id="thirds"),
        pytest.param([LATE, LATE], [2, 2], id="late-message"),
    ],
)
def test_what_a_dump_lacks_can_come_later(
    dumps: Dumps, contents: list[list[Any]], added: list[int]
) -> None:
    until = [{"until": datetime(2026, 1, 2)} if lines is LATE else {} for lines in contents[:1]]
    for bounds, lines, new in zip([*until, {}, {}], contents, added, strict=False):
        result = dumps.ingest(*lines, **bounds)
        assert (result.added, result.presumed_lost, result.refused) == (new, 0, None)
        assert dumps.ingest(*lines, **bounds).added == 0
        assert verified(dumps.warehouse).holds
    assert (result.messages, len(dumps.rows())) == (sum(added), sum(added))


@pytest.mark.parametrize("noted", [6, 100])
def test_a_dump_with_many_holes_says_what_it_hides(
    dumps: Dumps, monkeypatch: pytest.MonkeyPatch, noted: int
) -> None:
    monkeypatch.setattr(jobs.sources.dump, "MOST_RANGES", 5)
    monkeypatch.setattr(jobs.sources.dump, "_MOST_NOTED", noted)
    many = sparse(range(10, 100, 2))
    result = dumps.ingest(*many)
    assert (result.added, result.presumed_lost, result.refused) == (45, 44, None)
    assert verified(dumps.warehouse).holds
    assert dumps.ingest(*many).added == 0
    both = dumps.jsonl(*sparse(range(101, 200, 2)), name="a/1.jsonl")
    dumps.jsonl(*sparse(range(100, 200, 2)), name="a/2.jsonl")
    result = dumps.ingest(jsonl=both.parent)  # no holes, whatever each file lacks
    assert (result.added, result.presumed_lost, result.refused) == (100, 0, None)


def test_a_dump_with_many_holes_is_compared_by_its_own_messages(
    dumps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs.sources.dump, "MOST_RANGES", 5)
    dumps.ingest(*sparse(range(1, 100)))
    some = [*range(1, 100, 2), 100]
    assert dumps.ingest(*sparse(some)).added == 1
    other = [*sparse(some[1:]), {"seq": 1, "subject": "other", "ts": 0}]
    with refused(ArchiveError, "dump-differs-from-table", first=1, last=100):
        dumps.ingest(*other)


def test_other_messages_under_the_same_sequences_are_refused(dumps: Dumps) -> None:
    dumps.ingest({"subject": "a", "ts": 0}, {"subject": "b", "ts": 0})
    with refused(ArchiveError, "dump-differs-from-table", first=1, last=1):
        dumps.ingest({"subject": "c", "ts": 0})


def fault(error: NatsTransformError) -> str:
    """The code of an error or of its reason, and the column or what else it names."""
    reason = error.fields.get("reason")
    found = reason if isinstance(reason, NatsTransformError) else error
    names = (found.fields.get(field) for field in ("name", "shown", "what"))
    return " ".join([found.code, *(str(name) for name in names if name is not None)])


@pytest.mark.parametrize(
    ("line", "code"),
    [
        *rows("dumps.yaml", "mistakes in a line"),
        pytest.param("[" * 200_000, "line-fault", id="nested"),
        pytest.param({"x": [[]] * 250_000}, "line-invalid", id="many-values"),
    ],
)
def test_mistakes_in_a_line(line: str | dict[str, Any], code: str) -> None:
    if not isinstance(line, str):
        line = json.dumps(LINE | line)
    assert why_not(line) == code


def why_not(line: str, **columns: str) -> str:
    """Why a line with these columns is no message."""
    with pytest.raises(ArchiveError) as caught:
        parse_line(line.encode(), 1, "a.jsonl: message 1", Parser(DumpColumns(**columns)))
    assert caught.value.fields["place"] == "a.jsonl: message 1"
    return fault(caught.value)


def test_mistakes_in_columns_of_other_names() -> None:
    line = '{"subject": "a", "ts": 0, "at": 5}'
    assert why_not(line, cluster="at") == "line-column-not-text at 5"
    assert why_not(line, time="when") == "dump-without-column when"


def test_text_is_no_number_of_values() -> None:
    data = '[{"a\\\\": 1}, ' * 200_000
    line = json.dumps({"subject": "a", "ts": 0, "data": data}).encode()
    assert parse_line(line, 1, "a.jsonl", Parser(DumpColumns()))[-1] == data.encode()


@pytest.mark.parametrize("name", ["dump.jsonl", "dump.jsonl.gz"])
@pytest.mark.parametrize("before", [0, 1])
def test_lines_of_any_length_are_not_read(
    dumps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, before: int
) -> None:
    monkeypatch.setattr(jobs.sources.json_lines, "LARGEST_LINE", 1000)
    line = b'{"subject": "a", "ts": 0, "data": "%s"}\n'
    fits = line % (b"x" * (1000 - len(line) + 2))
    assert len(fits) == 1000
    path = tmp_path / name
    pack = gzip.compress if name.endswith(".gz") else bytes
    path.write_bytes(pack(fits + fits))
    assert dumps.ingest(jsonl=path).messages == 2
    path.write_bytes(pack(fits * before + line % (b"x" * 1_000_000)))
    with refused(ArchiveError, "line-too-large", start=1000 * before):
        dumps.ingest(jsonl=path)


def test_columns_that_some_line_has(dumps: Dumps, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers leave out what is null; a name that no line has is a mistake."""
    monkeypatch.setattr(jobs.sources.json_lines, "BLOCK_BYTES", 50)
    path = dumps.jsonl(
        {"subject": "a", "ts": 0},
        {"subject": "b", "ts": 0, "body": "x"},
        {"subject": "c", "ts": 0, "hdr": {"k": "v"}},
        '{"subject": "d", "ts": 0, "\\u0063lu": "eu"}',
    )
    columns = DumpColumns(cluster="clu", headers="hdr", data="body")
    dumps.ingest(jsonl=path, columns=columns)
    rows = dumps.rows()
    assert [(r.subject, r.cluster, len(r.headers), r.data) for r in rows] == [
        (b"a", None, 0, b""),
        (b"b", None, 0, b"x"),
        (b"c", None, 1, b""),
        (b"d", "eu", 0, b""),
    ]
    path.write_text(path.read_text().replace("hdr", "HDR"))
    with refused(ArchiveError, "lines-without-column", column="hdr", have="subject, ts"):
        dumps.ingest(jsonl=path, columns=columns)


@pytest.mark.parametrize(("lines", "code"), rows("dumps.yaml", "mistakes in lines"))
def test_mistakes_in_json_lines(dumps: Dumps, lines: list[Any], code: str) -> None:
    lines = [line if isinstance(line, str) else LINE | line for line in lines]
    with pytest.raises(ArchiveError) as caught:
        dumps.ingest(jsonl=dumps.jsonl(*lines))
    assert fault(caught.value) == code
    assert not dumps.warehouse.folder.exists()


FIRST = "dump-messages-refused-first"
LINE_BREAK = f"{FIRST} a header with a line break, which no NATS header can have"
NO_NAME = f"{FIRST} a header without a name or a value"
NO_TIME = f"{FIRST} no time, or one that is not between the years 1678 and 2262"


MISTAKES = {
    "no-subject": ({"subject": None, "topic": ["a"]}, "dump-without-subject"),
    "subject": ({"subject": [1]}, "parquet-column-type subject"),
    "seq": ({"seq": ["1"]}, "parquet-column-type seq"),
    "time": ({"ts": [1.5]}, "parquet-column-type ts"),
    "raw": ({"subject_raw": ["a"]}, "parquet-column-type subject_raw"),
    "no-time": ({"ts": None}, "parquet-without-time"),
    "ts-ns": ({"ts_ns": ["5"]}, "parquet-column-type ts_ns"),
    "headers": ({"headers": ["x"]}, "parquet-column-type headers"),
    "as-many-headers-each": (
        {"headers": pa.array([[{"name": "A", "value": "x"}]], pa.list_(PAIRS.value_type, 1))},
        "parquet-column-type headers",
    ),
    "data": ({"data": [1]}, "parquet-column-type data"),
    "null-subject": ({"subject": [None, "b"], "ts": [0, 0]}, f"{FIRST} no subject"),
    "bad-time": ({"ts": ["soon"]}, "parquet-column-invalid ts"),
    "no-date": ({"ts": ["12:30:00"]}, "parquet-column-invalid ts"),
    "text-9999": ({"ts": ["9999-12-31"]}, "parquet-column-invalid ts"),
    "9999": ({"ts": pa.array([datetime(9999, 12, 31)], pa.timestamp("us"))}, NO_TIME),
    "far-epoch": ({"ts": [10**11 - 1]}, NO_TIME),
    "null-time": ({"ts": pa.array([None], pa.int64())}, NO_TIME),
    "line-break": ({"headers": pa.array([[("a", "1\r\nb: 2")]], MAP)}, LINE_BREAK),
    "null-value": ({"headers": pa.array([[("a", None)]], MAP)}, NO_NAME),
    "null-list": ({"headers": pa.array([[("b", ["1"]), ("a", None)]], MAP_OF_LISTS)}, NO_NAME),
    "null": ({"headers": pa.array([[{"name": None, "value": "x"}]], PAIRS)}, NO_NAME),
}


@pytest.mark.parametrize(("table", "code"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_in_parquet(dumps: Dumps, table: dict[str, Any], code: str) -> None:
    table = {"subject": ["a"], "ts": [0]} | table
    path = dumps.parquet(**{name: column for name, column in table.items() if column is not None})
    with pytest.raises(ArchiveError) as caught:
        dumps.ingest(parquet=path)
    assert fault(caught.value) == code
    assert not dumps.warehouse.folder.exists()


def test_a_column_that_is_there_twice(dumps: Dumps, tmp_path: Path) -> None:
    """As in JSON lines; others than ours may repeat."""
    one, other = pa.array(["a"]), pa.array(["b"])
    names = ["subject", "x", "x", "subject"]
    columns = [one, one, other, other, pa.array([0])]
    for number, start in enumerate((1, 0)):
        table = pa.Table.from_arrays(columns[start:], [*names[start:], "ts"])
        pq.write_table(table, tmp_path / f"{number}.parquet")
    with refused(ArchiveError, "parquet-column-twice", name="subject"):
        dumps.ingest(parquet=tmp_path / "1.parquet")
    assert dumps.ingest(parquet=tmp_path / "0.parquet").messages == 1


@pytest.mark.parametrize("first", [2**63 - 1, 2**64])
def test_numbers_beyond_the_largest_sequence(dumps: Dumps, first: int) -> None:
    two = {"parquet": dumps.parquet(subject=["a", "a"], ts=[0, 0])}
    for lines, source in (([LINE, LINE], {}), ([], two)):
        with pytest.raises((ArchiveError, ValidationError), match="9223372036854775807"):
            dumps.ingest(*lines, **source, columns={"first_seq": first})
    one = {"parquet": dumps.parquet(subject=["a"], ts=[0])}
    for lines, source in (([LINE], {}), ([], one)):
        result = dumps.ingest(*lines, **source, columns={"first_seq": 2**63 - 1})
        assert result.last_seq == 2**63 - 1


def test_what_is_not_base64(dumps: Dumps) -> None:
    """The same in Parquet as in JSON lines, and before anything is written."""
    columns = DumpColumns(data_encoding="base64")
    wrong = ["!", "aGk", "aG k=", "aGk=\n", "=aGk", "-_-_", "aGk===", "===="]
    for text in wrong:
        line = json.dumps({"subject": "a", "ts": 0, "data": text}).encode()
        with refused(ArchiveError, "line-invalid", reason="line-data-not-base64"):
            parse_line(line, 1, "a.jsonl", Parser(columns))
    texts = ["aGk=", None, "", *wrong]
    path = dumps.parquet(subject=["a"] * len(texts), ts=[0] * len(texts), data=texts)
    with refused(ArchiveError, "dump-messages-refused-first", count=8, rows=11, first=4):
        dumps.ingest(parquet=path, columns=columns)
    assert not dumps.warehouse.folder.exists()


@pytest.mark.parametrize("bound", [{"since": NOON}, {"until": NOON}])
def test_a_message_without_a_time_is_in_every_range(
    dumps: Dumps, bound: dict[str, datetime]
) -> None:
    times = pa.array([NOON, None, NOON], pa.timestamp("us"))
    with refused(ArchiveError, "dump-messages-refused-first", what=re.compile("no time"), first=2):
        dumps.ingest(parquet=dumps.parquet(subject=["a", "b", "c"], ts=times), **bound)


def test_folders_name_the_cluster_of_lines(dumps: Dumps, tmp_path: Path) -> None:
    line = LINE | {"cluster": "line"}
    dumps.jsonl(line, name="site=eu%20west/1.jsonl")
    dumps.jsonl(line, name="site=us/1.jsonl")
    dumps.ingest(jsonl=tmp_path, columns=DumpColumns(cluster="site"))
    assert [row.cluster for row in dumps.rows()] == ["eu west", "us"]
    dumps.jsonl(line, name="subject=x/1.jsonl")
    with refused(ArchiveError, "lines-folder-column", name="subject"):
        dumps.ingest(jsonl=tmp_path)


@pytest.mark.parametrize("name", ["blank.jsonl", "BLANK.JSONL.GZ"])
def test_blank_lines(
    dumps: Dumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As cheap as others, wherever they are."""
    monkeypatch.setattr(jobs.sources.json_lines, "_BUFFER", 100_000)
    one = b'{"subject": "a", "ts": 0}\n'
    text = b"\n" * 2_000_000 + b" \t\r\n \n" + b"  " + one + b"\n\v\f\n" + one + b"\n"
    pack = gzip.compress if name.endswith(".GZ") else bytes
    path = tmp_path / name
    path.write_bytes(pack(text))
    start = time.process_time()
    assert dumps.ingest(jsonl=path).messages == 2
    assert time.process_time() - start < 2  # a look at each took 5


@pytest.mark.parametrize("headers", [{"A": " \udcff"}, {"A:B": "\udcff"}, {"A": " x"}])
def test_headers_that_nats_reads_differently(dumps: Dumps, headers: dict[str, str]) -> None:
    lines = [LINE | {"headers": {"A": "x: y "}}, LINE | {"headers": headers}]
    with refused(ArchiveError, "dump-messages-refused-first", count=1, rows=2, first=2):
        dumps.ingest(*lines)


@pytest.mark.parametrize("moment", ["find_files", "open_parquet", "open_json_lines", "plan"])
def test_a_file_that_vanishes(dumps: Dumps, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """After the step of this name: one line that names the file, and nothing is published."""
    kind = "jsonl" if moment == "open_json_lines" else "parquet"
    for seq in (1, 2):
        if kind == "jsonl":
            file = dumps.jsonl(LINE | {"seq": seq}, name=f"dump/{seq}.jsonl")
        else:
            file = dumps.parquet(f"dump/{seq}.parquet", subject=["a"], ts=[0], seq=[seq])
    owner: Any = DumpSource if moment == "plan" else jobs.ingest
    step = getattr(owner, moment)

    def then_gone(*given: Any) -> Any:
        result = step(*given)
        file.unlink()
        return result

    monkeypatch.setattr(owner, moment, then_gone)
    with refused(JobError, "dump-unreadable", reason=re.compile("it is gone")):
        dumps.ingest(**{kind: file.parent})
    assert list(dumps.warehouse.folder.rglob("*.parquet")) == []


def headers(values: list[list[str | None]]) -> Callable[[], pa.Array]:
    """A column, made when it is needed: as a parameter it would take 100 MiB of all tests."""
    return lambda: pa.array([[{"name": "k", "value": v} for v in one] for one in values], HEADERS)


def made(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: one() if callable(one) else one for name, one in columns.items()}


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"data": ["x" * 2**20] * 100}, id="payload"),
        pytest.param({"data": [None] * 99 + ["x" * 2**20]}, id="payload-after-nulls"),
        pytest.param({"subject": ["s" * 2**20] * 100}, id="subject"),
        pytest.param({"headers": headers([["x" * 2**20]] * 100)}, id="headers"),
        pytest.param({"headers": headers([[]] * 80 + [["x" * 2**20] * 5] * 20)}, id="some-headers"),
        pytest.param({"headers": lambda: pa.array([[("k", "x" * 2**20)]] * 100, MAP)}, id="map"),
        pytest.param({"headers": [{"k": "x" * 2**20}] * 100}, id="struct"),
    ],
)
def test_values_that_repeat_make_no_large_batches(
    dumps: Dumps, monkeypatch: pytest.MonkeyPatch, columns: dict[str, Any]
) -> None:
    """A dictionary has a value once, however many rows of 1 MiB it makes."""
    monkeypatch.setattr(jobs.sources.parquet, "MOST_HEADERS", 2**20)
    path = dumps.parquet(**{"subject": ["a"] * 100, "ts": [0] * 100} | made(columns))
    assert path.stat().st_size < 1_000_000
    sizes = [batch.nbytes for batch in batches(path)]
    assert sum(sizes) > 2**20 - 1
    assert max(sizes) < 17 * 2**20


@pytest.mark.parametrize(
    ("columns", "code", "fields"),
    [
        pytest.param(
            {"headers": headers([["x" * 2**20] * 150])},
            "parquet-row-too-large",
            {"largest": 151},
            id="headers",
        ),
        pytest.param(
            {"headers": headers([[None] * 1001])},
            "parquet-too-many-values",
            {"column": re.compile("^headers"), "values": 1001, "group": 0, "most": 1000},
            id="nulls",
        ),
        pytest.param(
            {"data": [bytes(2**20)] * 129},
            "parquet-unpacks-too-large",
            {"column": "data", "size": 129, "group": 0, "most": 128},
            id="packed",
        ),
        pytest.param({"data": ["x" * 300] * 500}, "parquet-bomb", {"most": 10}, id="all"),
    ],
)
def test_parquet_of_which_no_batch_is_small(
    dumps: Dumps,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: dict[str, Any],
    code: str,
    fields: dict[str, object],
) -> None:
    monkeypatch.setattr(jobs.sources.parquet, "MOST_VALUES", 1000)
    monkeypatch.setattr(jobs.sources.parquet, "MOST_HEADERS", 2**20)
    monkeypatch.setattr(jobs.sources.parquet, "UNPACKED", 0)
    monkeypatch.setattr(jobs.sources.parquet, "UNPACKED_A_BYTE", 10)
    columns = made(columns)
    rows = len(next(iter(columns.values())))
    table = pa.table({"subject": ["a"] * rows, "ts": [0] * rows} | columns)
    path = tmp_path / "dump.parquet"
    pq.write_table(table, path, compression="zstd", use_dictionary=["headers.list.element.value"])
    assert path.stat().st_size < 100_000
    with refused(ArchiveError, code, **fields):
        dumps.ingest(parquet=path)


def test_a_column_counts_if_any_file_has_it(dumps: Dumps) -> None:
    dumps.parquet("dump/1.parquet", subject=["a"], ts=[0])
    folder = dumps.parquet("dump/2.parquet", subject=["b"], ts=[0], data=["x"]).parent
    # pandas knows no type for a column without values.
    nothing = dict.fromkeys(("data", "headers", "cluster", "headers_raw"), pa.nulls(1))
    dumps.parquet("dump/3.parquet", subject=["c"], ts=[0], **nothing)
    dumps.ingest(parquet=folder)
    assert [(r.data, r.headers) for r in dumps.rows()] == [(b"", []), (b"x", []), (b"", [])]
    with pytest.raises(ArchiveError) as caught:
        dumps.ingest(parquet=folder, columns=DumpColumns(data="body"))
    assert fault(caught.value) == "dump-without-column body"


def a_file(name: str, content: bytes) -> Callable[[Path], dict[str, Any]]:
    """Makes a dump with this content."""

    def make(folder: Path) -> dict[str, Any]:
        (folder / name).write_bytes(content)
        return {"parquet" if name.endswith("parquet") else "jsonl": folder / name}

    return make


def in_parquet(subjects: Iterable[object]) -> bytes:
    sink = io.BytesIO()
    rows = [{"subject": str(subject), "ts": 0} for subject in subjects]
    pq.write_table(pa.Table.from_pylist(rows), sink, use_dictionary=False)
    return sink.getvalue()


LINES = "".join(f'{{"subject": "{n * 7919 % 10_007}", "ts": 0}}\n' for n in range(10_000))
PARQUET = in_parquet(n * 7919 for n in range(10_000))


class Keys(pe.KmsClient):  # type: ignore[misc]
    """Keeps keys for the one who has them, which no reader of ours is."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        return base64.b64encode(key_bytes).decode()


def encrypted(folder: Path, plaintext_footer: bool = False) -> dict[str, Any]:
    path = folder / "secret.parquet"
    table = pa.table({"subject": ["a"] * 1000, "ts": [0] * 1000})
    settings = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["subject"]}, plaintext_footer=plaintext_footer
    )
    factory = pe.CryptoFactory(lambda given: Keys())
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return {"parquet": path}


@pytest.mark.parametrize(
    ("make", "code", "why"),
    [
        pytest.param(
            a_file("cut.jsonl.gz", gzip.compress(LINES.encode())[:-5000]),
            "dump-unreadable",
            "it ends too early",
            id="gzip",
        ),
        *(
            pytest.param(
                a_file("cut.parquet", PARQUET[:end]),
                "dump-unreadable",
                "copy it again",
                id=f"cut-at-{end}",
            )
            for end in (-100, -1, 500, 3)
        ),
        pytest.param(
            a_file("bad.parquet", PARQUET[:100] + bytes(9_900) + PARQUET[10_000:]),
            "dump-unreadable",
            "bad.parquet",
            id="damaged",
        ),
        pytest.param(encrypted, "dump-unreadable", "it is encrypted", id="encrypted"),
        pytest.param(
            lambda f: encrypted(f, plaintext_footer=True),
            "dump-unreadable",
            "it is encrypted",
            id="encrypted-column",
        ),
        *(
            pytest.param(
                a_file("other.parquet", content),
                "dump-unreadable",
                "it is not a Parquet file",
                id=f"{content!r}",
            )
            for content in (b"this is not Parquet", b"")
        ),
        pytest.param(
            a_file("latin.jsonl", b'{"subject": "a", "ts": 0}\n{"subject": "\xe9", "ts": 0}\n'),
            "line-not-utf8",
            "latin.jsonl: message 2",
            id="utf-8",
        ),
        pytest.param(lambda f: {"parquet": f / "none"}, "no-such-path", "none", id="no-file"),
        pytest.param(lambda f: {"jsonl": f / "none*"}, "no-such-path", "none*", id="no-match"),
    ],
)
def test_files_that_cannot_be_read(
    dumps: Dumps, tmp_path: Path, make: Callable[[Path], dict[str, Any]], code: str, why: str
) -> None:
    with refused(JobError, code) as caught:
        dumps.ingest(**make(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 400
    assert not dumps.warehouse.folder.exists()
