"""The tables of the semantics and corners of our own: scalar = kernel."""

from __future__ import annotations

from typing import Any

import pytest

from nats_transform import AccountMappings, Destination, Mapping, Transform
from nats_transform.kernel import Program
from nats_transform.kernel.filters import Pattern
from nats_transform.kernel.rules import End, Ends, Rule, State
from nats_transform.mappings.mapping import Fate
from nats_transform.mappings.subject import literal_fault
from nats_transform.streams.stream import StreamConfig
from tests import cases
from tests.nats_transform.kernel.comparing import (
    Message,
    compare,
    ingress_case,
    mappings_case,
    outcomes,
    republish_case,
    take_case,
    texts,
)
from tests.support.rules import mappings


@pytest.mark.parametrize(
    "row", [row for row in cases.transforms() if row.error is None], ids=lambda row: row.id
)
def test_transforms(row: cases.TransformCase) -> None:
    """Each alone, as a rule that filters what it does not cover."""
    transform = Transform(row.source, row.destination, strict=row.strict)
    end = End(State(Fate.MAPPED), transform.tokens)
    rule = Rule(Pattern.of_source(transform.filter), "", Ends([end]))
    program = Program([rule], End(State(Fate.FILTERED)))
    batch = program.apply(texts([row.subject]))
    (outcome,) = outcomes(batch)
    if literal_fault(row.subject):
        assert outcome.fate == Fate.INVALID
    elif "random" in row.destination:
        assert (outcome.subject is None) == (row.expected is None)
    else:
        assert outcome.subject == row.expected


def test_transforms_in_one_account() -> None:
    """All that may stand as account mappings, told apart by a first token of their own."""
    found, messages = [], []
    for number, row in enumerate(cases.transforms()):
        try:
            mapping = Mapping(f"t{number}.{row.source}", [Destination(row.destination)])
        except ValueError:
            continue
        found.append(mapping)
        messages += [Message(f"t{number}.{row.subject}", seq=seq) for seq in range(3)]
    assert len(found) > 50
    compare(mappings_case(AccountMappings(found), messages))


@pytest.mark.parametrize(
    "row",
    [row for row in cases.load("mappings.yaml") if "error" not in row],
    ids=lambda row: row["id"],
)
def test_mappings(row: dict[str, Any]) -> None:
    account, cluster = cases.account(row["mappings"]), row.get("cluster")
    messages = [Message(row["subject"], cluster, seq=seq) for seq in range(300)]
    compare(mappings_case(account, [*messages, Message("none")]))


STREAMS = [row for row in cases.load("streams.yaml") if "refused" not in row]


@pytest.mark.parametrize("row", STREAMS, ids=lambda row: row["id"])
def test_streams(row: dict[str, Any]) -> None:
    config = StreamConfig.model_validate(row["config"])
    for place, subjects in row.get("take", {}).items():
        source = config.mirror if place == "mirror" else config.sources[int(place)]
        compare(take_case(source, [Message(subject) for subject in subjects]))
    for name, case in (("ingress", ingress_case), ("republish", republish_case)):
        compare(case(config, [Message(subject) for subject in row.get(name, ())]))


CLUSTERS = [None, "", "east", "west", "nowhere"]
ODD = [
    *(None, "", ".", "a..b", ".a", "a.", "*", ">", "a.*", "a.>.b", "a.*b", "a b", "a\n.b\n"),
    "\udcff",
    "a." + "x" * 4000,
    "." * 5000,
    ".".join("t" * 5000),
    ".".join("abcdefgh"[i % 8] for i in range(64)),
    ".".join(["t"] * 64),
    *("a", "z", "a.b", "a.b.c", "a.é", "b.a"),
]


