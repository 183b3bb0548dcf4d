"""The offline trace: every scope once, in the server's order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nats_transform import Fate, parse_stream
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.trace import UNSEEN_NUMBERS, trace
from tests.cases import load
from tests.support.rules import mappings

MAPPINGS = mappings(
    {
        "shop.*.*": [("v1.$1.$2", 90), ("v2.$2.{{partition(3,1)}}", 8), ("west.$2", 100, "west")],
        "lossy": [("lossy", 0)],
        "cut.*": "x.{{split(1,-)}}",
    }
)
STREAMS = list(map(parse_stream, load("networks.yaml")["traced"]))

TEXT = """\
shop.eu.42 published
├─ 2 % by shop.*.*, no destination drawn: keeps its subject
├─ 8 % v2.42.2 by shop.*.* -> v2.$2.{{partition(3,1)}}
│  └─ stream V2 stores v2.42.2
│     └─ stream SUMS sources it [1]: filtered
└─ 90 % v1.eu.42 by shop.*.* -> v1.$1.$2
   └─ stream V1 stores orders.42
      ├─ republished as live.42 (headers only)
      │  └─ stream LIVE stores live.42
      │     └─ republished as v1.42
      │        └─ stream V1 stores v1.42, which loops forever
      ├─ stream COPY mirrors it as orders.42
      │  └─ stream SUMS sources it [2] as orders.42
      └─ stream SUMS sources it [0] as sums.42"""


def test_the_text() -> None:
    assert trace("shop.eu.42", MAPPINGS, STREAMS).text() == TEXT


def test_the_json_holds_the_same() -> None:
    data = json.loads(trace("shop.eu.42", MAPPINGS, STREAMS).model_dump_json())
    assert [path["percent"] for path in data["paths"]] == [2, 8, 90]
    (stored,) = data["paths"][2]["streams"]
    assert (stored["stream"], stored["arrived"], stored["stored"]) == (
        "V1",
        "v1.eu.42",
        "orders.42",
    )
    assert stored["republished"]["subject"] == "live.42"
    assert "Nats-Msg-Size" in stored["republished"]["headers"]
    taken = [(step["stream"], step["via"], step["position"]) for step in stored["taken_by"]]
    assert taken == [("COPY", "mirror", None), ("SUMS", "source", 0)]


def test_the_cluster_decides() -> None:
    seen = trace("shop.eu.42", MAPPINGS, STREAMS, "west")
    assert [(path.percent, path.subject) for path in seen.paths] == [(100, "west.42")]
    assert seen.text().startswith("shop.eu.42 published in cluster west\n")


def test_what_was_sourced_is_republished_and_stored_nowhere() -> None:
    streams = [
        {"name": "A", "subjects": ["a.*"]},
        {"name": "B", "sources": [{"name": "A"}]},
        {"name": "C", "mirror": {"name": "B"}, "republish": {"src": ">", "dest": "c.>"}},
        {"name": "D", "subjects": ["c.>"]},
    ]
    seen = trace("a.1", streams=[parse_stream(stream) for stream in streams])
    assert seen.text().splitlines()[2:] == [
        "   └─ stream A stores a.1",
        "      └─ stream B sources it [0] as a.1",
        "         └─ stream C mirrors it as a.1",
        "            └─ republished as c.a.1",
    ]


@pytest.mark.parametrize(
    ("count", "subjects", "stored"),
    [
        (2, ["w.*"], ["w.{{random(2)}}"]),
        (3, ["w.0", "w.1", "w.2"], ["w.0", "w.1", "w.2"]),
        (3, ["w.1"], ["w.1"]),
        (1000, ["w.7", "w.1000"], ["w.7"]),
    ],
)
def test_numbers_that_streams_tell_apart(
    count: int, subjects: list[str], stored: list[str]
) -> None:
    spread = mappings({"orders.*": f"w.{{{{random({count})}}}}"})
    streams = [parse_stream({"name": "W", "subjects": subjects})]
    (path,) = trace("orders.eu", spread, streams).paths
    assert path.subject == f"w.{{{{random({count})}}}}"
    assert [step.stored for step in path.streams] == stored


@pytest.mark.parametrize("dest", ["out.{{random(2)}}", "out.$1"])
def test_numbers_that_streams_draw(dest: str) -> None:
    transform = {"src": "in.*", "dest": dest}
    stream = {"name": "S", "subjects": ["in.*"], "subject_transform": transform}
    seen = trace("in.a", streams=[parse_stream(stream)], consumers=[Consumer("S", "C", ("out.0",))])
    assert (UNSEEN_NUMBERS in seen.not_looked_at) is ("random" in dest)
    seen = trace("in.a", mappings({"in.*": dest}), leaf_node=mappings({"out.0": "x"}))
    assert (UNSEEN_NUMBERS in seen.not_looked_at) is ("random" in dest)


def test_only_a_mapping_writes_random_numbers() -> None:
    """Their count has 32 bits; what is longer stands in the subject as its publisher wrote it."""
    spread = mappings({"orders.*": "w.$1"})
    streams = [parse_stream({"name": "W", "subjects": ["w.*"]})]
    (path,) = trace("orders.{{random(99999999999999999999)}}", spread, streams).paths
    assert [step.stored for step in path.streams] == ["w.{{random(99999999999999999999)}}"]


def test_what_nobody_gets() -> None:
    assert trace("lossy", MAPPINGS).text().endswith("100 % lost by lossy")
    (path,) = trace("cut.--", MAPPINGS).paths
    assert (path.fate, path.subject, path.streams) == (Fate.INVALID, None, [])
    assert trace("a..b", MAPPINGS).text() == "a..b published\n└─ 100 % invalid: empty token"


def test_without_mappings_and_streams() -> None:
    assert trace("a.b").text() == "a.b published\n└─ 100 % keeps its subject"


def test_an_illegal_subject_is_stored_and_not_followed() -> None:
    cut = {"name": "CUT", "subjects": ["in.*"]}
    cut["subject_transform"] = {"src": "in.*", "dest": "{{split(1,-)}}"}
    copy = {"name": "COPY", "mirror": {"name": "CUT"}}
    seen = trace("in.--a", streams=[parse_stream(cut), parse_stream(copy)])
    assert seen.text().splitlines()[2:] == [
        "   └─ stream CUT stores .a (empty token)",
        "      └─ stream COPY mirrors it: invalid, empty token",
    ]


def test_control_bytes_do_not_reach_the_terminal() -> None:
    text = trace("a\x1b[31m.\udcff").text()
    assert "\x1b" not in text
    assert text.isascii() or "\udcff" not in text


NO_OTHER_RULE = {
    "what the weights leave over": (
        {"orders.*": [("v2.$1", 2)]},
        "2 % v2.42 by orders.* -> v2.$1",
        "98 % by orders.*, no destination drawn: keeps its subject",
    ),
    "a destination that is the source": (
        {"orders.>": [("orders.>", 98), ("v2.>", 2)]},
        "2 % v2.42 by orders.> -> v2.>",
        "98 % orders.42 by orders.> -> orders.>",
    ),
}


@pytest.mark.parametrize(("rules", "first", "second"), NO_OTHER_RULE.values(), ids=NO_OTHER_RULE)
def test_no_rule_is_invented(rules: dict[str, Any], first: str, second: str) -> None:
    traced = trace("orders.42", mappings(rules))
    assert [line[3:] for line in traced.text().split("\n")[1:]] == [first, second]
