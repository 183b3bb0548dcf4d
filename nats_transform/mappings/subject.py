"""Subjects: validity, tokens, matching, subset and collision.

A subject is tokens joined with dots. In a filter `*` stands for any one token and a last `>` for
one or more. Subjects are `str`; bytes that are not UTF-8 are surrogate escapes, so that every
subject a server accepts has exactly one `str`. Source: nats-server `server/sublist.go`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

SEPARATOR = "."
ANY_TOKEN = "*"  # noqa: S105 - a wildcard, not a secret
ANY_TAIL = ">"
NOT_LITERAL = frozenset(("", ANY_TOKEN, ANY_TAIL))
"""Tokens that a literal subject cannot have."""
_BLANK = re.compile(r"[\t\n\f\r ]")

NO_SUBJECT = "no subject"
EMPTY_TOKEN = "empty token"  # noqa: S105
WILDCARD_TOKEN = "wildcard in a literal subject"  # noqa: S105


def encode(subject: str) -> bytes:
    """The bytes of a subject as they are on the wire."""
    return subject.encode("utf-8", "surrogateescape")


def decode(subject: bytes) -> str:
    """The subject of some bytes; what is not UTF-8 becomes surrogate escapes."""
    return subject.decode("utf-8", "surrogateescape")


def is_valid_filter(subject: str) -> bool:
    """Whether nats-server takes this as a subject or filter (`IsValidSubject`)."""
    tokens = subject.split(SEPARATOR)
    return "" not in tokens and ANY_TAIL not in tokens[:-1] and not has_blank(subject)


def literal_fault(subject: str | None) -> str | None:
    """Why no message can stand under a subject, or None if one can (`IsValidLiteralSubject`).

    No empty token and no token that is a wildcard. Blanks are the protocol's business, not this
    rule's: nats-server does not look for them here.
    """
    if subject is None:
        return NO_SUBJECT
    tokens = subject.split(SEPARATOR)
    if "" in tokens:
        return EMPTY_TOKEN
    if ANY_TOKEN in tokens or ANY_TAIL in tokens:
        return WILDCARD_TOKEN
    return None


def is_valid_publish_subject(subject: str) -> bool:
    """Whether a message can be published under this subject (`IsValidPublishSubject`)."""
    return NOT_LITERAL.isdisjoint(subject.split(SEPARATOR)) and not has_blank(subject)


def has_blank(text: str) -> bool:
    """Whether a subject or token has white space, which ends a subject in the protocol."""
    return _BLANK.search(text) is not None


def has_wildcard(subject: str) -> bool:
    """Whether a filter has a `*` or `>` token (`subjectHasWildcard`)."""
    tokens = subject.split(SEPARATOR)
    return ANY_TOKEN in tokens or ANY_TAIL in tokens


def is_subset(subject: str, of: str) -> bool:
    """Whether `of` covers a literal subject, or all of a filter (`SubjectMatchesFilter`)."""
    return tokens_match(subject.split(SEPARATOR), of.split(SEPARATOR))


def tokens_match(tokens: Sequence[str], filter_tokens: Sequence[str]) -> bool:
    """`is_subset` of subjects already cut into tokens (`isSubsetMatchTokenized`).

    A filter token that only starts with `*` (`*a`, `**`) matches any one token: the server looks
    at its first byte alone.
    """
    for position, wanted in enumerate(filter_tokens):
        if position >= len(tokens) or not wanted:
            return False
        if wanted == ANY_TAIL:
            return True
        token = tokens[position]
        if not token or token == ANY_TAIL:
            return False
        if token == ANY_TOKEN:
            if wanted != ANY_TOKEN:
                return False
        elif not wanted.startswith(ANY_TOKEN) and token != wanted:
            return False
    return len(tokens) == len(filter_tokens)


def subscribes(filter: str, subject: str) -> bool:
    """Whether a subscription gets a message under a subject (`Sublist.Match`).

    Only a token that is exactly `*` stands for any token here, unlike in `tokens_match`. A subject
    with an empty token reaches nobody; one with a wildcard token is delivered like any other.
    """
    wanted, tokens = filter.split(SEPARATOR), subject.split(SEPARATOR)
    if "" in tokens:
        return False
    if wanted[-1] == ANY_TAIL:
        if len(tokens) < len(wanted):
            return False
        del wanted[-1]
    elif len(tokens) != len(wanted):
        return False
    return all(a in (ANY_TOKEN, b) for a, b in zip(wanted, tokens, strict=False))


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter that is read once and then compared with many literal subjects.

    Attributes:
        subject: the filter as written.
        is_subscription: whether only a token that is exactly `*` stands for any token, as in
            `subscribes`; else one that starts with `*` does, as in `tokens_match`.
        tokens: its tokens.
        wildcards: 0-based positions of its `*` tokens.
        is_open: whether it ends in `>`.
    """

    subject: str
    is_subscription: bool = field(default=False, repr=False)
    tokens: tuple[str, ...] = field(init=False)
    wildcards: tuple[int, ...] = field(init=False)
    is_open: bool = field(init=False)
    _wanted: tuple[tuple[int, str], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tokens = tuple(self.subject.split(SEPARATOR))
        is_open = tokens[-1] == ANY_TAIL
        fixed = enumerate(tokens[:-1] if is_open else tokens)
        if self.is_subscription:
            wanted = [(i, token) for i, token in fixed if token != ANY_TOKEN]
        else:
            wanted = [(i, token) for i, token in fixed if not token.startswith(ANY_TOKEN)]
        wildcards = [i for i, token in enumerate(tokens) if token == ANY_TOKEN]
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "wildcards", tuple(wildcards))
        object.__setattr__(self, "is_open", is_open)
        object.__setattr__(self, "_wanted", tuple(wanted))

    @property
    def is_literal(self) -> bool:
        """Whether the filter has no wildcard."""
        return not self.is_open and not self.wildcards

    def covers(self, tokens: Sequence[str]) -> bool:
        """Whether the tokens of a literal subject match; quicker than to compare texts."""
        length = len(tokens)
        if length != len(self.tokens) and (not self.is_open or length < len(self.tokens)):
            return False
        for position, wanted in self._wanted:  # noqa: SIM110 - a loop takes half of all()'s time
            if tokens[position] != wanted:
                return False
        return True


