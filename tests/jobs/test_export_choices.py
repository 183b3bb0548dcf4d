"""What an export leaves out, keeps and refuses: a server is only needed to restore it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import JobError
from jobs.jetstream.process import NatsServer
from jobs.warehouse.tables import open_table
from jobs.warehouse.versions import MAPPING_VERSIONS
from nats_transform.errors import NatsTransformError, sentence
from tests.cases import rows
from tests.support.backups import Entry
from tests.support.exporting import CONFIG, MAPPING, MESSAGES, Exporting, consumer
from tests.support.jobs import dumped, erased, ingested, sifting, transformed
from tests.support.refused import refused
from tests.support.stream_backups import restore

Make = Callable[..., Exporting]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return lambda *given, **consumers: Exporting(tmp_path, *given, **consumers)


@pytest.fixture
def made(make: Make) -> Exporting:
    """One with the usual mapping, and no consumer."""
    return make()


def renamed(subjects: dict[bytes, bytes], *, drop: int = 0) -> list[Entry]:
    return [(subjects.get(m[0], m[0]), *m[1:]) for m in MESSAGES if m[2] != drop]


def test_messages_keep_all_but_their_subjects(made: Exporting) -> None:
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


def test_lost_messages_leave_gaps(make: Make) -> None:
    made = make(LOST)
    result = made.export()
    assert made.exported()[1] == renamed({}, drop=14)
    assert (result.left_out, result.gaps) == ({"lost": 1}, 11)


@pytest.mark.parametrize("seq", ["15..5000", "40..5000"])
def test_sequences_erased_in_advance_are_not_the_end(made: Exporting, seq: str) -> None:
    """The stream that is restored goes on where the one in the archive ended."""
    assert erased(made.warehouse, seq=seq).refused is None
    assert made.export(mapping=None).last_seq == 25


def test_gaps_can_be_closed(make: Make) -> None:
    made = make(LOST, all=consumer())
    result = made.export(gaps="close")
    head, messages = made.exported()
    assert [m[2] for m in messages] == [11, 12, 13, 14]
    assert (result.gaps, result.consumers, dict(head.consumers)) == (0, [], {})
    assert [f.code for f in result.findings] == ["consumers"]
    assert result.fails("finding")


@pytest.mark.parametrize(("choice", "kept"), [("keep", renamed({})), ("gap", renamed({}, drop=15))])
def test_invalid_messages(make: Make, choice: str, kept: list[Entry]) -> None:
    made = make(INVALID)
    with refused(JobError, "export-illegal-subjects", messages="1 message", stream="S"):
        made.export()
    assert not Path(made.place).parent.exists()
    made.export(invalid=choice)
    assert made.exported()[1] == kept


@pytest.mark.server
@pytest.mark.parametrize(
    ("messages", "kind"), [("transformed", "illegal"), ("archived", "original")]
)
def test_illegal_archived_subjects(
    make: Make, nats_server: NatsServer, messages: str, kind: str
) -> None:
    """As a stream's subject transform stores them; a server restores them, too."""
    illegal = [b"b..17", b".", b"b.x y", b"b.*", b">"]
    more = [(subject, 1_700_000_000 * 10**9, 21 + n, b"", b"") for n, subject in enumerate(illegal)]
    made = make(messages=[*MESSAGES, *more])
    chosen = {"messages": messages, "mapping": None if messages == "archived" else made.mapping}
    with refused(JobError, f"export-{kind}-subjects"):
        made.export(**chosen)
    made.export(**chosen, invalid="keep")
    assert made.exported()[1][len(MESSAGES) :] == more
    own = {"name": f"ILLEGAL-{messages}", "subjects": [f"illegal.{messages}"]}
    state = restore(nats_server.url, Path(made.place), **own)
    assert (state.messages, state.last) == (len(MESSAGES) + len(more), 25)


def test_consumers_without_the_same_messages_are_left_out(make: Make) -> None:
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
    assert json.loads(made.exported()[0].consumers["a"]) == consumer("a.1", "a.2")


