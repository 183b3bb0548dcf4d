"""One subject transform: a source filter and a destination.

Sources: ADR-30 "Transform rules", nats-server `NewSubjectTransformWithStrict` and
`TransformTokenizedSubject` in `server/subject_transform.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from nats_transform.errors import (
    FunctionNotAllowed,
    InvalidSubject,
    InvalidTransform,
    UnusedWildcards,
)
from nats_transform.mappings.arguments import Refused
from nats_transform.mappings.functions import (
    Literal,
    Partition,
    Split,
    Tail,
    Token,
    Wildcard,
    looks_like_function,
    parse_token,
)
from nats_transform.mappings.subject import (
    ANY_TAIL,
    ANY_TOKEN,
    NOT_LITERAL,
    SEPARATOR,
    Filter,
    has_blank,
)


@dataclass(slots=True, unsafe_hash=True)  # nothing changes it once it is made
class Transform:
    """A source filter and the destination that matching subjects get.

    Examples:
        >>> Transform("orders.*.*", "orders.{{wildcard(2)}}.$1").apply("orders.eu.42")
        'orders.42.eu'

    Args:
        source: a filter; an empty one stands for `>`.
        destination: tokens that are literal text or mapping functions. It ends in `>` exactly if
            the source does.
        strict: whether the rules of account imports hold: only `wildcard` is allowed, and as many
            wildcards as the source has `*` must be used.

    Raises:
        InvalidTransform: the class of the error names the rule; its text has the token and the
            reason.

    Attributes:
        source, destination, strict: the arguments, with `>` for an empty source.
        filter: the parsed source.
        tokens: the parsed destination, one value for each token.
        can_make_empty_token: whether some subject can get one, because `split` drops empty parts.
    """

    source: str
    destination: str
    strict: bool = False
    filter: Filter = field(init=False, compare=False)
    tokens: tuple[Token, ...] = field(init=False, compare=False)
    can_make_empty_token: bool = field(init=False, compare=False)
    _computed: tuple[Token, ...] = field(init=False, compare=False)
    _format: str = field(init=False, compare=False)
    _is_identity: bool = field(init=False, compare=False)
    _picked: Callable[[Sequence[str]], object] | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self.source = self.source or ANY_TAIL
        self.filter = Filter(self.source)
        self._check_shape()
        self.tokens = self._parse()
        if self.strict and not self.filter.is_literal:
            self._check_strict()
        # The destination as a format with a hole for each token that is not literal.
        self._computed = tuple([token for token in self.tokens if not isinstance(token, Literal)])
        self.can_make_empty_token = any(isinstance(token, Split) for token in self._computed)
        self._is_identity = self.source == self.destination == ANY_TAIL
        # The tokens for all holes at once where each takes one as it is.
        places = [token.position for token in self._computed if isinstance(token, Wildcard)]
        self._picked = None
        if len(places) == len(self._computed) > 0:
            self._picked = itemgetter(*places)
        self._format = SEPARATOR.join(
            [
                token.text.replace("%", "%%") if isinstance(token, Literal) else "%s"
                for token in self.tokens
            ]
        )

    def __repr__(self) -> str:
        strict = ", strict=True" if self.strict else ""
        return f"Transform({self.source!r}, {self.destination!r}{strict})"

    @property
    def partition(self) -> Partition | None:
        """The first `partition()` of the destination, if there is one."""
        return next((token for token in self.tokens if isinstance(token, Partition)), None)

    @property
    def partition_place(self) -> int | None:
        """Which token of every result is the number of `partition`: 1-based, negative from the end.

        None without one, and where functions on both sides of it make now one token, now more.
        """
        if self.partition is None:
            return None
        index = self.tokens.index(self.partition)
        if all(token.makes_one_token for token in self.tokens[:index]):
            return index + 1
        if all(token.makes_one_token for token in self.tokens[index:]):
            return index - len(self.tokens)
        return None

    def apply(self, subject: str, entropy: int | None = 0) -> str | None:
        """The new subject, or None if the subject is not covered by the source.

        A subject that is not a legal literal one is covered by no source. The result can be
        illegal itself: `split` of a token that is all delimiters leaves an empty token.

        Args:
            subject: a literal subject.
            entropy: 64 bits that decide each `random()`, see `nats_transform.mappings.draw`; None
                leaves it as it is written.
        """
        if self._is_identity:
            return subject
        tokens = subject.split(SEPARATOR)
        if not self.filter.covers(tokens) or not NOT_LITERAL.isdisjoint(tokens):
            return None
        return self.evaluate(tokens, entropy)

    def evaluate(self, tokens: Sequence[str], entropy: int | None = 0) -> str:
        """The new subject of a subject whose tokens are known to match."""
        if self._picked is not None:
            return self._format % self._picked(tokens)
        values = [token.evaluate(tokens, entropy) for token in self._computed]
        return self._format % tuple(values)

    def reverse(self) -> Transform:
        """The transform that undoes this one.

        nats-server reverses a service import by position instead, which undoes only transforms
        that keep the order of their wildcards; see `AccountImport`.

        Raises:
            InvalidTransform: the destination has other functions than wildcards, drops or repeats a
                wildcard, or the source would have another meaning as a destination.
        """
        places = list(self.filter.wildcards)
        used = [token.position for token in self.tokens if isinstance(token, Wildcard)]
        if sorted(used) != places:
            raise self._refused(UnusedWildcards, detail="irreversible-wildcards")
        if not all(isinstance(token, Literal | Tail | Wildcard) for token in self.tokens):
            raise self._refused(FunctionNotAllowed, detail="irreversible")
        source = SEPARATOR.join(
            ANY_TOKEN if isinstance(token, Wildcard) else text
            for token, text in zip(self.tokens, self.destination.split(SEPARATOR), strict=True)
        )
        destination = SEPARATOR.join(
            f"${used.index(place) + 1}" if token == ANY_TOKEN else token
            for place, token in enumerate(self.filter.tokens)
        )
        backward = Transform(source, destination, strict=True)
        functions = sum(isinstance(token, Wildcard) for token in backward.tokens)
        if functions != len(places) or any(
            t.startswith("*") and t != "*" for t in self.filter.tokens
        ):
            raise self._refused(InvalidTransform, detail="irreversible-source")
        return backward

    def _refused(
        self, kind: type[InvalidTransform], token: str = "", detail: str = "", **fields: object
    ) -> InvalidTransform:
        return kind(self.source, self.destination, token, detail, **fields)

    def _check_shape(self) -> None:
        destination = self.destination.split(SEPARATOR)
        for name, tokens in (("source", self.filter.tokens), ("destination", destination)):
            if "" in tokens:
                raise self._refused(InvalidSubject, detail="empty-token", name=name)
            if ANY_TAIL in tokens[:-1]:
                raise self._refused(InvalidSubject, ANY_TAIL, "tail-not-last", name=name)
        if ANY_TOKEN in destination:
            raise self._refused(InvalidSubject, ANY_TOKEN, "wildcard-in-destination")
        if (self.filter.tokens[-1] == ANY_TAIL) != (destination[-1] == ANY_TAIL):
            raise self._refused(InvalidSubject, ANY_TAIL, "tail-on-one-side")

    def _parse(self) -> tuple[Token, ...]:
        wildcards = None if self.filter.is_literal else self.filter.wildcards
        parsed: list[Token] = []
        for slot, token in enumerate(self.destination.split(SEPARATOR)):
            if token == ANY_TAIL:
                parsed.append(Tail(len(self.filter.tokens) - 1))
                continue
            try:
                parsed.append(parse_token(token, slot, wildcards))
            except Refused as refused:
                error = self._refused(refused.error, token, refused.detail, **refused.fields)
                raise error from None
        return tuple(parsed)

    def _check_strict(self) -> None:
        for token, text in zip(self.tokens, self.destination.split(SEPARATOR), strict=True):
            if not isinstance(token, Literal | Tail | Wildcard):
                raise self._refused(FunctionNotAllowed, text)
        used = sum(isinstance(token, Wildcard) for token in self.tokens)
        # The server only counts the wildcards, so foo.*.* -> bar.$1.$1 passes.
        if used < self.filter.tokens.count(ANY_TOKEN):
            raise self._refused(UnusedWildcards)


def validate_mapping(source: str, destination: str) -> Transform | None:
    """The transform to a destination that nats-server's `ValidateMapping` takes.

    Account mappings and the transforms of streams go through it; republish and imports do not.
    Beyond `Transform` it refuses blanks in tokens that are not functions. An empty destination
    passes, and makes no transform.

    Raises:
        InvalidTransform: with the rule and token.
    """
    if not destination:
        return None
    for token in destination.split(SEPARATOR) if has_blank(destination) else ():
        if not looks_like_function(token) and has_blank(token):
            raise InvalidSubject(source, destination, token, "has-blank")
    return Transform(source, destination)


def number_wildcards(filter: str) -> str:
    """A filter as the destination that gives every subject back: `foo.*.*` -> `foo.$1.$2`.

    Source: nats-server `transformTokenize`.
    """
    count = 0
    tokens = []
    for token in filter.split(SEPARATOR):
        count += token == ANY_TOKEN
        tokens.append(f"${count}" if token == ANY_TOKEN else token)
    return SEPARATOR.join(tokens)