def collide(one: str, other: str) -> bool:
    """Whether some subject is covered by both filters (`SubjectsCollide`)."""
    if one == other:
        return True
    tokens, others = one.split(SEPARATOR), other.split(SEPARATOR)
    if not has_wildcard(one):
        return has_wildcard(other) and tokens_match(tokens, others)
    if not has_wildcard(other):
        return tokens_match(others, tokens)
    shorter, longer = sorted((tokens, others), key=len)
    if len(shorter) < len(longer) and ANY_TAIL not in shorter:
        return False
    return all(_can_match(a, b) for a, b in zip(shorter, longer, strict=False))


def intersection(one: str, other: str) -> str | None:
    """The filter of the subjects that two filters share; None if they share none."""
    left, right = one.split(SEPARATOR), other.split(SEPARATOR)
    length = max(len(left), len(right))
    for side in (left, right):
        if side[-1] == ANY_TAIL:
            side[-1:] = [*[ANY_TOKEN] * (length - len(side)), ANY_TAIL]
    if len(left) != len(right):
        return None
    tokens: list[str] = []
    for a, b in zip(left, right, strict=True):
        if a == b or b == ANY_TAIL or (b == ANY_TOKEN and a != ANY_TAIL):
            tokens.append(a)
        elif a in (ANY_TOKEN, ANY_TAIL):
            tokens.append(b)
        else:
            return None
    return SEPARATOR.join(tokens)


def cover_together(filters: Sequence[str], subject: str) -> bool:
    """Whether every literal subject under a filter is under one of several.

    Examples:
        >>> cover_together(["a.*", "a.*.>"], "a.>"), cover_together(["a.*", "a.b.>"], "a.>")
        (True, False)
    """
    longest = max((filter.count(SEPARATOR) for filter in filters), default=0)
    while not any(is_subset(subject, of=filter) for filter in filters):
        # `>` stands for one token, or for one and more after it.
        one = subject.removesuffix(ANY_TAIL) + ANY_TOKEN
        if (
            not subject.endswith(ANY_TAIL)
            or subject.count(SEPARATOR) > longest
            or not any(is_subset(one, of=filter) for filter in filters)
        ):
            return False
        subject = f"{one}{SEPARATOR}{ANY_TAIL}"
    return True


def _can_match(one: str, other: str) -> bool:
    # By the first byte alone, as the server's tokensCanMatch does.
    return bool(one and other) and (one[0] in "*>" or other[0] in "*>" or one == other)
