"""What is said of servers that are not, or not all, as they are after a step."""

from __future__ import annotations

from typing import Any

import pytest

from nats_transform.plan.model import Plan, Step
from nats_transform.plan.state import View, differences, same

STREAM = ("stream", "S")
MAPPINGS = ("mappings", "$G")
FIRST, WIDE, LATE = ({"subjects": subjects} for subjects in (["a.*"], ["a.*", "b.*"], ["b.*"]))
EARLY = "step %d is in force already: undo it, or verify that step"


def way(percent: int) -> dict[str, Any]:
    return {"a.*": [{"destination": "b.$1", "weight": percent}]} if percent else {}


def plan() -> Plan:
    """Room for both names, two stages, and the old name out."""
    changes = [
        ("expand", "stream", "S", FIRST, WIDE),
        ("shift", "mappings", "$G", way(0), way(50)),
        ("shift", "mappings", "$G", way(50), way(100)),
        ("contract", "stream", "S", WIDE, LATE),
    ]
    steps = []
    for number, (phase, kind, name, before, after) in enumerate(changes, 1):
        change = {"kind": kind, "name": name, "before": before, "after": after}
        step = {"number": number, "phase": phase, "title": "", "why": "", "changes": [change]}
        steps.append(Step.model_validate(step))
    return Plan(account="$G", current="", candidate="", made_from={}, steps=tuple(steps))


def told(step: int, *seen: dict[tuple[str, str], Any]) -> list[str]:
    views = [View(f"n{n}", one) for n, one in enumerate(seen, 1)]
    return list(differences(plan(), step, views))


TOLD = {
    "in force": (2, [{STREAM: WIDE, MAPPINGS: way(50)}], []),
    "a later step": (2, [{STREAM: WIDE, MAPPINGS: way(100)}], [EARLY % 3]),
    # It changes what two steps change.
    "the last step": (0, [{STREAM: LATE, MAPPINGS: way(100)}], [EARLY % 4]),
    "a later step, seen in two places": (0, [{STREAM: WIDE}, {MAPPINGS: way(50)}], [EARLY % 2]),
    "out of order": (
        2,
        [{STREAM: FIRST, MAPPINGS: way(50)}],
        ["stream S: step 1 is not in force: subjects: a.*"],
    ),
    "one server not reloaded": (
        2,
        [{MAPPINGS: way(50)}, {MAPPINGS: way(0)}, {MAPPINGS: way(50)}],
        ["mappings $G on n2: step 2 is not in force: the account has none"],
    ),
    "two servers ahead": (
        2,
        [{MAPPINGS: way(50)}, {MAPPINGS: way(100)}, {MAPPINGS: way(100)}],
        ["mappings $G on n2, n3: step 3 is in force already; undo it, or verify that step"],
    ),
    "two servers behind, each at another step": (
        3,
        [{MAPPINGS: way(50)}, {MAPPINGS: way(0)}],
        [
            "mappings $G on n1: step 3 is not in force: a.*: 50 % to b.$1",
            "mappings $G on n2: step 2 is not in force: the account has none",
        ],
    ),
    "somebody else's stream": (
        1,
        [{STREAM: WIDE}, {STREAM: {"subjects": ["c.*"]}}],
        ["stream S on n2 has a state that is not in the plan: subjects: c.*"],
    ),
}


@pytest.mark.parametrize(("step", "seen", "lines"), TOLD.values(), ids=TOLD)
def test_what_is_told(step: int, seen: list[Any], lines: list[str]) -> None:
    assert told(step, *seen) == lines


@pytest.mark.parametrize(
    ("kept", "is_same"),
    [
        pytest.param({}, True, id="as the plan has it"),
        pytest.param({"a.*": 50}, True, id="as a server adds it"),
        pytest.param({"a.$1": 50}, True, id="as a stage writes it"),
        pytest.param({"a.$1": 30}, True, id="the server adds the rest"),
        pytest.param({"a.*": 30}, False, id="a fifth is lost"),
        pytest.param({"a.*": 0}, False, id="half is lost"),
        pytest.param({"c.$1": 50}, False, id="goes elsewhere"),
    ],
)
def test_what_keeps_its_subject_is_compared_too(kept: dict[str, int], is_same: bool) -> None:
    others = [{"destination": name, "weight": weight} for name, weight in kept.items()]
    assert same(MAPPINGS, {"a.*": [*way(50)["a.*"], *others]}, way(50)) is is_same