def test_filters_are_mapped_and_pending_messages_that_are_gone_are_forgotten(make: Make) -> None:
    pending = {n: {"Sequence": int(n), "Timestamp": 1} for n in ("12", "14")}
    mapping = MAPPING | LOST
    one = consumer("a.2", pending={"12": pending["12"]})
    made = make(mapping, both=consumer("a.2", "b.*", pending=pending), one=one,
                lost=consumer("b.x", pending={"14": pending["14"]}))  # fmt: skip
    made.export()
    found = {n: json.loads(text) for n, text in made.exported()[0].consumers.items()}
    assert found["one"]["config"] == {"durable_name": "d", "filter_subject": "v2.a.2"}
    assert found["both"]["config"]["filter_subjects"] == ["v2.a.2", "b.*"]
    assert found["both"]["state"]["pending"] == {"12": pending["12"]}
    assert "pending" not in found["lost"]["state"]
    assert found["lost"]["state"]["ack_floor"] == found["lost"]["state"]["delivered"]


def test_a_configuration_of_ones_own(made: Exporting, tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"config": {"name": "NEW", "subjects": ["v2.>", "b.x"]}}))
    result = made.export(config=own, original=None, mapping=None)
    assert (result.name, result.subjects, result.consumers) == ("NEW", ["v2.>", "b.x"], [])
    assert [f.message.split(":")[0] for f in result.findings] == [
        "2 messages have a subject that the exported stream does not capture (v2.>, b.x)"
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"until": 14}, "missing sequences 15-25, subject filter none", id="range"),
        pytest.param(
            {"subject": "a.*"}, r"missing sequences none, subject filter a\.\*", id="subject"
        ),
    ],
)
def test_a_part_of_a_stream(make: Make, given: Any, message: str) -> None:
    result = make(ingested=given).export()
    assert [finding.code for finding in result.findings] == ["partial"]
    assert re.search(message, result.findings[0].message)


def test_the_mappings_are_those_that_the_transform_recorded(made: Exporting) -> None:
    wanted = made.export()
    found = made.export(mapping=None, to_backup=str(made.folder / "again" / "backup"))
    assert (found.digest, found.subjects) == (wanted.digest, wanted.subjects)
    # The tables of an older release have no such record.
    open_table(made.settings["warehouse"], MAPPING_VERSIONS).delete()
    with refused(JobError, "version-without-mappings"):
        made.export(mapping=None, to_backup=str(made.folder / "third" / "backup"))


@pytest.mark.parametrize(("given", "code"), rows("requests.yaml", "no exports"))
def test_refused(made: Exporting, given: dict[str, Any], code: str) -> None:
    if "to_backup" in given:
        given = {"to_backup": given["to_backup"].replace("BACKUP", str(made.backup))}
    with refused((NatsTransformError, ValueError), code):
        made.export(**given)
    assert not Path(made.place).parent.exists() or not list(Path(made.place).parent.iterdir())


NO_NAME = f"name: {sentence('not-a-name')}"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        *rows("requests.yaml", "no streams"),
        ('{"name": "A/../b c"}', NO_NAME),
        ('{"name": "\\ud800"}', NO_NAME),
    ],
)
def test_configurations_that_are_none(
    made: Exporting, tmp_path: Path, document: str, message: str
) -> None:
    own = tmp_path / "own.json"
    own.write_text(document)
    for given in ({"config": own}, {"original": own}):
        with refused(JobError, "export-not-a-stream", path=own) as caught:
            made.export(**given)
        assert message in caught.value.fields["reason"]
    assert not Path(made.place).parent.exists()


def test_days_that_are_not_transformed(made: Exporting, tmp_path: Path) -> None:
    later = {"seq": 26, "ts": "2024-03-09T16:00:00Z", "subject": "a.9"}
    ingested(made.warehouse, dumped(tmp_path / "later.jsonl", [later]))
    with refused(JobError, "export-untransformed", messages=6, transformed=5):
        made.export()


def test_messages_in_quarantine(made: Exporting) -> None:
    transformed(made.warehouse, made.mapping, sift=sifting("by number", lambda seq: seq == 14))
    with refused(JobError, "export-untransformed", messages=5, transformed=4):
        made.export()


def test_no_flipped_bit_gives_other_messages(tmp_path: Path) -> None:
    made = Exporting(tmp_path, d=consumer("a.*"))
    made.export()
    head, entries = made.exported()
    file = Path(made.place) / "stream.arc.s2"
    data = file.read_bytes()
    errors = []
    for place in {*range(0, len(data), 61), *range(len(data) - 200, len(data), 7)}:
        file.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        try:
            assert made.exported() == (head, entries)
        except NatsTransformError as error:
            errors.append(str(error))
    assert len(errors) > 20
    assert "\n" not in "".join(errors)
