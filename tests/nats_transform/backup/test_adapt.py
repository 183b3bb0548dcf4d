"""Subjects of streams and filters of consumers, once a mapping gave messages new subjects."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from nats_transform import AccountMappings
from nats_transform.backup.adapt import adapted_config, adapted_filters
from nats_transform.backup.consumers import with_filters
from nats_transform.errors import InvalidBackup
from nats_transform.mappings.moves import moves
from nats_transform.mappings.subject import is_subset, subscribes
from nats_transform.migration.room.filters import narrowed, widened
from nats_transform.migration.room.gone import Gone
from nats_transform.streams.consumer import filters_of
from tests.support.refused import refused
from tests.support.rules import mappings

CASES = [
    pytest.param({}, ["a.*"], ["a.*"], id="no-mapping"),
    pytest.param({"b.*": "c.$1"}, ["a.*"], ["a.*"], id="another-subject"),
    pytest.param({"a.*": "b.$1"}, ["a.*"], ["b.*"], id="all-of-it"),
    pytest.param({"a.*": "b.$1"}, ["a.x"], ["b.x"], id="one-subject"),
    pytest.param({"a.*.*": "b.$2.$1"}, ["a.x.*", "a.*.y"], ["b.*.x", "b.y.*"], id="swapped"),
    pytest.param({"a.>": "b.>"}, ["a.x.>"], ["b.x.>"], id="tail"),
    pytest.param({"a.x": "b"}, ["a.*"], ["b", "a.*"], id="a-part-of-it"),
    pytest.param({"a.*": [("b.$1", 40), ("c.$1", 60)]}, ["a.*"], ["b.*", "c.*"], id="weights"),
    pytest.param({"a.x": [("b", 40)]}, ["a.x"], ["b", "a.x"], id="weights-that-leave-a-rest"),
    pytest.param({"a.x": [("a.x", 10), ("b", 40)]}, ["a.x"], ["a.x", "b"], id="lost"),
    pytest.param({"a.*": "b.{{partition(3,1)}}.$1"}, ["a.*"], ["b.*.*"], id="partition"),
    pytest.param({"a.*": "b.{{partition(1,1)}}.$1"}, ["a.x"], ["b.0.x"], id="known-partition"),
    pytest.param({"a.*": "b.{{split(1,-)}}.c"}, ["a.*"], ["b.>"], id="split"),
    pytest.param({"a.*": "b.{{random(3)}}"}, ["a.x"], ["b.*"], id="random"),
    pytest.param({"a.x": "b", "a.*": "c.$1"}, ["a.*"], ["b", "c.*"], id="first-rule-first"),
    pytest.param({"a.*": "all.$1", "b.*": "all.$1"}, ["a.*", "b.*"], ["all.*"], id="merged"),
    pytest.param({"a.*": "b.c.$1"}, ["a.*", "b.>"], ["b.>"], id="into-another"),
    pytest.param(
        {"a.*.*": "t.v2.$1.{{left(2,1)}}.$2"}, ["a.x.>"], ["t.v2.x.*.*", "a.x.>"], id="crossing"
    ),
]


@pytest.mark.parametrize(("rules", "filters", "adapted"), CASES)
def test_filters(rules: dict[str, Any], filters: list[str], adapted: list[str]) -> None:
    """And each subject that was covered is covered, whatever becomes of it."""
    made = mappings(rules)
    assert adapted_filters(filters, made) == adapted
    for size in (1, 2, 3):
        for tokens in product("abcxy", repeat=size):
            subject = ".".join(tokens)
            if any(subscribes(filter, subject) for filter in filters):
                for outcome, _ in made.outcomes(subject):
                    assert outcome.subject is None or any(
                        subscribes(filter, outcome.subject) for filter in adapted
                    )
    # And a plan writes the same.
    changing = moves(AccountMappings([]), made)
    both = widened(filters, changing)
    after = narrowed(filters, both, Gone([], [], changing).published)
    for written in (both, after):
        assert all(any(is_subset(one, of=other) for other in written) for one in adapted)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "ingress": (
        {"subject_transform": {"src": "a.*", "dest": "x.$1"}},
        "backup-subjects-change",
    ),
    "republish": ({"republish": {"src": "", "dest": "r.>"}}, "backup-subjects-change"),
    "overlapping-subjects": ({"subjects": ["a.*", "*.x"]}, "backup-subjects-invalid"),
    "no-configuration": ({"republish": "r.>"}, "backup-subjects-invalid"),
}


@pytest.mark.parametrize(("config", "code"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_adapted(config: dict[str, Any], code: str) -> None:
    made = mappings({"a.*": "b.$1"})
    with refused(InvalidBackup, code):
        adapted_config({"name": "S", "subjects": ["a.*"]} | config, made)


def test_the_rest_of_a_configuration_stays() -> None:
    config = {
        "name": "S", "subjects": ["a.*", "c"], "max_age": 10**9, "metadata": {"x": "y"},
        "unknown": 1, "subject_transform": {"src": "c", "dest": "d"},
    }  # fmt: skip
    found = adapted_config(config, mappings({"a.*": "b.$1"}))
    assert found == config | {"subjects": ["b.*", "c"]}
    mirror = {"name": "M", "mirror": {"name": "S"}}
    assert adapted_config(mirror, mappings({"a.*": "b.$1"})) == mirror


def test_filters_of_consumers() -> None:
    consumer = {"config": {"filter_subject": "a", "max_deliver": 5}, "state": {}}
    assert filters_of(consumer["config"]) == ["a"]
    two = with_filters(consumer, ["b", "c"])
    assert two == {"config": {"max_deliver": 5, "filter_subjects": ["b", "c"]}, "state": {}}
    assert filters_of(two["config"]) == ["b", "c"]
    assert filters_of(with_filters(two, [])["config"]) == []
    assert with_filters(two, ["a"])["config"]["filter_subject"] == "a"
