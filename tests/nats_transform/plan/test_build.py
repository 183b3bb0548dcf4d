"""The steps of plans, and what there is no plan for."""

from __future__ import annotations

from typing import Any

import pytest

from nats_transform.config.permissions import Allowance, User
from nats_transform.migration import Question
from nats_transform.plan.build import NoPlan, build
from nats_transform.plan.files import page
from nats_transform.plan.model import Accepted, Plan
from nats_transform.plan.stages import stages
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.stream import StreamConfig, parse_stream
from tests.support.dry_runs import CensusRow, of_question
from tests.support.refused import refused
from tests.support.rules import mappings


def plan(question: Question, **more: Any) -> Plan:
    census = [CensusRow(subject, None, 10) for subject in ("orders.eu", "orders.us", "other.x")]
    return build(question, lambda one: of_question(census, one), **more)


NEW = mappings({"orders.*": "shop.orders.$1"})
NOTHING = mappings({})
AROUND = Question(
    NEW,
    NOTHING,
    streams=(StreamConfig(name="ORDERS", subjects=["orders.*"]),),
    consumers=(Consumer("ORDERS", "all"), Consumer("ORDERS", "eu", ("orders.eu",))),
    users=(User("app", Allowance(("orders.*",), ("orders.us",)), Allowance(("_INBOX.>",))),),
)


def test_what_headers_ask_of_people_stands_in_the_steps_that_move_messages() -> None:
    streams = (StreamConfig(name="ORDERS", subjects=["orders.*", "shop.orders.*"]),)
    asked = Question(NEW, NOTHING, streams=streams)

    def made(carries: str, *codes: str) -> Plan:
        rows = [CensusRow("orders.eu", None, 5, carries=carries)]
        accepted = [Accepted(code=code, reason="they wait") for code in codes]
        return build(asked, lambda one: of_question(rows, one), accepted=accepted)

    with refused(NoPlan, "no-safe-plan", finding="condition-fails"):
        made("condition")
    steps = made("condition", "condition-fails").steps
    assert [step.phase for step in steps][:2] == ["hold", "shift"]
    assert steps[0].title == "Hold publishers that expect a last sequence"
    assert "then read it under the new name" in steps[0].by_hand
    assert not any(step.programs for step in steps if step.phase != "shift")
    assert "hold" not in {step.phase for step in made("").steps}


def test_programs_subscribe_to_what_streams_republish_too() -> None:
    republish = {"src": "orders.*", "dest": "live.orders.$1"}
    stream = parse_stream({"name": "ORDERS", "subjects": ["orders.*"], "republish": republish})
    (first, *_) = [s for s in plan(Question(NEW, NOTHING, streams=(stream,))).steps if s.programs]
    assert "`orders.*` and `shop.orders.*`" in first.programs
    assert "`live.orders.*` and `live.shop.orders.*`" in first.programs


SETTLED: list[Any] = [
    pytest.param({}, [], id="none"),
    pytest.param({"allow_msg_schedules": True}, [("schedules", ("S",))], id="schedules"),
    pytest.param({"allow_msg_counter": True}, [("counters", ("S",))], id="counters"),
    pytest.param({"allow_msg_counter": True, "subjects": ["other.*"]}, [], id="not-moved"),
]


@pytest.mark.parametrize(("features", "settled"), SETTLED)
def test_what_streams_keep_is_settled_before_the_old_names_go(
    features: dict[str, Any], settled: list[Any]
) -> None:
    one = parse_stream({"name": "S", "subjects": ["orders.*"]} | features)
    accepted = [
        Accepted(code=code, reason="as the plan says")
        for code in ("counter-restarts", "schedule-not-mapped")
        if settled and code.startswith(settled[0][0][:7])
    ]
    steps = plan(Question(NEW, NOTHING, streams=(one,)), accepted=accepted).steps
    phases = [step.phase for step in steps]
    assert [(step.settles, step.streams) for step in steps if step.phase == "settle"] == settled
    if settled:
        place = phases.index("settle")
        assert phases[place - 1] == "shift"
        assert set(phases[place + 1 :]) == {"contract"}
    text = page(plan(Question(NEW, NOTHING, streams=(one,)), accepted=accepted))
    assert ("# run the commands" in text or "# publish each schedule" in text) == bool(settled)


CHANGE = ("kind", "name", "before", "after")


def test_steps() -> None:
    made = plan(AROUND)
    told = [
        (step.number, step.phase, step.percent, *(getattr(change, name) for name in CHANGE))
        for step in made.steps
        for change in step.changes
    ]
    old, new = "orders.*", "shop.orders.*"

    def allowed(*filters: str, deny: list[str]) -> dict[str, Any]:
        return {
            "publish": {"allow": list(filters), "deny": deny},
            "subscribe": {"allow": ["_INBOX.>"]},
        }

    before = allowed(old, deny=["orders.us"])
    both = allowed(old, new, deny=["orders.us", "shop.orders.us"])
    after = allowed(new, deny=["shop.orders.us"])

    def split(percent: int) -> dict[str, Any]:
        return {
            old: [
                {"destination": "shop.orders.$1", "weight": percent},
                {"destination": "orders.$1", "weight": 100 - percent},
            ]
        }

    whole = {old: [{"destination": "shop.orders.$1", "weight": 100}]}
    assert told == [
        (1, "expand", None, "stream", "ORDERS", {"subjects": [old]}, {"subjects": [old, new]}),
        (2, "expand", None, "consumer", "ORDERS/eu", {"filter_subjects": ["orders.eu"]},
         {"filter_subjects": ["orders.eu", "shop.orders.eu"]}),
        (3, "expand", None, "permissions", "app", before, both),
        (4, "shift", 2, "mappings", "$G", {}, split(2)),
        (5, "shift", 10, "mappings", "$G", split(2), split(10)),
        (6, "shift", 50, "mappings", "$G", split(10), split(50)),
        (7, "shift", 100, "mappings", "$G", split(50), whole),
        (8, "contract", None, "consumer", "ORDERS/eu",
         {"filter_subjects": ["orders.eu", "shop.orders.eu"]},
         {"filter_subjects": ["shop.orders.eu"]}),
        (9, "contract", None, "stream", "ORDERS", {"subjects": [old, new]}, {"subjects": [new]}),
        (10, "contract", None, "permissions", "app", both, after),
    ]  # fmt: skip