ODD_RULES: dict[str, dict[str, Any]] = {
    "no-mapping": {},
    "everything-with-remainder": {">": [("x.>", 30)]},
    "identity": {">": ">"},
    "lossy": {"a.>": [("b.>", 40), ("a.>", 10)]},
    "literal-first": {"a": "p.{{partition(9)}}"},
    "starred-literal-first": {
        "a.*b": [("p.{{partition(99)}}", 50)],
        "*.é": "p.{{partition(99)}}",
    },
    "whole-subject-hashed": {
        "z": "y",
        "a": "p.{{partition(9)}}",
        "a.*": "p.{{partition(9)}}.{{partition(7,1)}}",
    },
    "forty-random-numbers": {"t.>": "{{random(97)}}." * 40 + ">"},
    "grows-eighty-fold": {"*.>": "{{slicefromleft(1,1)}}." * 40 + ">"},
    "sixty-four-wildcards": {".".join(["*"] * 64): ".".join(f"${64 - i}" for i in range(64))},
    "empty-destination": {"a.*": ""},
    "clusters": {"a.*": [("e.$1", 50, "east"), ("a.west.$1", 100, "west"), ("g.$1", 5)]},
    "overlapping-in-order": {
        "a.*": "first.$1",
        "*.*": "second.$2.$1",
        "a.>": "third.>",
        ">": "last.>",
    },
    "literal-tokens-apart": {"a.*.c": "gap.$1", "a.*.bc": "no.$1"},
}


@pytest.mark.parametrize("rules", ODD_RULES.values(), ids=ODD_RULES)
def test_odd_subjects(rules: dict[str, Any]) -> None:
    messages = [
        Message(subject, cluster, seq=seq)
        for seq, subject in enumerate([*ODD, "a.b.bc", "a.bb.c", "ab.b.c"])
        for cluster in CLUSTERS
    ]
    compare(mappings_case(mappings(rules), messages, seed=3))


def test_keys_of_any_length() -> None:
    """`partition` over keys of 1 to 200 bytes, any bytes in them."""
    account = mappings({"k.*": "p.{{partition(2147483647,1)}}"})
    keys = ["".join(chr(33 + (n * 7 + i) % 90) for i in range(n)) for n in range(1, 200)]
    keys = [key.replace(".", "-").replace("*", "+") for key in keys]
    keys += ["é" * 9, "\udcff" * 33, "\x00" * 5, "日" * 8]
    compare(mappings_case(account, [Message(f"k.{key}") for key in keys]))


def test_characters_of_any_length() -> None:
    """`split` at every character: all that two bytes can be, and edges of longer characters."""
    account = mappings({"s.*": "{{split(1,)}}.end"})
    raw = [bytes([one, other]) for one in range(256) for other in (0x2D, 0x7F, 0x80, 0xBF, 0xC2)]
    raw += [
        bytes([lead, second, 0x80, 0xBF])
        for lead in (0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF)
        for second in (0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    ]
    raw += [data[:3] for data in raw if len(data) == 4]
    tokens = [data.replace(b".", b"-").decode("utf-8", "surrogateescape") for data in raw]
    compare(mappings_case(account, [Message(f"s.{token}") for token in tokens]))


def test_thousands_of_mappings() -> None:
    """Many shapes, and many mappings of each: the first in order applies."""
    shapes = ["r{0}.*", "r{0}.*.>", "*.r{0}", "a.*.r{0}.*", "a.b.c{0}", "r{0}.x.y.>", "*.*.r{0}.>"]
    sources = [shapes[i % 7].format(i // 7) for i in range(5000)]
    tails = [".>" if source.endswith(">") else "" for source in sources]
    rules = {source: [(f"to.{i}{tails[i]}", 60)] for i, source in enumerate(sources)}
    messages = [
        Message(subject.format(i), seq=i)
        for i in range(0, 720, 40)
        for subject in (
            *("r{0}.q", "r{0}.q.w", "q.r{0}", "a.q.r{0}.w", "a.b.c{0}"),
            *("r{0}.x.y.z", "q.q.r{0}.w", "none"),
        )
    ]
    compare(mappings_case(mappings(rules), messages))
