"""Subjects: validity, matching, subset and collision."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transform.mappings.subject import (
    Filter,
    collide,
    decode,
    encode,
    has_wildcard,
    is_subset,
    is_valid_filter,
    is_valid_publish_subject,
    literal_fault,
    subscribes,
)

TOKENS = st.sampled_from(["a", "b", "*", "*a", "**", "é", ">a"])
FILTERS = st.builds(
    lambda tokens, tail: ".".join([*tokens, *([">"] if tail else [])]),
    st.lists(TOKENS, min_size=1, max_size=4),
    st.booleans(),
)
# Without tokens like `*a`, which match anything and yet count as literal.
PLAIN_FILTERS = FILTERS.filter(lambda filter: "**" not in filter and "*a" not in filter)
LITERALS = st.lists(st.sampled_from(["a", "b", "*a", "é", ">a"]), min_size=1, max_size=5).map(
    ".".join
)


@pytest.mark.parametrize(
    ("subject", "as_filter", "as_literal"),
    [
        ("a.b", True, True),
        ("a.*", True, False),
        ("a.>", True, False),
        (">", True, False),
        ("*", True, False),
        ("a.>.b", False, False),
        ("", False, False),
        ("a..b", False, False),
        (".a", False, False),
        ("a.", False, False),
        ("*a", True, True),
        ("a*.b>", True, True),
        ("a b", False, True),
        ("a\tb", False, True),
        (" ", False, True),
        ("a.\f", False, True),
        ("a\xa0b", True, True),
        ("\udcff", True, True),
    ],
)
def test_validity(subject: str, as_filter: bool, as_literal: bool) -> None:
    assert is_valid_filter(subject) is as_filter
    assert (literal_fault(subject) is None) is as_literal
    assert is_valid_publish_subject(subject) is (as_filter and as_literal)


@pytest.mark.parametrize(
    ("subject", "filter", "expected"),
    [
        ("a.b", "a.*", True),
        ("a.b", "a.>", True),
        ("a", "a.>", False),
        ("a.b.c", "a.*", False),
        ("a.*", "*.*", True),
        ("a.*", "a.>", True),
        ("a.>", "a.*", False),
        (">", "*", False),
        ("a.*", "a.b", False),
        ("a.b", "*x.b", True),
        ("a.*", "a.*x", False),
        ("", ">", True),
        ("", "", False),
    ],
)
def test_matching(subject: str, filter: str, expected: bool) -> None:
    assert is_subset(subject, filter) is expected


@pytest.mark.parametrize(
    ("subject", "filter", "expected"),
    [
        ("a.b", "a.*", True),
        ("a.b", "*x.b", False),
        ("*x.b", "*x.b", True),
        ("a..b", ">", False),
        ("a.*", "a.*", True),
        ("a", ">", True),
        ("a", "a.>", False),
    ],
)
def test_subscriptions(subject: str, filter: str, expected: bool) -> None:
    assert subscribes(filter, subject) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "*.b", True),
        ("a.>", "*", False),
        ("a.>", "*.*.*", True),
        ("a.*", "a.*.*", False),
        ("a.*.>", "a.>", True),
        ("a.b", "a.>", True),
        ("*a.*", "x.*", True),
        ("*a.b", "x.*", False),
        ("", "", True),
    ],
)
def test_collision(one: str, other: str, expected: bool) -> None:
    assert collide(one, other) is expected
    assert collide(other, one) is expected


@given(LITERALS, FILTERS)
def test_a_parsed_filter_covers_what_matches(subject: str, filter: str) -> None:
    assert Filter(filter).covers(subject.split(".")) == is_subset(subject, filter)


@given(LITERALS, PLAIN_FILTERS, PLAIN_FILTERS)
def test_what_two_filters_cover_makes_them_collide(subject: str, one: str, other: str) -> None:
    if is_subset(subject, one) and is_subset(subject, other):
        assert collide(one, other)


@given(FILTERS, FILTERS)
def test_collision_goes_both_ways(one: str, other: str) -> None:
    assert collide(one, other) == collide(other, one)
    assert collide(one, one)


@given(FILTERS)
def test_wildcards_are_whole_tokens(filter: str) -> None:
    assert has_wildcard(filter) == bool({"*", ">"} & set(filter.split(".")))


@given(st.binary())
def test_every_byte_string_is_one_subject(data: bytes) -> None:
    assert encode(decode(data)) == data
