"""Canonical forms and mapping versions: what changes them and what does not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_transform import AccountMappings, Destination, InvalidConfig, Mapping
from nats_transform.config import canonical, from_canonical, load, mapping_version
from nats_transform.config.version import FORMAT, _levels
from nats_transform.mappings.draw import draw_of, mapping_key, message_entropy, random_of
from nats_transform.mappings.subject import Filter, is_valid_filter
from nats_transform.streams.stream import StreamConfig
from tests.support.files import written
from tests.support.refused import refused
from tests.support.rules import mappings


def version(tmp_path: Path, text: str) -> str:
    return mapping_version(load(written(tmp_path / "server.conf", text)))


BASE = """mappings {
  orders.*: [ {dest: "a.$1", weight: 40}, {dest: "b.$1", weight: 30, cluster: east} ]
  other.*: "x.$1"
  orders.>: "rest.>"
}"""

SAME = {
    "formatting": BASE.replace("\n", "\n\n").replace(":", " = "),
    "comments": BASE.replace("\n  other", " # x\n // y\n  other"),
    "spelling of fields": BASE.replace("dest", "Destination").replace("40", "40%"),
    "order of keys": BASE.replace('{dest: "a.$1", weight: 40}', '{weight: 40, dest: "a.$1"}'),
    "order of mappings that never meet": """mappings {
  other.*: "x.$1"
  orders.*: [ {dest: "a.$1", weight: 40}, {dest: "b.$1", weight: 30, cluster: east} ]
  orders.>: "rest.>"
}""",
    "order of destinations of two clusters": BASE.replace(
        '{dest: "a.$1", weight: 40}, {dest: "b.$1", weight: 30, cluster: east}',
        '{dest: "b.$1", weight: 30, cluster: east}, {dest: "a.$1", weight: 40}',
    ),
    "other settings": BASE + "\nport: 4222\naccounts { A { mappings { a: b }\n}\n}",
}
DIFFERENT = {
    "a weight": BASE.replace("40", "41"),
    "a cluster": BASE.replace("east", "west"),
    "a destination": BASE.replace("a.$1", "a.{{wildcard(1)}}"),
    "a source": BASE.replace("other", "others"),
    "a mapping more": BASE.replace("other.*", 'more: "x"\n  other.*'),
    "order of mappings that meet": """mappings {
  orders.>: "rest.>"
  orders.*: [ {dest: "a.$1", weight: 40}, {dest: "b.$1", weight: 30, cluster: east} ]
  other.*: "x.$1"
}""",
}


@pytest.mark.parametrize("name", [*SAME, *DIFFERENT])
def test_what_changes_the_version(tmp_path: Path, name: str) -> None:
    is_same = version(tmp_path, (SAME | DIFFERENT)[name]) == version(tmp_path, BASE)
    assert is_same == (name in SAME)


def test_the_version_is_the_sha_256_of_the_form_which_stays_as_it_is() -> None:
    """A new form gives every table a new version: raise `FORMAT` if that must be."""
    account = mappings({"a.*": [("b.$1", 50), ("é", 5)]})
    assert canonical(account, 7) == (
        '{"account":[{"destinations":[{"cluster":null,"subject":"\\u00e9","weight":5},'
        '{"cluster":null,"subject":"b.$1","weight":50}],"source":"a.*"}],"format":1,"seed":7}'
    )
    assert mapping_version(account, 7) == (
        "c523dc5f2dc03bfe02d7f5ba85019b4ff2cf052b962a6f0f03d885e1cc81481e"
    )


def test_equal_weights_keep_their_order() -> None:
    for weight, is_same in ((10, False), (0, True)):
        two = [("a", weight), ("b", weight)]
        one, other = (mapping_version(mappings({"x": to})) for to in (two, two[::-1]))
        assert (one == other) == is_same


def test_the_first_literal_source_with_a_function_keeps_its_place() -> None:
    """Its partition(n) hashes an empty subject only where it is the first mapping."""
    forward = mappings({"b": "x.{{partition(9)}}", "a": "y"})
    backward = AccountMappings(forward.mappings[::-1])
    assert forward.apply("b") != backward.apply("b")
    assert mapping_version(forward) != mapping_version(backward)


def test_streams(tmp_path: Path) -> None:
    base = {"name": "S", "subjects": ["b", "a"], "subject_transform": {"src": "a", "dest": "c"}}
    one = StreamConfig.model_validate(base)
    assert from_canonical(canonical(one, 3)) == (one.model_copy(update={"subjects": ["a", "b"]}), 3)
    same = {**base, "description": "x", "num_replicas": 3, "subjects": ["a", "b"], "metadata": {}}
    assert mapping_version(StreamConfig.model_validate(same)) == mapping_version(one)
    other = {**base, "subject_transform": {"src": "a", "dest": "d"}}
    assert mapping_version(StreamConfig.model_validate(other)) != mapping_version(one)
    named = StreamConfig.model_validate({**base, "name": "T"})
    assert mapping_version(named) != mapping_version(one)


TOKENS = st.sampled_from(["a", "b", "c", "*", "*x", "é", "\udcff"])
SOURCES = st.builds(
    lambda tokens, tail: ".".join([*tokens, *tail]),
    st.lists(TOKENS, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
).filter(is_valid_filter)
DESTINATIONS = st.lists(
    st.builds(
        Destination,
        st.sampled_from(["x", "y.z", "é", ""]),
        st.integers(0, 33),
        st.sampled_from([None, "east", "west"]),
    ),
    max_size=3,
    unique_by=lambda destination: destination.subject,
)


def _mapping(source: str, destinations: list[Destination]) -> Mapping:
    if source.endswith(">"):
        destinations = [
            Destination(f"{d.subject or 'e'}.>", d.weight, d.cluster) for d in destinations
        ]
    return Mapping(source, destinations)


ACCOUNTS = st.lists(
    st.builds(_mapping, SOURCES, DESTINATIONS), max_size=6, unique_by=lambda m: m.source
).map(AccountMappings)


@given(ACCOUNTS, st.integers(-(2**63), 2**63 - 1))
def test_the_canonical_form_comes_back(account: AccountMappings, seed: int) -> None:
    form = canonical(account, seed)
    again, seed_again = from_canonical(form)
    assert seed_again == seed
    assert canonical(again, seed) == form
    assert form.isascii()
    assert isinstance(again, AccountMappings)
    for mapping in account.mappings:
        subject = mapping.source.replace("*", "q").replace(">", "r.s")
        for cluster in (None, "east", "north"):
            for draw in (0, 1, 32, 33, 50, 99):
                assert again.apply(subject, cluster, draw) == account.apply(subject, cluster, draw)


def meet(one: str, other: str) -> bool:
    """Whether some subject matches both sources."""
    ones, others = one.split("."), other.split(".")
    for position in range(max(len(ones), len(others))):
        pair = [tokens[position : position + 1] for tokens in (ones, others)]
        if [">"] in pair:
            return [] not in pair
        if [] in pair:
            return False
        if pair[0] != pair[1] and not any(token.startswith("*") for (token,) in pair):
            return False
    return True


@given(ACCOUNTS, st.randoms(use_true_random=False))
def test_only_an_order_that_means_something_is_kept(
    account: AccountMappings, chance: object
) -> None:
    shuffled = list(account.mappings)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    sources = [m.source for m in account.mappings]
    order = [m.source for m in shuffled]
    kept = all(
        (sources.index(one) < sources.index(other)) == (order.index(one) < order.index(other))
        for one in sources
        for other in sources
        if one != other and meet(one, other)
    )
    if kept:
        assert canonical(AccountMappings(shuffled)) == canonical(account)


@settings(max_examples=300)
@given(st.lists(SOURCES, max_size=8, unique=True))
def test_levels_are_one_more_than_those_of_the_earlier_sources_that_meet(
    sources: list[str],
) -> None:
    levels: list[int] = []
    for number, source in enumerate(sources):
        earlier = [levels[i] for i in range(number) if meet(source, sources[i])]
        levels.append(1 + max(earlier, default=0))
    assert _levels([Filter(source) for source in sources]) == levels


def test_thousands_of_mappings_take_no_time() -> None:
    sources = [f"t{n}.*" for n in range(2000)] + [f"*.u{n}" for n in range(1000)]
    account = mappings(dict.fromkeys(sources, "x"))
    assert len(json.loads(canonical(account))["account"]) == 3000


def test_where_it_takes_too_long_the_order_of_the_file_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nats_transform.config.version.EFFORT", 50_000)
    sources = [source.format(n) for source in ("a{}.x", "*.b{}") for n in reversed(range(400))]
    account = mappings(dict.fromkeys(sources, "x"))
    form = json.loads(canonical(account))["account"]
    assert [mapping["source"] for mapping in form] == sources


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "5", '{"format": 2, "account": [], "seed": 0}', '{"format": 1, "seed": 0}',
     '{"format": 1, "account": [{"source": "a", "destinations": [{"x": 1}]}], "seed": 0}',
     '{"format": 1, "account": [{"source": "a..b", "destinations": []}], "seed": 0}',
     '{"format": 1, "account": [], "seed": null}', "[" * 100_000],
)  # fmt: skip
def test_what_is_no_canonical_form_is_refused(text: str) -> None:
    with refused(InvalidConfig, "version-not-canonical"):
        from_canonical(text)


# Format of the version -> SHA-256 of the draws below. A new format gets a new row.
DRAWS_OF_FORMAT = {1: "07bb91c8a4d257bb1a0360fbc3b8a5213f4f00f0d809e3d8e9e98593125f6ebd"}


def test_new_draws_need_a_new_format() -> None:
    draws = []
    for seed in (0, 1, -7, 2**63):
        for source in ("orders.*", ">", "subject_transform", "k\udcff"):
            for stream, seq in (("ORDERS", 1), ("ORDERS", 2**40), ("\u00fc", 3), (None, None)):
                entropy = message_entropy(stream, seq, mapping_key(seed, source))
                draws.append((entropy, draw_of(entropy), random_of(entropy, 2, 1000)))
    found = hashlib.sha256(json.dumps(draws).encode()).hexdigest()
    assert found == DRAWS_OF_FORMAT[FORMAT], "the draws changed: raise FORMAT, and add its row here"
