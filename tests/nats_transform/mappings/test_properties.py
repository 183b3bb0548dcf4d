"""What holds for every transform and mapping, not only for those in the tables."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nats_transform import (
    AccountMappings,
    Destination,
    InvalidMapping,
    InvalidStream,
    InvalidTransform,
    Mapping,
    Transform,
    parse_stream,
)
from nats_transform.accounts.imports import AccountImport, ImportKind
from nats_transform.mappings.functions import fnv1a
from nats_transform.mappings.subject import (
    ANY_TOKEN,
    encode,
    is_valid_publish_subject,
    literal_fault,
)
from nats_transform.streams.trace import trace
from tests.support import rules

# Everything but what ends a token or stands for several; surrogates are bytes that are not UTF-8.
CHARACTERS = st.characters(exclude_characters=".*>", exclude_categories=["Cs"]) | st.sampled_from(
    ["\udc80", "\udcff"]
)
WORDS = st.text(CHARACTERS, min_size=1, max_size=8)
PLAIN = st.text("abcxyz019-_", min_size=1, max_size=5)
NUMBERS = st.integers(-3, 5) | st.sampled_from([2**31 - 1, 2**31, 2**63, -(2**31), -(2**31) - 1])


def check_text(error: Exception) -> None:
    """One line, printable anywhere."""
    assert "\n" not in str(error)
    str(error).encode()


@st.composite
def strict_transforms(draw: st.DrawFn) -> tuple[Transform, str]:
    """A transform that uses each wildcard once, and a subject it covers."""
    count = draw(st.integers(0, 5))
    literals = draw(st.lists(PLAIN, max_size=3))
    has_tail = draw(st.booleans())
    alone = [] if has_tail else ["lone"]
    source = draw(st.permutations(["*"] * count + literals)) or alone
    holes = [
        f"${n}" if draw(st.booleans()) else f"{{{{wildcard({n})}}}}" for n in range(1, count + 1)
    ]
    destination = draw(st.permutations(holes + draw(st.lists(PLAIN, max_size=3)))) or alone
    tail = [">"] if has_tail else []
    transform = Transform(".".join([*source, *tail]), ".".join([*destination, *tail]), strict=True)
    tokens = [draw(WORDS) if token == ANY_TOKEN else token for token in source]
    if has_tail:
        tokens += draw(st.lists(WORDS, min_size=1, max_size=3))
    return transform, ".".join(tokens)


@given(strict_transforms())
def test_reverse_undoes_strict_transforms(case: tuple[Transform, str]) -> None:
    transform, subject = case
    there = transform.apply(subject)
    backward = transform.reverse()
    assert backward.apply(there) == subject
    assert backward.reverse().apply(subject) == there


@given(
    st.integers(1, 2**31 - 1),
    st.lists(WORDS, min_size=3, max_size=3),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    WORDS,
)
def test_a_partition_is_in_range_and_depends_on_its_tokens_alone(
    count: int, tokens: list[str], indexes: list[int], other: str
) -> None:
    arguments = ",".join(map(str, [count, *indexes]))
    transform = Transform("*.*.*", f"{{{{partition({arguments})}}}}")
    partition = transform.apply(".".join(tokens))
    assert 0 <= int(partition) < count
    changed = [token if index in indexes else other for index, token in enumerate(tokens, start=1)]
    assert transform.apply(".".join(changed)) == partition
    key = encode("".join(tokens[index - 1] for index in indexes))
    assert int(partition) == fnv1a(key) % count


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)]
)
def test_the_hash_is_fnv_1a(data: bytes, expected: int) -> None:
    # The vectors of the hash's authors.
    assert fnv1a(data) == expected


WEIGHTED = st.lists(
    st.builds(
        Destination,
        st.integers(0, 9).map("d{}.$1".format) | st.just("s.*"),
        st.sampled_from([0, 1, 3, 10, 33, 50, 100]),
        st.sampled_from([None, "east", "west"]),
    ),
    max_size=6,
)


@given(WEIGHTED, st.booleans(), st.sampled_from([None, "east", "west", "north"]))
def test_the_outcomes_of_all_draws_add_up_to_the_weights(
    destinations: list[Destination], lists_source: bool, cluster: str | None
) -> None:
    source, subject = ("s.>", "s.x") if lists_source else ("s.*", "s.x")
    listed = [
        Destination(d.subject.replace("$1", ">").replace("*", ">"), d.weight, d.cluster)
        if lists_source
        else d
        for d in destinations
    ]
    try:
        mappings = AccountMappings([Mapping(source, listed)])
    except (InvalidMapping, InvalidTransform):
        assume(False)
        return
    exact: Counter[tuple[str | None, str]] = Counter()
    for outcome, percent in mappings.outcomes(subject, cluster):
        exact[outcome.subject, outcome.fate] += percent
    drawn = Counter(
        (outcome.subject, outcome.fate)
        for outcome in (mappings.apply(subject, cluster, draw) for draw in range(100))
    )
    assert drawn == exact
    assert sum(exact.values()) == 100
    scoped = [d for d in listed if d.cluster == cluster] if cluster else []
    for d in scoped or [d for d in listed if d.cluster is None]:
        assert any(
            share.destination == d.subject and share.weight == d.weight
            for share in mappings.mappings[0].shares(cluster)
        )


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")), st.text())
def test_any_text_is_a_transform_or_one_clear_error(source: str, destination: str) -> None:
    try:
        transform = Transform(source, destination)
    except InvalidTransform as error:
        check_text(error)
    else:
        transform.apply(source)


DESTINATION_TOKENS = (
    st.builds(
        "{{{{{}({})}}}}".format,
        st.sampled_from(
            ["wildcard", "partition", "split", "left", "right", "random", "sliceFromLeft", "nope"]
        ),
        st.lists(NUMBERS.map(str) | st.text("-ab ,\t", max_size=3), max_size=4).map(",".join),
    )
    | st.text("${}()1-a *>\t", max_size=8)
    | NUMBERS.map("${}".format)
)


@given(
    st.sampled_from(["*", "*.*", "a.*.>", ">", "a"]),
    st.lists(DESTINATION_TOKENS, min_size=1, max_size=3).map(".".join),
    st.lists(WORDS, min_size=1, max_size=4).map(".".join),
)
def test_what_is_accepted_evaluates(source: str, destination: str, subject: str) -> None:
    try:
        transform = Transform(source, destination)
    except InvalidTransform:
        return
    result = transform.apply(subject, 12345)
    if result is not None:
        # Bytes come out as bytes: one text for one subject.
        assert encode(result).decode("utf-8", "surrogateescape") == result
    if result is not None and not transform.can_make_empty_token:
        assert "" not in result.split(".")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    [
        *("name", "subjects", "mirror", "sources", "subject_transform"),
        *("republish", "max_age", "storage"),
    ]
)


@given(JSON | st.dictionaries(FIELDS, JSON))
def test_any_json_is_a_stream_or_one_clear_error(data: object) -> None:
    try:
        parse_stream(data)
    except InvalidStream as error:
        check_text(error)


@given(
    st.sampled_from(list(ImportKind)),
    FILTERS_OR_TEXT := st.text("ab.*>$12{}()", max_size=12),
    FILTERS_OR_TEXT,
)
def test_any_import_is_one_or_a_clear_error(kind: ImportKind, subject: str, to: str) -> None:
    try:
        imported = AccountImport(kind, subject, to)
    except InvalidTransform as error:
        check_text(error)
    else:
        imported.apply("a.b")


@given(st.text(max_size=12))
def test_any_subject_can_be_traced(subject: str) -> None:
    paths = trace(subject, rules.mappings({">": [("x.>", 40)]})).paths
    assert sum(path.percent for path in paths) == 100
    can_be_sent = literal_fault(subject) is None and is_valid_publish_subject(subject)
    assert all(path.subject is not None for path in paths) == can_be_sent
