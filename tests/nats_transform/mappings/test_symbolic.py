"""What is known of results without a subject, compared with the results of many subjects."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nats_transform.errors import NatsTransformError
from nats_transform.mappings.subject import intersection, subscribes
from nats_transform.mappings.symbolic import (
    applied,
    between,
    can_land_in,
    dropped,
    filter_of,
    filter_of_results,
    image,
    is_cut,
    is_identity,
    results,
    symbols_of,
    ways_back,
)
from nats_transform.mappings.transform import Transform
from tests.nats_transform.mappings.test_moves import covered, filters

TOKENS = (
    *("x", "a", "$1", "$2", "{{wildcard(0)}}", "{{left(1,1)}}", "{{left(1,0)}}", "{{random(3)}}"),
    *("{{partition(2,1)}}", "{{partition(9,0)}}", "{{partition(3)}}"),
    *("{{split(1,-)}}", "{{splitfromleft(2,1)}}", "{{slicefromright(1,1)}}"),
)
destinations = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3).map(".".join)
texts = st.sampled_from(("a", "b", "aa", "a-b", "-b-", "é"))


def transform_of(source: str, destination: str) -> Transform:
    """A transform, or another example if nats-server refuses it."""
    tail = ".>" if source.endswith(">") else ""
    try:
        return Transform(source, destination + tail)
    except NatsTransformError:
        assume(False)
        raise


def subjects_of(source: str, data: st.DataObject) -> list[str]:
    """A subject that the source covers, as tokens."""
    tokens = [data.draw(texts) if t in ("*", ">") else t for t in source.split(".")]
    return tokens + (data.draw(st.lists(texts, max_size=2)) if source.endswith(">") else [])


@given(filters, filters, destinations, st.booleans())
def test_image_covers_every_result(source: str, place: str, text: str, tail: bool) -> None:
    part = intersection(source, place)
    try:
        transform = Transform(source, text + (".>" if source.endswith(">") and tail else ""))
    except NatsTransformError:
        return
    if part is None:
        return
    for subject in covered(part):
        result = transform.apply(subject)
        assert result is not None
        assert subscribes(image(transform, part), result)


def test_image_keeps_what_the_part_says() -> None:
    transform = Transform("orders.*.*", "shop.$2.{{partition(9,1)}}.$1")
    assert image(transform, "orders.*.eu") == "shop.eu.*.*"
    # What is computed from known tokens is known too.
    assert transform.apply("orders.eu.1") == "shop.1.8.eu"
    assert image(transform, "orders.eu.*") == "shop.*.8.eu"
    assert image(Transform("a.>", "b.>"), "a.x.*") == "b.x.*"
    # A source token such as `*a` stands for any token, so nothing is computed from its text.
    assert image(Transform("*a.*", "x.{{partition(9,0)}}.$1"), "*a.*") == "x.*.*"
    # The first token of a `>` is one token.
    assert image(Transform(">", "x.{{wildcard(0)}}.>"), ">") == "x.*.>"


@pytest.mark.parametrize(
    ("source", "destination", "back"),
    [
        ("a.*.*", "b.$2.$1", ("b.*.*", "a.$2.$1")),
        ("a.*", "b.$1.$1", ("b.*.*", "a.$1")),
        ("a.*.>", "b.{{partition(3,1)}}.$1.>", ("b.*.*.>", "a.$2.>")),
        ("a.*", "b.{{random(3)}}.$1", ("b.*.*", "a.$2")),
        ("a", "b", ("b", "a")),
        ("a.*.*", "b.$1", None),
        ("a.*", "b.{{split(1,-)}}", None),
        ("a.*", "b.{{left(1,2)}}", None),
        ("a.*", "b.{{left(1,2)}}.$1", ("b.*.*", "a.$2")),
        ("a.*", "b.{{left(1,0)}}", ("b.*", "a.$1")),
    ],
)
def test_the_way_back(source: str, destination: str, back: tuple[str, str] | None) -> None:
    found = [
        (m.source, m.destinations[0].subject) for m in ways_back(Transform(source, destination))
    ]
    assert found == ([] if back is None else [back])


def test_ways_back_end() -> None:
    """Thirty tokens that can each become two have a thousand million lengths."""
    cut = ".{{splitfromleft(1,1)}}" * 30
    assert len([*islice(ways_back(Transform("a.*", f"b.$1{cut}")), 1000)]) < 1000


@given(filters, destinations, filters, st.data())
def test_every_result_is_expected(
    source: str, destination: str, filter: str, data: st.DataObject
) -> None:
    transform = transform_of(source, destination)
    tokens = subjects_of(source, data)
    result = transform.evaluate(tokens, data.draw(st.integers(0, 2**64 - 1)))
    assume("" not in result.split("."))
    assert subscribes(filter_of_results(transform), result)
    first = results(transform)[0]
    if not is_cut(first):
        assert can_land_in(transform, filter) or not subscribes(filter, result)
    for number, _ in dropped(transform):
        place = transform.filter.wildcards[number - 1]
        assert f"${number}" not in transform.destination.split(".")
        assert transform.filter.tokens[place] == "*"
    if is_identity(transform):
        assert result == ".".join(tokens)


@given(filters, destinations, destinations, st.data())
def test_a_transform_between_two_results(
    source: str, one: str, other: str, data: st.DataObject
) -> None:
    """It makes the one result of the other, for every subject."""
    before, after = transform_of(source, one), transform_of(source, other)
    pair = between(results(before), results(after))
    assume(pair is not None and "{{random" not in other)
    assert pair is not None
    tokens = subjects_of(source, data)
    result = before.evaluate(tokens, 5)
    assert Transform(*pair).apply(result) == after.evaluate(tokens, 5)


@given(filters, destinations, destinations, st.data())
def test_one_transform_behind_another(
    source: str, one: str, other: str, data: st.DataObject
) -> None:
    first = transform_of(source, one)
    behind = transform_of(filter_of_results(first), other)
    symbols = applied(behind, applied(first, symbols_of(source)))
    tokens = subjects_of(source, data)
    given = first.evaluate(tokens, 3)
    assume("" not in given.split("."))
    result = behind.apply(given, 3)
    assert result is not None
    if symbols is not None and "" not in result.split("."):
        assert subscribes(filter_of(symbols), result)
        if pair := between(symbols_of(source), symbols):
            assert Transform(*pair).apply(".".join(tokens)) == result


@given(filters, destinations, st.data())
def test_ways_back_give_the_subject_back(
    source: str, destination: str, data: st.DataObject
) -> None:
    transform = transform_of(source, destination)
    tokens = subjects_of(source, data)
    result = transform.evaluate(tokens, 11)
    assume("" not in result.split("."))
    ways = list(ways_back(transform))
    backward = [way.transforms[0].apply(result) for way in ways]
    subject = ".".join(tokens)
    if not source.endswith(">"):
        assert {one for one in backward if one is not None} <= {subject}
    assert subject in backward or not ways


@pytest.mark.parametrize(
    ("token", "can"),
    [
        *[(token, True) for token in ("0", "2", "*", ">")],
        *[(token, False) for token in ("3", "02", "-1", "+1", "two", "\u0662", "9" * 5000)],
    ],
)
def test_the_numbers_that_a_partition_can_have(token: str, can: bool) -> None:
    assert can_land_in(Transform("x.*", "a.{{partition(3,1)}}"), f"a.{token}") is can


@pytest.mark.parametrize(
    ("filter", "can"), [("x.*", True), ("x.*.*", True), ("x.a.b", True), ("y.*.*", False)]
)
def test_a_token_that_can_become_two(filter: str, can: bool) -> None:
    assert can_land_in(Transform("*", "x.{{splitfromleft(1,2)}}"), filter) is can
