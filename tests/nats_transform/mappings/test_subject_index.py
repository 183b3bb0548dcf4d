"""The index finds what holding every filter against every other finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nats_transform.mappings.subject import collide, is_subset, subscribes
from nats_transform.mappings.subject_index import SubjectIndex

token = st.sampled_from(["a", "b", "*", ">", "*a", "**", ">a", "a*", ""])
filters = st.lists(token, min_size=1, max_size=4).map(".".join)  # also those that are not valid


@given(st.lists(filters, max_size=12), filters)
def test_it_finds_all_once(known: list[str], wanted: str) -> None:
    expected = [number for number, filter in enumerate(known) if collide(filter, wanted)]
    assert SubjectIndex(known).colliding(wanted) == expected
    covering = [number for number, filter in enumerate(known) if is_subset(wanted, filter)]
    assert SubjectIndex(known).covering(wanted) == covering
    subscribing = [number for number, filter in enumerate(known) if subscribes(filter, wanted)]
    assert SubjectIndex(known).subscribing(wanted) == subscribing


def test_thousands_of_mappings_are_no_trouble() -> None:
    index = SubjectIndex([f"shop.{n % 100}.item{n}.*" for n in range(50_000)])
    assert all(index.colliding(f"shop.{n % 100}.item{n}.*") == [n] for n in range(0, 50_000, 7))
