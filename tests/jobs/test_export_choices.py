"""What an export leaves out, keeps and refuses: no server is needed for any of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import JobError
from jobs.export import ExportResult, ExportSettings, export
from jobs.ingest import IngestSettings, ingest
from jobs.session import SessionOnDemand, SparkSettings
from jobs.transform import TransformSettings, transform
from jobs.warehouse.tables import Warehouse
from nats_transform.backup.archive import Head, read_head, read_messages
from nats_transform.errors import NatsTransformError
from tests.support.backups import Entry, archive, packed, state_of

SPARK = SessionOnDemand(SparkSettings())
MESSAGES: list[Entry] = [
    (b"a.1", 1_700_000_000_000_000_001, 11, b"", b"one"),
    (b"a.2", 1_700_000_000_000_000_002, 12, b"NATS/1.0\r\nA: 1\r\n\r\n", b""),
    (b"b.x", 1_700_000_000_000_000_003, 14, b"NATS/1.0\r\nbare:1\r\n\r\n", b"three"),
    (b"c.--", 1_700_000_000_000_000_004, 15, b"", b"four"),
    (b"d", 1_700_000_000_000_000_005, 20, b"", b"five"),
]
CONFIG = {"name": "S", "subjects": ["a.*", "b.*", "c.*", "d"], "storage": "file"}
MAPPING: dict[str, Any] = {"a.*": [{"subject": "v2.a.$1"}]}


def consumer(*filters: str, pending: dict[str, Any] | None = None) -> dict[str, Any]:
    state: dict[str, Any] = {
        "delivered": {"consumer_seq": 3, "stream_seq": 14},
        "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
    }
    if pending:
        state["pending"] = pending
    return {"config": {"durable_name": "d", "filter_subjects": list(filters)}, "state": state}


class Archive:
    """A stream that was ingested from a backup made byte by byte, and transformed."""

    def __init__(self, folder: Path, mapping: Any = None, **consumers: dict[str, Any]) -> None:
        self.folder, self.warehouse = folder, Warehouse(dir=folder / "warehouse")
        self.backup, self.mapping = folder / "backup", folder / "mapping.json"
        self.backup.mkdir()
        self.mapping.write_text(json.dumps(mapping or MAPPING))
        state = state_of(MESSAGES, last_seq=25, consumer_count=len(consumers))
        content = packed(archive(MESSAGES, state, consumers.items()))
        (self.backup / "stream.arc.s2").write_bytes(content)
        (self.backup / "backup.json").write_text(json.dumps({"config": CONFIG, "state": state}))
        self.settings = {"stream": "S", "warehouse": self.warehouse}
        ingest(SPARK, IngestSettings(backup=self.backup, **self.settings))  # type: ignore[arg-type]
        transform(SPARK, TransformSettings(mapping=self.mapping, **self.settings))  # type: ignore[arg-type]

    def export(self, **given: Any) -> ExportResult:
        wanted = {"original": self.backup, "mapping": self.mapping, "to_backup": self.place} | given
        return export(ExportSettings(**self.settings, **wanted))

    @property
    def place(self) -> str:
        return str(self.folder / "new" / "backup")

    def exported(self) -> tuple[Head, list[Entry]]:
        """What the new backup has."""
        with (self.folder / "new" / "backup" / "stream.arc.s2").open("rb") as file:
            head, found = read_head(file), list[Entry]()
            for batch in read_messages(file, head.messages):
                columns = (batch.subjects(), batch.headers(), batch.data())
                subjects, headers, data = (column.to_pylist() for column in columns)
                numbers = (batch.times.tolist(), batch.sequences.tolist())
                found += zip(subjects, *numbers, headers, data, strict=True)
        return head, found


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Archive]:
    return lambda *given, **consumers: Archive(tmp_path, *given, **consumers)


def renamed(subjects: dict[bytes, bytes], *, drop: int = 0) -> list[Entry]:
    return [(subjects.get(m[0], m[0]), *m[1:]) for m in MESSAGES if m[2] != drop]


def test_messages_keep_all_but_their_subjects(make: Callable[..., Archive]) -> None:
    made = make()
    result = made.export()
    head, messages = made.exported()
    assert messages == renamed({b"a.1": b"v2.a.1", b"a.2": b"v2.a.2"})
    assert result.subjects == ["v2.a.*", "b.*", "c.*", "d"]
    assert (result.first_seq, result.last_seq, result.gaps) == (11, 25, 10)
    described = json.loads(Path(made.place, "backup.json").read_text())
    assert described == {"config": CONFIG | {"subjects": result.subjects}, "state": head.state}
    assert head.state["first_ts"] == "2023-11-14T22:13:20.000000001Z"
    assert result.findings == []
    assert [p.name for p in Path(made.place).parent.iterdir()] == ["backup"]


LOST = {"b.x": [{"subject": "b.x", "weight": 1}]}
INVALID = {"c.*": [{"subject": "c.{{split(1,-)}}"}]}


def test_lost_messages_leave_gaps(make: Callable[..., Archive]) -> None:
    made = make(LOST)
    result = made.export()
    assert made.exported()[1] == renamed({}, drop=14)
    assert (result.left_out, result.gaps) == ({"lost": 1}, 11)


def test_gaps_can_be_closed(make: Callable[..., Archive]) -> None:
    made = make(LOST, all=consumer())
    result = made.export(gaps="close")
    head, messages = made.exported()
    assert [m[2] for m in messages] == [11, 12, 13, 14]
    assert (result.gaps, result.consumers, dict(head.consumers)) == (0, [], {})
    assert [f.code for f in result.findings] == ["consumers"]
    assert result.fails("finding")


@pytest.mark.parametrize(("choice", "kept"), [("keep", renamed({})), ("gap", renamed({}, drop=15))])
def test_invalid_messages(make: Callable[..., Archive], choice: str, kept: list[Entry]) -> None:
    made = make(INVALID)
    with pytest.raises(JobError, match="1 messages of stream S have no legal new subject"):
        made.export()
    assert not Path(made.place).parent.exists()
    made.export(invalid=choice)
    assert made.exported()[1] == kept


def test_consumers_without_the_same_messages_are_left_out(make: Callable[..., Archive]) -> None:
    """`b.x` and `b.y` become one subject with `d`, so a filter on `d` cannot tell them apart."""
    merged = {"d": [{"subject": "b.x"}]}
    made = make(
        merged, d=consumer("d"), a=consumer("a.1", "a.2"), b=consumer("b.*"), all=consumer()
    )
    result = made.export()
    assert result.consumers == ["a", "all"]
    assert [(f.code, f.message.split(":")[0]) for f in result.findings] == [
        ("consumer", "consumer d is left out"),
        ("consumer", "consumer b is left out"),
    ]
    assert made.exported()[0].consumers["a"] == consumer("a.1", "a.2")


def test_filters_are_mapped_and_pending_messages_that_are_gone_are_forgotten(
    make: Callable[..., Archive],
) -> None:
    pending = {n: {"Sequence": int(n), "Timestamp": 1} for n in ("12", "14")}
    mapping = MAPPING | LOST
    one = consumer("a.2", pending={"12": pending["12"]})
    made = make(mapping, both=consumer("a.2", "b.*", pending=pending), one=one,
                lost=consumer("b.x", pending={"14": pending["14"]}))  # fmt: skip
    made.export()
    found = made.exported()[0].consumers
    assert found["one"]["config"] == {"durable_name": "d", "filter_subject": "v2.a.2"}
    assert found["both"]["config"]["filter_subjects"] == ["v2.a.2", "b.*"]
    assert found["both"]["state"]["pending"] == {"12": pending["12"]}
    assert "pending" not in found["lost"]["state"]
    assert found["lost"]["state"]["ack_floor"] == found["lost"]["state"]["delivered"]


def test_a_configuration_of_ones_own(make: Callable[..., Archive], tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"config": {"name": "NEW", "subjects": ["v2.>", "b.x"]}}))
    made = make()
    result = made.export(config=own, original=None, mapping=None)
    assert (result.name, result.subjects, result.consumers) == ("NEW", ["v2.>", "b.x"], [])
    assert [f.message.split(":")[0] for f in result.findings] == [
        "2 messages have a subject that the exported stream does not capture (v2.>, b.x)"
    ]


REFUSED = [
    pytest.param({"mapping": None}, "are not recorded in the warehouse", id="no-mapping"),
    pytest.param({"seed": 5}, "is not the mapping version", id="another-seed"),
    pytest.param({"original": Path("/nowhere")}, "is no configuration of a stream", id="nothing"),
    pytest.param({"original": None}, "give what the stream was", id="no-configuration"),
    pytest.param({"to_backup": "BACKUP"}, "is there already", id="taken"),
    pytest.param({"to_backup": "BACKUP/backup.json"}, "is there already", id="a-file"),
    pytest.param({"to_backup": "BACKUP/backup.json/x"}, "cannot be written", id="below-a-file"),
    pytest.param({"to_backup": "nothing://x/y"}, "cannot be written", id="unknown-store"),
    pytest.param({"stream": "T"}, "stream T is not in the warehouse", id="unknown-stream"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_refused(make: Callable[..., Archive], given: dict[str, Any], message: str) -> None:
    made = make()
    if "BACKUP" in given.get("to_backup", ""):
        given = given | {"to_backup": given["to_backup"].replace("BACKUP", str(made.backup))}
    made.settings |= {name: given.pop(name) for name in ("stream",) if name in given}
    with pytest.raises((NatsTransformError, ValueError), match=message) as caught:
        made.export(**given)
    if isinstance(caught.value, NatsTransformError):
        assert "\n" not in str(caught.value)
    assert not Path(made.place).parent.exists() or not list(Path(made.place).parent.iterdir())


def test_days_that_are_not_transformed(make: Callable[..., Archive], tmp_path: Path) -> None:
    made = make()
    more: list[Entry] = [*MESSAGES, (b"a.9", 1_710_000_000_000_000_000, 26, b"", b"later")]
    later = tmp_path / "later"
    later.mkdir()
    (later / "stream.arc.s2").write_bytes(packed(archive(more)))
    described = {"config": CONFIG, "state": state_of(more)}
    (later / "backup.json").write_text(json.dumps(described))
    ingest(SPARK, IngestSettings(backup=later, **made.settings))  # type: ignore[arg-type]
    with pytest.raises(JobError, match="has 6 archived messages, and 5 of them are transformed"):
        made.export()
