"""The shapes of destinations: they fit all that a transform makes, and little else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transform import Transform
from nats_transform.mappings.shape import shape_of, shape_of_filter
from nats_transform.mappings.subject import is_subset, literal_fault
from nats_transform.mappings.symbolic import filter_of_results


@pytest.mark.parametrize(
    ("source", "destination", "fits", "not_fits"),
    [
        ("a", "b.c", ["b.c"], ["b", "b.c.d", "bxc", "a"]),
        ("a.*", "b.$1", ["b.x", "b.é", "b.\n"], ["b", "b.", "b.x.y", "xb.x"]),
        ("a.>", "b.>", ["b.x", "b.x.y"], ["b", "b.", "b.x.", "b..x"]),
        ("*.*", "b.$1.$1.$2", ["b.x.x.y"], ["b.x.z.y"]),
        ("a.*", "$1.$1.{{partition(3,1)}}", ["x.x.0", "x.x.2"], ["x.x.3", "x.x.00", "x.y.0"]),
        ("a.*", "p.{{partition(10,1)}}", ["p.0", "p.9"], ["p.10", "p.01", "p.a"]),
        (
            "a.*",
            "p.{{partition(1250,1)}}",
            ["p.0", "p.99", "p.100", "p.999", "p.1000", "p.1199", "p.1249"],
            ["p.1250", "p.1300", "p.2000", "p.0999", "p.10000"],
        ),
        ("a.*", "p.{{partition(0,1)}}", ["p.0"], ["p.1"]),
        ("a.*", "p.{{random(2)}}.$1", ["p.0.x", "p.1.x"], ["p.2.x"]),
        ("a.*", "b.{{left(1,2)}}", ["b.x", "b.xy", "b.é"], ["b.xyz", "b.éx"]),
        ("a.*", "b.{{right(1,0)}}", ["b.xyz"], ["b.x.y"]),
        ("a.*", "b.{{split(1,-)}}", ["b.x", "b.x.y"], ["b.x-y", "b."]),
        ("a.*", "b.{{split(1,)}}", ["b.x", "b.x.y"], ["b.xy"]),
        ("a.*", "b.{{splitfromleft(1,2)}}", ["b.xx.y", "b.x", "b.xx"], ["b.x.y", "b.xxy"]),
        ("a.*", "b.{{splitfromright(1,2)}}", ["b.y.xx", "b.x", "b.yyy.xx"], ["b.x.y", "b.xxy"]),
        ("a.*", "b.{{slicefromleft(1,2)}}", ["b.xx.yy.z", "b.xx"], ["b.x.yy", "b.xxx"]),
        ("a.*", "b.{{slicefromright(1,2)}}", ["b.z.xx.yy", "b.xx"], ["b.yy.x", "b.xxx"]),
        ("a.*", "{{wildcard(0)}}.$1", ["a.x"], ["b.x"]),
        ("a.*", "we+ird$.(x).$1", ["we+ird$.(x).y"], ["weird.x.y"]),
    ],
)
def test_fits(source: str, destination: str, fits: list[str], not_fits: list[str]) -> None:
    shape = shape_of(Transform(source, destination))
    assert [s for s in fits if not shape.fits(s)] == []
    assert [s for s in not_fits if shape.fits(s)] == []


TOKEN = st.text(st.sampled_from("abc-_é01"), min_size=1, max_size=7)
DESTINATION = st.sampled_from(
    [
        "x.$1.$2",
        "$2.$1.x.$2",
        "p.{{partition(4,1,2)}}.$1",
        "p.{{random(3)}}",
        "{{split(1,-)}}.$2",
        "s.{{splitfromleft(1,2)}}",
        "s.{{splitfromright(2,3)}}.z",
        "s.{{slicefromleft(1,2)}}",
        "s.{{slicefromright(2,3)}}",
        "{{left(1,3)}}.{{right(2,2)}}",
        "{{left(1,-3)}}.{{split(2,)}}",
    ]
)


@given(DESTINATION, TOKEN, TOKEN, st.integers(0, 2**64 - 1))
def test_fits_whatever_a_transform_makes(
    destination: str, one: str, two: str, entropy: int
) -> None:
    transform = Transform("a.*.*", destination)
    subject = transform.apply(f"a.{one}.{two}", entropy)
    assert subject is not None
    shape = shape_of(transform)
    if literal_fault(subject) is None:
        assert shape.fits(subject)
        assert is_subset(subject, shape.filter)
    tokens = subject.split(".")
    for number, place in shape.places.items():
        assert tokens[place] == (one, two)[number - 1]


@pytest.mark.parametrize(
    ("source", "destination", "filter", "is_filter"),
    [
        ("*.*", "b.c", "b.c", True),
        ("*.*", "b.$1", "b.*", True),
        ("*.*", "b.$2.$1", "b.*.*", True),
        ("*.*", "$1.b", "*.b", True),
        ("*.*", "b.$1.$1", "b.*.*", False),
        ("*.*", "b.{{partition(3,1)}}", "b.*", False),
        ("*.*", "b.{{partition(3,1)}}.c.{{left(1,2)}}", "b.*.c.*", False),
        ("*.*", "b.{{split(1,-)}}.c", "b.>", False),
        ("*.*", "b.{{split(1,-)}}", "b.>", False),
        ("*.*", "b.{{left(1,0)}}", "b.*", True),
        ("a.*.>", "b.$1.>", "b.*.>", True),
        ("a.>", "b.>", "b.>", True),
        ("a", "b", "b", True),
    ],
)
def test_where_the_filter_says_all(
    source: str, destination: str, filter: str, is_filter: bool
) -> None:
    transform = Transform(source, destination)
    shape = shape_of(transform)
    assert (shape.filter, shape.is_filter) == (filter, is_filter)
    assert filter_of_results(transform) == filter


@given(DESTINATION, st.lists(st.sampled_from(["x", "p", "1", "ab", "é"]), min_size=1, max_size=4))
def test_what_fits_is_covered_by_the_filter(destination: str, tokens: list[str]) -> None:
    shape, subject = shape_of(Transform("a.*.*", destination)), ".".join(tokens)
    if shape.is_filter:
        assert shape.fits(subject) == is_subset(subject, shape.filter)
    else:
        assert is_subset(subject, shape.filter) or not shape.fits(subject)


@given(
    st.sampled_from(["a", "a.*", "a.>", ">", "*.b", "a.*.c", "*"]),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join),
)
def test_the_shape_of_a_filter(filter: str, subject: str) -> None:
    shape = shape_of_filter(filter)
    assert shape.fits(subject) == is_subset(subject, filter) == is_subset(subject, shape.filter)
