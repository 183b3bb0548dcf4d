"""Finds mistakes in one transform."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

from nats_transform.errors import printable
from nats_transform.mappings.functions import (
    Literal,
    OfTokenAndSize,
    Partition,
    Random,
    Split,
    Tail,
    Token,
    Wildcard,
    looks_like_function,
)
from nats_transform.mappings.subject import ANY_TAIL, ANY_TOKEN, SEPARATOR, Filter
from nats_transform.mappings.symbolic import dropped
from nats_transform.mappings.transform import Transform
from nats_transform.words import and_more

# A literal `$KV` or `$SYS` names a namespace of the server; `$1x`, `$name` or `{{...` was meant to
# be filled in.
_MEANT_AS_FUNCTION = re.compile(
    r"\$[-+]?[0-9]|^\$[a-z{(]|^\$$|\{\{|\}\}|^\{.*\}$|"
    r"^(wildcard|partition|(split|slice)(from(left|right))?|left|right|random)\(",
    re.IGNORECASE | re.DOTALL,
)
_SYSTEM_NAME = re.compile(r"\$[A-Z][A-Z0-9_-]*")
_ONE_FUNCTION = re.compile(r"\{\{\s*\w+\s*\(.*\)\s*\}\}", re.DOTALL)


def transform_faults(transform: Transform) -> Iterator[tuple[str, str]]:
    """The code and the message of each kind of probable mistake in a transform."""
    return _kinds(chain(_misleading(transform), _dropped_wildcards(transform)))


def source_faults(source: str) -> Iterator[tuple[str, str]]:
    """The code and the message of each kind of probable mistake in a source filter."""
    return _kinds(
        ("any-token", f"the token {printable(token)} matches any single token")
        for token in source.split(SEPARATOR)
        if token.startswith(ANY_TOKEN) and token != ANY_TOKEN
    )


def _kinds(faults: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The first message of each code: a subject may have thousands of tokens."""
    messages: dict[str, list[str]] = {}
    for code, message in faults:
        messages.setdefault(code, []).append(message)
    for code, (first, *others) in messages.items():
        yield code, first + and_more(len(others))


def _misleading(transform: Transform) -> Iterator[tuple[str, str]]:
    """Tokens that do something else than they seem to."""
    texts = transform.destination.split(SEPARATOR)
    for token, text in zip(transform.tokens, texts, strict=True):
        if isinstance(token, Literal):
            if _MEANT_AS_FUNCTION.search(text) and not _SYSTEM_NAME.fullmatch(text):
                message = f"{printable(text)} is in the result exactly as it is written"
                yield "literal-function", message
        elif not isinstance(token, Tail):
            yield from _function_faults(transform, token, text)


def _function_faults(transform: Transform, token: Token, text: str) -> Iterator[tuple[str, str]]:
    shown = printable(text)
    if looks_like_function(text) and (text.count("{{") > 1 or not _ONE_FUNCTION.fullmatch(text)):
        yield "text-dropped", f"nats-server reads only one function of {shown} and drops the rest"
    if any(place not in transform.filter.wildcards for place in token.reads):
        yield "index-not-positive", f"{shown} stands for the first token of the subject"
    if isinstance(token, Wildcard):
        return
    if isinstance(token, OfTokenAndSize) and token.leaves_whole:
        yield "size-without-effect", f"{shown} returns the token unchanged"
    if isinstance(token, Split) and token.delimiter:
        yield (
            "split-empty",
            f"{shown} leaves nothing of a token that has only {printable(token.delimiter)}",
        )
    if isinstance(token, Partition | Random) and abs(token.count) <= 1:
        yield "always-zero", f"{shown} is always 0"
    elif isinstance(token, Random):
        yield "random-order", f"{shown} spreads each subject over {abs(token.count)} subjects"
    elif isinstance(token, Partition) and token.count >= 2**31:
        yield "negative-partition", f"{shown} has {token.count} partitions"
    elif isinstance(token, Partition) and transform.filter.is_literal:
        yield "one-key", f"{shown} returns the same number for every message"


def _dropped_wildcards(transform: Transform) -> Iterator[tuple[str, str]]:
    for number, is_read in dropped(transform):
        part = "only in part or as a partition " if is_read else ""
        verb = "is" if part else "is not"
        yield (
            "wildcards-dropped",
            f"`*` number {number} {verb} {part}in the result, so subjects that differ in it "
            "become one",
        )


class Subjects:
    """Literal subjects, of which those under a filter are found without trying all.

    Attributes:
        has_keys: whether some were counted as keys of a `partition()`.
    """

    def __init__(self, subjects: Iterable[str]) -> None:
        self.has_keys = False
        self._all = [subject.split(SEPARATOR) for subject in subjects]
        self._at: dict[int, dict[str, list[list[str]]]] = {}

    def under(self, filter: Filter) -> list[list[str]]:
        """The subjects, as tokens, that a filter covers."""
        near = (
            self._with(position, token)
            for position, token in enumerate(filter.tokens)
            if not token.startswith((ANY_TOKEN, ANY_TAIL))
        )
        return [tokens for tokens in min(near, key=len, default=self._all) if filter.covers(tokens)]

    def _with(self, position: int, token: str) -> list[list[str]]:
        if position not in self._at:
            groups = self._at[position] = defaultdict(list)
            for tokens in self._all:
                if position < len(tokens):
                    groups[tokens[position]].append(tokens)
        return self._at[position].get(token, [])


def few_keys(transform: Transform, seen: Subjects) -> Iterator[tuple[str, str]]:
    """The `partition()` that has fewer keys in some subjects than partitions."""
    for token in transform.tokens:
        if not isinstance(token, Partition) or token.count < 2 or transform.filter.is_literal:
            continue
        keys = {token.key(tokens) for tokens in seen.under(transform.filter)}
        seen.has_keys |= bool(keys)
        if 0 < len(keys) < token.count:
            yield (
                "few-keys",
                f"the given subjects have {len(keys)} different keys for {token.count} partitions",
            )
