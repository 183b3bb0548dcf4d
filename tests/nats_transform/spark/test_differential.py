"""Generated mappings and subjects, hostile ones among them: scalar = Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from nats_transform import AccountMappings, Destination, Mapping, NatsTransformError
from nats_transform.subject import ANY_TAIL
from tests.nats_transform.spark.conftest import Case, Compare, Message

pytestmark = pytest.mark.spark

PLAIN = ["a", "b", "orders", "eu-west-1", "42", "x-y--z", "abcdefgh"]
HOSTILE = [
    "$1", "$1x", "$", "$$", "\\", "\\1", "\\Q.\\E".replace(".", "q"), "\\E", "[a-z]+", "(x", "x)",
    "a|b", "^a$", "{{x", "}}", "'", '"', "`", "''; --", "%", "_", "#{x}", "${x}", "/*", "a*", "*a",
    "**", ">>", ">a", "\x00", "\x01", "\x7f", "--", "---", "-a-", "--a-b", "é", "ß", "日本", "😀",
    "e\u0301", "\udcff", "\udcc3", "a\udc80b", "\udce2\udc82", "\udced\udca0\udc80", "\ufffd",
    "x" * 40, "é" * 20, "y" * 130,
]  # fmt: skip
BLANK = ["a b", "a\nb", "\t", "\r\n", " "]
SIZES = ["-1", "0", "1", "2", "3", "5", "8", "40", "2147483647"]
DELIMITERS = [
    "-",
    "--",
    "",
    "a",
    "|",
    "\\",
    "$",
    "(",
    ".*",
    "é",
    "\udcc3",
    "\x00",
    "x-",
    "^",
    "\\E",
]
COUNTS = ["-1", "0", "1", "2", "16", "97", "2147483647"]

tokens = st.sampled_from(PLAIN) | st.sampled_from(PLAIN + HOSTILE)
subject_tokens = st.sampled_from(PLAIN + HOSTILE) | st.sampled_from([*PLAIN, *BLANK, "", "*", ">"])
clusters = st.sampled_from([None, None, "", "east", "west", "dév", "e'\\"])


@st.composite
def sources(draw: Callable[[Any], Any]) -> str:
    parts = draw(st.lists(st.just("*") | st.just("*") | tokens, min_size=1, max_size=5))
    return ".".join(parts + [">"] * draw(st.booleans()))


@st.composite
def destinations(draw: Callable[[Any], Any], source: str) -> str:
    wildcards = source.split(".").count("*")
    index = st.integers(0 if wildcards else 1, max(wildcards, 1)).map(str)
    sized = st.sampled_from(
        ["splitfromleft", "splitfromright", "slicefromleft", "slicefromright", "left", "right"]
    )
    functions = [
        st.builds("{{{{{}({},{})}}}}".format, sized, index, st.sampled_from(SIZES)),
        st.builds("{{{{split({},{})}}}}".format, index, st.sampled_from(DELIMITERS)),
        st.builds("${}".format, index),
    ]
    anywhere = [
        tokens,
        st.builds("{{{{partition({})}}}}".format, st.sampled_from(COUNTS)),
        st.builds(
            "{{{{partition({},{})}}}}".format,
            st.sampled_from(COUNTS),
            st.lists(index, min_size=1, max_size=3).map(",".join),
        ),
        st.builds("{{{{random({})}}}}".format, st.sampled_from(COUNTS)),
    ]
    kinds = functions + anywhere if wildcards else anywhere
    parts = draw(st.lists(st.one_of(*kinds), min_size=1, max_size=6))
    return ".".join(parts + [">"] * source.endswith(">"))


@st.composite
def mapping_of(draw: Callable[[Any], Any]) -> Mapping | None:
    source = draw(sources())
    targets = draw(st.lists(destinations(source), min_size=1, max_size=4, unique=True))
    if draw(st.booleans()) and "*" not in source:
        targets.append(source)
    if draw(st.integers(0, 9)) == 0:
        targets.append("")
    whole = len(targets) == 1 and draw(st.booleans())
    weights = st.just(100) if whole else st.sampled_from([0, 10, 25, 33])
    try:
        return Mapping(
            source, [Destination(t, draw(weights), draw(clusters) or None) for t in targets]
        )
    except NatsTransformError:
        return None


@st.composite
def subjects_of(draw: Callable[[Any], Any], sources: Sequence[str]) -> str | None:
    if not sources or draw(st.integers(0, 4)) == 0:
        return draw(st.none() | st.lists(subject_tokens, max_size=7).map(".".join))
    parts: list[str] = []
    for token in draw(st.sampled_from(sources)).split("."):
        if token == ANY_TAIL:
            parts += draw(st.lists(subject_tokens, min_size=1, max_size=4))
        elif token.startswith("*"):
            parts.append(draw(subject_tokens))
        else:
            parts.append(token)
    return ".".join(parts)


@st.composite
def cases(draw: Callable[[Any], Any]) -> Case:
    """One account with many mappings: some of them told apart by a first token of their own."""
    mappings = [m for m in draw(st.lists(mapping_of(), min_size=6, max_size=14)) if m is not None]
    for number, mapping in enumerate(mappings):
        if draw(st.booleans()):
            mappings[number] = Mapping(
                f"m{number}.{mapping.source}",
                [replace(d, subject=_moved(d.subject, mapping)) for d in mapping.destinations],
            )
    messages = st.builds(
        Message,
        subject=subjects_of([m.source for m in mappings]),
        cluster=clusters,
        stream=st.sampled_from(["S", "S", "é", "", None]),
        seq=st.integers(0, 2**40) | st.sampled_from([None, -1, 2**63 - 1, -(2**63)]),
    )
    return Case(
        AccountMappings(mappings),
        draw(st.lists(messages, min_size=MESSAGES, max_size=MESSAGES)),
        draw(st.integers(0, 3) | st.sampled_from([-1, 2**63, 2**70])),
    )


def _moved(destination: str, mapping: Mapping) -> str:
    """A destination that keeps its remainder where the source is listed."""
    return f"moved.{destination}" if destination and destination == mapping.source else destination


MESSAGES = 250


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a shrunk example takes too long
)
@given(cases())
def test_generated(compare: Compare, case: Case) -> None:
    assert compare([case]) == MESSAGES
