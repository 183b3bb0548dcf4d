"""One transform: every row of tests/cases/transforms.yaml, and the way back."""

from __future__ import annotations

import pytest

from nats_transform import InvalidTransform, Transform, errors
from tests import cases

CASES = cases.transforms()


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
def test_the_cases(case: cases.TransformCase) -> None:
    if case.error is not None:
        with pytest.raises(InvalidTransform) as refused:
            Transform(case.source, case.destination, case.strict)
        assert type(refused.value) is getattr(errors, case.error)
        assert "\n" not in str(refused.value)
    else:
        transform = Transform(case.source, case.destination, case.strict)
        assert transform.apply(case.subject) == case.expected


def test_case_ids_are_unique() -> None:
    assert len({case.id for case in CASES}) == len(CASES)


def test_an_error_names_the_token_and_both_sides() -> None:
    with pytest.raises(InvalidTransform) as refused:
        Transform("foo.*", "bar.{{wildcard(2)}}")
    error = refused.value
    assert (error.source, error.destination) == ("foo.*", "bar.{{wildcard(2)}}")
    assert error.token == error.destination.split(".")[1]
    assert isinstance(error, ValueError)
    assert error.code == "index-out-of-range"


@pytest.mark.parametrize(
    ("source", "destination", "error"),
    [
        ("foo.*.*", "bar.$1.$1", "UnusedWildcards"),
        ("foo.*.*", "bar.$1", "UnusedWildcards"),
        ("foo.*", "bar.$0", "UnusedWildcards"),
        ("foo.*", "bar.$1.{{random(5)}}", "FunctionNotAllowed"),
        ("$1.*", "bar.$1", "InvalidTransform"),
        ("*a.*", "bar.$1", "InvalidTransform"),
    ],
)
def test_what_has_no_reverse(source: str, destination: str, error: str) -> None:
    with pytest.raises(InvalidTransform) as refused:
        Transform(source, destination).reverse()
    assert type(refused.value) is getattr(errors, error)


def test_transforms_are_values() -> None:
    one, same = Transform("a.*", "b.$1"), Transform("a.*", "b.$1")
    assert one == same
    assert hash(one) == hash(same)
    assert one != Transform("a.*", "b.$1", strict=True)
    assert one != "a.* -> b.$1"
    assert repr(Transform("", ">", strict=True)) == "Transform('>', '>', strict=True)"


def test_random_draws_from_the_entropy_alone() -> None:
    transform = Transform("*", "{{random(6)}}.{{random(6)}}")
    results = {transform.apply("a", entropy) for entropy in range(1000)}
    assert len(results) == 36
    assert transform.apply("a", 7) == transform.apply("b", 7)


@pytest.mark.parametrize(
    ("destination", "place"),
    [
        ("a.$1", None),
        ("{{partition(3,1)}}", 1),
        ("a.{{left(1,2)}}.{{partition(3,1)}}.$2", 3),
        ("{{split(1,-)}}.{{partition(3,1)}}.b.$2", -3),
        ("a.{{partition(0)}}.{{splitfromleft(1,2)}}", 2),
        ("{{split(1,-)}}.{{partition(3,1)}}.{{slicefromright(2,1)}}", None),
        ("{{partition(3,1)}}.{{partition(3,1)}}", 1),
    ],
)
def test_where_the_partition_number_is(destination: str, place: int | None) -> None:
    transform = Transform("*.*", destination)
    assert transform.partition_place == place
    for subject in ("x.y", "ab-cd.efg", "a-b-c-d.long"):
        tokens = transform.evaluate(subject.split(".")).split(".")
        if place is not None:
            number = transform.partition.evaluate(subject.split("."), None)
            assert tokens[place - (place > 0)] == number
