"""The traits of mapping functions: what other modules rely on without looking at the classes."""

from __future__ import annotations

import time
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transform.mappings.arguments import Refused
from nats_transform.mappings.functions import (
    Left,
    Literal,
    Partition,
    Random,
    Right,
    SliceFromLeft,
    SliceFromRight,
    Split,
    SplitFromLeft,
    SplitFromRight,
    Tail,
    Token,
    Wildcard,
    fnv1a,
    is_placeholder,
    parse_token,
)
from nats_transform.mappings.subject import SEPARATOR, encode

# Token -> whether it makes one token of every subject, and the positions that it reads.
TRAITS: dict[str, tuple[Token, bool, tuple[int, ...]]] = {
    "literal": (Literal("a"), True, ()),
    "tail": (Tail(1), False, ()),
    "wildcard": (Wildcard(1), True, (1,)),
    "partition": (Partition(3, (1, 2)), True, (1, 2)),
    "partition of the whole subject": (Partition(3), True, ()),
    "split": (Split(1, "-"), False, (1,)),
    "splitfromleft": (SplitFromLeft(1, 2), False, (1,)),
    "splitfromright": (SplitFromRight(1, 2), False, (1,)),
    "slicefromleft": (SliceFromLeft(1, 2), False, (1,)),
    "slicefromright": (SliceFromRight(1, 2), False, (1,)),
    "left": (Left(1, 2), True, (1,)),
    "right": (Right(1, 2), True, (1,)),
    "random": (Random(3, 0), True, ()),
}
CASES = [pytest.param(*traits, id=name) for name, traits in TRAITS.items()]


def test_the_table_has_every_function() -> None:
    assert {type(token) for token, _, _ in TRAITS.values()} == set(get_args(Token))


@pytest.mark.parametrize(("token", "makes_one", "reads"), CASES)
def test_makes_one_token(token: Token, makes_one: bool, reads: tuple[int, ...]) -> None:
    assert token.makes_one_token is makes_one
    assert token.reads == reads
    many = ["a", "long-er", "tok-en"]
    assert (SEPARATOR not in token.evaluate(many, 1)) is makes_one


@given(
    tokens=st.lists(st.text("ab-", min_size=1, max_size=5), min_size=3, max_size=4),
    other=st.text("ab-", min_size=1, max_size=5),
)
@pytest.mark.parametrize(("token", "makes_one", "reads"), CASES)
def test_holds_for_every_subject(
    token: Token, makes_one: bool, reads: tuple[int, ...], tokens: list[str], other: str
) -> None:
    result = token.evaluate(tokens, 7)
    if makes_one:
        assert SEPARATOR not in result
        assert result
    # A token that is not read makes no difference; the whole subject has no positions.
    if not isinstance(token, Tail) and token != Partition(3):
        for position in set(range(len(tokens))) - set(reads):
            changed = [other if n == position else text for n, text in enumerate(tokens)]
            assert token.evaluate(changed, 7) == result


@pytest.mark.parametrize(
    ("partition", "tokens", "key"),
    [
        pytest.param(Partition(5, (1,)), ["a", "b"], "b", id="one token"),
        pytest.param(Partition(5, (1, 0)), ["a", "b"], "ba", id="joined without a separator"),
        pytest.param(Partition(5), ["a", "b"], "a.b", id="the whole subject"),
        pytest.param(Partition(5), [], "", id="a literal source that is tried first"),
    ],
)
def test_key_and_number_of_a_partition(partition: Partition, tokens: list[str], key: str) -> None:
    assert partition.key(tokens) == key
    number = partition.number(fnv1a(encode(key)))
    assert str(number) == partition.evaluate(tokens, None)
    assert Partition(0).number(12345) == 0


@pytest.mark.parametrize(
    ("token", "is_one"),
    [
        ("$1", True),
        ("$9x", True),
        ("$0", False),
        ("$", False),
        ("a", False),
        ("{{wildcard(1)}}", True),
        ("a{{ wildcard( 2 ) }}b", True),
        ("{{wildcard()}}", False),
        ("{{wildcard(1,2)}}", False),
        ("{{partition(1)}}", False),
    ],
)
def test_what_the_reverse_of_an_import_reads_as_a_wildcard(token: str, is_one: bool) -> None:
    assert is_placeholder(token) is is_one


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("{{partition(" * 3 + "1)}}", None),
        ("{{wildcard({{wildcard(1)}}", None),
        ("{{partition(x\n{{partition(3,1)}}", Partition(3, (1,))),
        ("{{partition(x{{partition\n(3,1)}}", Partition(3, (1,))),
        ("{{partition(x\n{{partition\n(\n{{ partition (3,1)\n}}}}", Partition(3, (1,))),
        ("{{)}}{{wildcard(1) }}", Wildcard(1)),
    ],
)
def test_the_first_function_that_is_closed(token: str, said: Token | None) -> None:
    if said is None:
        with pytest.raises(Refused):
            parse_token(token, 0, [0, 1])
    else:
        assert parse_token(token, 0, [1]) == said


@pytest.mark.parametrize(
    "token", ["{{partition(" * 200_000 + "}}", "{{wildcard(1" * 200_000 + "}}"]
)
def test_time_is_in_proportion_to_a_token(token: str) -> None:
    """A quadratic step would take hours on these; so even a busy machine tells them apart."""
    started = time.process_time()
    with pytest.raises(Refused):
        parse_token(token, 0, [0])
    assert not is_placeholder(token)
    assert time.process_time() - started < 20
