"""Stream configurations: every row of tests/cases/streams.yaml, and the shape of the model."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from nats_transform import Fate, InvalidStream, Outcome, StreamConfig, bucket_source, parse_stream
from nats_transform.lint.check import check
from nats_transform.mappings.subject import collide, is_subset, is_valid_filter
from tests import cases

CASES = cases.load("streams.yaml")
GOOD = [pytest.param(case, id=case["id"]) for case in CASES if "refused" not in case]
REFUSED = [pytest.param(case, id=case["id"]) for case in CASES if "refused" in case]


@pytest.mark.parametrize("case", GOOD)
def test_the_cases(case: dict[str, Any]) -> None:
    config = parse_stream(case["config"])
    for place, subjects in case.get("take", {}).items():
        for subject, expected in subjects.items():
            if place == "mirror":
                outcome = config.mirror.take(subject)
            else:
                outcome = config.sources[place].take(subject)
            assert outcome.subject == expected
            assert (outcome.fate is Fate.FILTERED) == (expected is None)
    for subject, expected in case.get("ingress", {}).items():
        assert config.ingress(subject).subject == expected
    for stored, expected in case.get("republish", {}).items():
        republished = config.republished(stored)
        assert (republished and republished.subject) == expected


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_server_refuses(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidStream) as refused:
        parse_stream(case["config"])
    assert refused.value.err_code == case["refused"]
    assert "\n" not in str(refused.value)
    with pytest.raises(ValidationError) as invalid:
        StreamConfig.model_validate(case["config"])
    assert str(refused.value) in str(invalid.value)


def test_unknown_fields_and_the_rest_come_back_as_they_were() -> None:
    data = {
        "name": "S",
        "subjects": ["a.*"],
        "later": {"x": [1, None]},
        "sources": [
            {"name": "O", "subject_transforms": [{"src": "a", "dest": "", "why": 1}], "new": True}
        ],
        "republish": {"src": "a.*", "dest": "b.$1"},
        "metadata": {"_nats.ver": "2.15.1"},
    }
    config = StreamConfig.model_validate(data)
    assert config.model_dump(by_alias=True, exclude_unset=True) == data


def test_null_is_as_good_as_nothing() -> None:
    config = parse_stream({"name": "S", "subjects": None, "mirror": None, "metadata": None})
    assert config.captured == ["S"]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ("text", "stream configuration"),
        ([], "stream configuration"),
        ({"name": 5}, "name"),
        ({"name": "S", "max_age": "1s"}, "max_age"),
        ({"name": "S", "max_age": 1.5}, "max_age"),
        ({"name": "S", "max_msgs": 2**63}, "max_msgs"),
        ({"name": "S", "first_seq": -1}, "first_seq"),
        ({"name": "S", "subjects": "a"}, "subjects"),
        ({"name": "S", "storage": "tape"}, "storage"),
        ({"name": "S", "sources": [None]}, "sources.0"),
        ({"name": "S", "sources": [{"name": "O", "subject_transforms": [{"src": 1}]}]}, "src"),
        ({"name": "S", "no_ack": "yes"}, "no_ack"),
    ],
)
def test_a_wrong_type_is_named(data: object, where: str) -> None:
    with pytest.raises(InvalidStream) as refused:
        parse_stream(data)
    assert where in str(refused.value)
    assert "\n" not in str(refused.value)


def test_captures_as_a_subscription_does() -> None:
    config = parse_stream({"name": "S", "subjects": ["a.*", "b.>", "c"]})
    captured = [s for s in ("a.x", "a.x.y", "b.x.y", "b", "c", "a..", "c.") if config.captures(s)]
    assert captured == ["a.x", "b.x.y", "c"]


def test_ingress_outcomes() -> None:
    config = parse_stream(
        {"name": "S", "subjects": ["a.>"], "subject_transform": {"src": "a.*", "dest": "b.$1"}}
    )
    assert config.ingress("a.x") == Outcome("b.x", Fate.MAPPED, "a.*", "b.$1")
    assert config.ingress("a.x.y") == Outcome("a.x.y", Fate.UNMATCHED)
    assert config.ingress("a..y").fate is Fate.INVALID


def test_each_place_draws_for_itself_and_a_replay_repeats_it() -> None:
    into = {"src": "S", "dest": "{{random(9)}}"}
    sources = [{"name": name, "subject_transforms": [into]} for name in "OP"]
    config = parse_stream(
        {"name": "T", "sources": sources, "subject_transform": into, "republish": into}
    )
    replays = [*(one.replay for one in (*config.sources, config)), config.replay_republish]
    once, again = (
        [
            tuple(replay("S", stream="S", seq=n, seed=seed).subject for n in range(200))
            for replay in replays
            for seed in (0, 1)
        ]
        for _ in range(2)
    )
    assert once == again
    assert len({*once}) == 2 * len(replays)
    assert {len({*one}) for one in once} == {9}
    assert [replay(None, stream="S", seq=1).fate for replay in replays] == [Fate.INVALID] * 4


def test_outcomes_of_a_republish() -> None:
    config = parse_stream(
        {"name": "S", "subjects": ["a.>"], "republish": {"src": "a.*", "dest": "b.{{split(1,-)}}"}}
    )
    pair = "a.*", "b.{{split(1,-)}}"
    assert config.republish_outcome("a.x-y") == Outcome("b.x.y", Fate.MAPPED, *pair)
    assert config.republish_outcome("a.x.y") == Outcome(None, Fate.FILTERED)
    suppressed = config.republish_outcome("a.--x")
    assert (suppressed.subject, suppressed.fate) == (None, Fate.INVALID)
    assert "republishes nothing" in (suppressed.reason or "")
    assert config.republish_outcome("a..x").fate is Fate.INVALID


def test_a_source_without_filter_takes_everything_as_it_is() -> None:
    source = parse_stream({"name": "S", "sources": [{"name": "O"}]}).sources[0]
    assert source.take("a.b") == Outcome("a.b", Fate.UNMATCHED)
    assert source.take("a..b").fate is Fate.INVALID


def test_republished_headers() -> None:
    config = parse_stream(
        {"name": "S", "subjects": ["a"], "republish": {"dest": "b.>", "headers_only": True}}
    )
    time = "2026-01-02T03:04:05.000000006Z"
    assert config.republished("a").headers(5, 3, time, 7) == {
        "Nats-Stream": "S",
        "Nats-Subject": "a",
        "Nats-Sequence": "5",
        "Nats-Time-Stamp": time,
        "Nats-Last-Sequence": "3",
        "Nats-Msg-Size": "7",
    }


def test_a_bucket_sources_another() -> None:
    source = bucket_source("A", into="B")
    assert source.model_dump(by_alias=True, exclude_unset=True) == {
        "name": "KV_A",
        "subject_transforms": [{"src": "$KV.A.>", "dest": "$KV.B.>"}],
    }
    assert source.take("$KV.A.x").subject == "$KV.B.x"


token = st.sampled_from(["a", "b", "c", "*", ">", "*a", ">a"])
lists_of_filters = st.lists(
    st.lists(token, min_size=1, max_size=3).map(".".join).filter(is_valid_filter), max_size=6
)


def refusal(config: dict[str, Any]) -> str:
    """What is said against a configuration, or nothing."""
    try:
        parse_stream(config)
    except InvalidStream as error:
        return str(error)
    return ""


@given(lists_of_filters)
@example(["a", "a"])
@example(["b.*", "*.c", "a.*", "b.c"])
def test_filters_that_overlap_are_found_as_by_comparing_all_with_all(filters: list[str]) -> None:
    pairs = list(combinations(range(len(filters)), 2))
    overlaps = [(filters[n], filters[m]) for n, m in pairs if collide(filters[n], filters[m])]
    within = [(a, b) for a, b in permutations(filters, 2) if is_subset(a, b)]
    transforms = [{"src": filter, "dest": ""} for filter in filters]

    said = refusal({"name": "S", "subjects": filters, "no_ack": True})
    doubled = [filter for place, filter in enumerate(filters) if filter in filters[:place]]
    for one, other in overlaps[:1]:
        # The one that is reached first counts, and a doubled one is reached at its second place.
        assert f"subject {one!r} overlaps with {other!r}" in said or doubled
    assert bool(overlaps) == ("overlaps with" in said or "duplicate subjects" in said)
    mirror = {"name": "M", "mirror": {"name": "O", "subject_transforms": transforms}}
    assert bool(overlaps) == ("mirror subject filters can not overlap" in refusal(mirror))
    source = {"name": "M", "sources": [{"name": "O", "subject_transforms": transforms}]}
    assert bool(within) == ("source filters can not overlap" in refusal(source))


@pytest.mark.parametrize("place", ["subjects", "mirror", "sources", "many sources"])
def test_a_stream_of_20_000_filters_is_read_at_once(place: str) -> None:
    filters = [f"region.{n % 100}.device{n}.*" for n in range(20_000)]
    upstream = {"name": "O", "subject_transforms": [{"src": one, "dest": ""} for one in filters]}
    config: dict[str, Any] = {
        "subjects": {"subjects": filters},
        "mirror": {"mirror": upstream},
        "sources": {"sources": [upstream]},
        "many sources": {"sources": [{"name": "O", "filter_subject": one} for one in filters]},
    }[place]
    # Comparing all with all takes minutes.
    assert check(parse_stream({"name": "S", **config})) == []


def test_filters_that_take_too_long_to_compare_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nats_transform.streams.rules.EFFORT", 40_000)
    subjects = [name for n in range(300) for name in (f"*.a{n}", f"b{n}.c")]
    config = {"name": "S", "subjects": subjects, "no_ack": True}
    assert "too many filters with wildcards" in refusal(config)