def test_no_subject_is_markup() -> None:
    made = plan(Question(mappings({"x`<b>`.*": "y.$1"}), NOTHING))
    (line,) = {line for line in page(made).splitlines() if line.startswith("Before you take")}
    assert "names: `` x`<b>`.* `` and `y.*`." in line


def test_the_same_input_gives_the_same_bytes() -> None:
    assert plan(AROUND).model_dump_json() == plan(AROUND).model_dump_json()
    assert Plan.model_validate_json(plan(AROUND).model_dump_json()) == plan(AROUND)


def test_a_filter_stays_that_covers_more_than_what_moves() -> None:
    streams = (StreamConfig(name="ALL", subjects=["orders.>", "other.>"]),)
    made = plan(Question(NEW, NOTHING, streams=streams))
    subjects = [change.after["subjects"] for step in made.steps for change in step.changes
                if change.kind == "stream"]  # fmt: skip
    assert subjects == [["orders.>", "other.>", "shop.orders.*"]]


def test_what_the_stream_stores_already_needs_no_room() -> None:
    streams = (StreamConfig(name="ALL", subjects=[">"], no_ack=True),)
    assert {step.phase for step in plan(Question(NEW, NOTHING, streams=streams)).steps} == {"shift"}


AT_ONCE: dict[str, tuple[dict[str, Any], str]] = {
    "weights": ({"orders.eu": "a", "orders.us": [("b", 60), ("c", 40)]}, "weights of its own"),
    "overlap": ({"orders.*": "a.$1", "orders.eu": "b", "x": "y"}, "it shares subjects with"),
}


@pytest.mark.parametrize(("rules", "reason"), AT_ONCE.values(), ids=AT_ONCE)
def test_what_no_weights_can_split_moves_at_once(rules: dict[str, Any], reason: str) -> None:
    candidate = mappings(rules)
    first, *_, last = stages(NOTHING, candidate)
    assert first.percent == 2
    assert last.mappings == candidate
    assert first.at_once
    for source, why in first.at_once:
        assert reason in why
        here = [one for one in first.mappings.mappings if one.source == source]
        assert here == [one for one in candidate.mappings if one.source == source]


def test_nothing_to_split_is_one_stage() -> None:
    weighted = mappings({"a": [("b", 50), ("c", 50)]})
    assert [stage.percent for stage in stages(NOTHING, weighted)] == [100]


def test_back_to_no_mapping_has_stages_too() -> None:
    first, *_ = stages(NEW, NOTHING, (10, 100))
    assert first.mappings == mappings({"orders.*": [("orders.$1", 10), ("shop.orders.$1", 90)]})


def test_an_error_that_room_does_not_cure_blocks() -> None:
    asked = Question(mappings({"orders.*": "shop"}), NOTHING, streams=AROUND.streams)
    with refused(
        NoPlan, "no-safe-plan", finding="collision", accept=", or accept it with a reason"
    ):
        plan(asked)
    reason = "one counter for all countries"
    accepted = [Accepted(code=code, reason=reason) for code in ("collision", "irreversible")]
    made = plan(asked, accepted=accepted)
    assert made.accepted[0].reason == reason


def test_streams_that_would_overlap_block_whoever_accepts_it() -> None:
    streams = (*AROUND.streams, StreamConfig(name="SHOP", subjects=["shop.>"]))
    accepted = [Accepted(code="streams-overlap", reason="x")]
    with refused(NoPlan, "no-safe-plan", finding="streams-overlap", accept=""):
        plan(Question(NEW, NOTHING, streams=streams), accepted=accepted)


def test_all_reasons_are_told_at_once() -> None:
    """A stream that nats-server would refuse hides neither the others nor what a dry run finds."""
    republish = {"src": ">", "dest": "shop.>"}
    mirror = {"name": "ORDERS", "filter_subject": "orders.eu"}
    streams = (
        parse_stream({"name": "ORDERS", "subjects": ["orders.*"], "republish": republish}),
        parse_stream({"name": "EU", "mirror": mirror}),
    )
    candidate = mappings({"orders.*": "shop.all"})
    with pytest.raises(NoPlan) as caught:
        plan(Question(candidate, NOTHING, streams=streams))
    told = [one.code for one in caught.value.blocked]
    assert {"collision", "irreversible", "mirror-filter", "not-captured"} <= {*told}
    assert told[0] == "stream-refused"
    assert f"(and {len(told) - 1} more)" in str(caught.value)
