"""What would be found next if streams, and then everything else, had room for new subjects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.dry_run.question import read_question
from nats_transform.lint.findings import Severity
from nats_transform.mappings.moves import moves
from nats_transform.migration import DryRun, MigrationFinding, Question, database
from nats_transform.migration.findings import STOPS_PLAN, Layer
from nats_transform.migration.room.dependents import streams_with_room, wide
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.stream import parse_stream
from tests.cases import load
from tests.nats_transform.plan.situations import PLANNED, SITUATIONS, Situation
from tests.support.dry_runs import CensusRow, of_question
from tests.support.rules import mappings

MASKED = Question(
    mappings({"orders.*.*": "shop.$2"}),
    mappings({}),
    streams=tuple(map(parse_stream, load("networks.yaml")["layers"])),
    consumers=(Consumer("ORDERS", "eu", ("orders.eu.*",)),),
    archived=("ORDERS",),
)
ROWS = [CensusRow("orders.eu.1", None, 5), CensusRow("orders.us.1", None, 3)]


def told(findings: Iterable[MigrationFinding], layer: Layer) -> list[tuple[str, str, float]]:
    return sorted((one.code, one.about, one.messages) for one in findings if one.layer is layer)


def test_what_no_stream_captures_hides_no_mirror_source_republish_or_limit() -> None:
    found = of_question(ROWS, MASKED)
    assert told(found.findings, Layer.NOW) == [
        ("collision", "mapping orders.*.*", 8),
        ("consumer-none", "consumer eu of stream ORDERS", 5),
        ("irreversible", "", 8),
        ("mirror-filter", "stream EU", 0),
        ("not-captured", "stream ORDERS", 8),
    ]
    assert told(found.with_room, Layer.ROOM) == [
        ("ingress-stops", "stream ORDERS", 8),
        ("limit-discards", "stream ORDERS", 3),
        ("republish-stops", "stream ORDERS", 8),
        ("source-stops", "stream AGG", 3),
        ("source-stops", "stream EU", 5),
    ]


def test_the_examples_of_a_limit_are_those_of_its_layer() -> None:
    (limit,) = (f for f in of_question(ROWS, MASKED).with_room if f.code == "limit-discards")
    assert [(e.subject, e.after, e.messages) for e in limit.examples] == [
        ("orders.eu.1", "shop.1", 5),
        ("orders.us.1", "shop.1", 3),
    ]


def codes(findings: Sequence[MigrationFinding]) -> set[tuple[str, str]]:
    return {(one.code, one.about) for one in findings}


def answers(one: Situation, folder: Path) -> tuple[Question, DryRun]:
    question = read_question(one.settings(folder))
    return question, one.dry_run(question)


@pytest.mark.parametrize("one", [pytest.param(one, id=one.id) for one in (*SITUATIONS, *PLANNED)])
def test_each_layer_is_a_dry_run_of_its_configuration(one: Situation, tmp_path: Path) -> None:
    question, found = answers(one, tmp_path)
    changing = moves(question.current, question.candidate)
    room = replace(question, streams=streams_with_room(question.streams, changing))
    roomy = one.dry_run(room).findings
    known = codes(found.findings)
    # `check` is not asked again.
    expected = [
        f for f in roomy if f.severity is not Severity.INFO and not f.code.startswith("check-")
    ]
    in_room = [f for f in found.with_room if f.layer is Layer.ROOM]
    assert codes(in_room) == codes(expected) - known
    both, refused = wide(question, changing)
    known |= codes(in_room) | codes(roomy)
    expected = [
        f
        for f in one.dry_run(both).findings
        if (f.severity is Severity.ERROR or f.code in STOPS_PLAN)
        and not f.code.startswith("check-")
    ]
    last = codes(expected) | {obstacle[:2] for obstacle in refused}
    assert codes([f for f in found.with_room if f.layer is Layer.BOTH]) == last - known


@pytest.mark.parametrize(
    "one", [pytest.param(one, id=one.id) for one in (*SITUATIONS[::6], *PLANNED[::6])]
)
def test_few_rows_are_counted_as_many_are(
    one: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows are in tables, many in views."""
    question, few = answers(one, tmp_path)
    monkeypatch.setattr(database, "FEW", 0)
    assert one.dry_run(question, anew=True) == few
    assert few.findings


def test_mappings_that_all_overlap_are_said_to_be_too_many() -> None:
    """Every pair of them moves some subjects; 2,000 would have 2 million moves."""
    names = [source for n in range(500) for source in (f"a{n}.>", f"*.b{n}.>")]
    old, new = (
        mappings({one: f"{to}.{n}.>" for n, one in enumerate(names)}) for to in ("old", "new")
    )
    found = of_question([CensusRow("a1.b1", None, 1)], replace(MASKED, candidate=new, current=old))
    assert not found.with_room
    (finding,) = (one for one in found.findings if one.code == "check-not-compared")
    assert finding.stops_plan
