"""What is known of one subject is taken for others of its kind only."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.mappings.subject import encode, literal_fault
from nats_transform.migration import Question
from nats_transform.migration.tables.forms import Forms
from nats_transform.migration.tables.ways import Covering
from nats_transform.streams.network import Network
from nats_transform.streams.stream import parse_stream
from tests.cases import load
from tests.support.scalar import facts_of

TOKENS = ["a", "b", "x y", "*", "", "z-z"]
SUBJECTS = [".".join(tokens) for n in (1, 2, 3) for tokens in product(TOKENS, repeat=n)]

NETWORKS = load("networks.yaml")["forms"]


@pytest.mark.parametrize("subjects", [SUBJECTS, SUBJECTS[::-1]], ids=["up", "down"])
@pytest.mark.parametrize("streams", NETWORKS.values(), ids=NETWORKS)
def test_the_form_of_a_subject_does_not_depend_on_others(
    streams: list[dict[str, Any]], subjects: list[str]
) -> None:
    nothing = AccountMappings(())
    asked = Question(nothing, nothing, tuple(map(parse_stream, streams)))
    together = Forms([asked])
    numbers, _ = together.of(pa.array(map(encode, subjects), pa.binary()))
    forms = list(together.numbers)
    for subject, number in zip(subjects, numbers, strict=True):
        alone = Forms([asked])
        alone.of(pa.array([encode(subject)], pa.binary()))
        assert list(alone.numbers) == [forms[number]]


def test_nothing_with_a_blank_is_republished() -> None:
    network = Network([parse_stream(stream) for stream in NETWORKS["republish"]])
    assert not facts_of(network, "a.x y").republished
    assert facts_of(network, "a.x-y").republished == {"A"}


@given(
    sources=st.lists(
        st.lists(st.sampled_from(["a", "b", "*", "*a"]), min_size=1, max_size=3).map(".".join),
        min_size=1,
        max_size=40,
        unique=True,
    )
)
def test_the_mappings_that_cover_a_subject(sources: list[str]) -> None:
    mappings = AccountMappings([Mapping(source, [Destination("new")]) for source in sources])
    covering_of = Covering(mappings).of
    for subject in (one for one in SUBJECTS if literal_fault(one) is None):
        tokens = subject.split(".")
        covering = [n for n, m in enumerate(mappings.mappings) if m.filter.covers(tokens)]
        assert list(covering_of(subject)) == covering
