"""Which filters cover what moves, compared with every subject of a small namespace."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transform.errors import NatsTransformError
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.moves import moves
from nats_transform.mappings.subject import intersection, subscribes
from tests.support.rules import mapping, mappings

SUBJECTS = [
    ".".join(tokens) for size in (1, 2, 3) for tokens in product(("a", "b", "c"), repeat=size)
]
filters = st.builds(
    lambda tokens, tail: ".".join([*tokens, *tail]) or ">",
    st.lists(st.sampled_from(("a", "b", "*")), min_size=1, max_size=3),
    st.sampled_from(((), (), (">",))),
)
destinations = st.lists(
    st.sampled_from(("x", "$1", "$2", "{{partition(2,1)}}", "{{split(1,-)}}")),
    min_size=1,
    max_size=3,
).map(".".join)


def covered(filter: str | None) -> set[str]:
    return {one for one in SUBJECTS if filter is not None and subscribes(filter, one)}


@given(filters, filters)
def test_intersection_is_exact(one: str, other: str) -> None:
    assert covered(intersection(one, other)) == covered(one) & covered(other)
    assert intersection(one, other) == intersection(other, one)


@given(st.lists(st.tuples(filters, destinations), max_size=2), filters, destinations)
def test_every_change_is_in_a_move(old: list[tuple[str, str]], source: str, text: str) -> None:
    """Each subject whose name changes has its old and new names in those of some move."""
    try:
        current = AccountMappings([mapping(s, d) for s, d in old])
        candidate = mappings({source: text})
    except NatsTransformError:
        return
    found = moves(current, candidate)
    for subject in SUBJECTS:
        befores = names(current, subject)
        afters = names(candidate, subject)
        for before, after in product(befores, afters):
            if before == after:
                continue
            told = [move.names(">") for move in found if subscribes(move.part, subject)]
            assert any(
                pair is not None and subscribes(pair[0], before) and subscribes(pair[1], after)
                for pair in told
            ), (subject, before, after)


def names(account: AccountMappings, subject: str) -> set[str]:
    """What the subject may become, whichever mapping of several the server finds first."""
    made = {
        transform.apply(subject)
        for one in account.mappings
        for transform in one.transforms
        if subscribes(one.source, subject)
    }
    return {one for one in made if one} or {subject}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"a.*": "b.$1"}, {"a.*": "b.$1"}, id="the same"),
        pytest.param({}, {"a": "a"}, id="to itself"),
    ],
)
def test_what_stays_does_not_move(old: dict[str, str], new: dict[str, str]) -> None:
    assert moves(mappings(old), mappings(new)) == ()
