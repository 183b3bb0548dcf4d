"""The rules of account mappings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from nats_transform.kernel.filters import Pattern
from nats_transform.kernel.program import Program
from nats_transform.kernel.rules import WHOLE_SUBJECT, Check, End, Ends, Rule, State
from nats_transform.mappings.functions import Literal, Partition, Tail, Token
from nats_transform.mappings.mapping import (
    DRAWS,
    EMPTY_DESTINATION,
    EMPTY_RESULT,
    AccountMappings,
    Fate,
    Mapping,
    Share,
)
from nats_transform.mappings.transform import Transform


def compile_mappings(mappings: AccountMappings, seed: int = 0) -> Program:
    """The program that does for a column of subjects what `AccountMappings.replay` does for one.

    Args:
        mappings: the mappings of one account; `State.rule` is a place in `mappings.mappings`.
        seed: the seed of the run, which decides the draws.

    Raises:
        NatsTransformError: a text of the mappings cannot be encoded.
    """
    return Program(
        list(_rules(mappings, _rule)), End(State(Fate.UNMATCHED), WHOLE_SUBJECT), seed=seed
    )


def compile_destinations(
    mappings: AccountMappings,
    made: Callable[[Transform], Sequence[Token] | None],
    *,
    is_subject: bool = True,
) -> list[Program]:
    """A program for the first destination of every mapping, one for the second, and so on.

    Together they make every possible result for a subject, in any cluster and under any draw. If a
    mapping has no more destinations, the state has no destination, and nothing is made. There is at
    least one program.

    Args:
        mappings: the mappings of one account.
        made: a function that gives the tokens to make for a transform; None to make nothing.
        is_subject: whether these tokens are the new subject. The first program then leaves subjects
            that no mapping covers as they are, and a result with an empty token counts as none.
    """
    possible = [destinations_of(mapping) for mapping in mappings.mappings]

    def rule(place: int, mapping: Mapping, number: int) -> Rule:
        end = End(State(Fate.LOST, None, mapping.source, None, number))
        if place < len(possible[number]):
            share = possible[number][place]
            end = _end(mapping, number, share)
            check = end.check if is_subject else Check.ANY_RESULT
            tokens = made(share.transform) if share.transform else None
            end = replace(end, tokens=tokens, below=DRAWS, check=check)
        return Rule(Pattern.of_source(mapping.filter), mapping.source, Ends([end]))

    return [
        Program(
            list(_rules(mappings, partial(rule, place))),
            End(State(Fate.UNMATCHED), WHOLE_SUBJECT if is_subject and not place else None),
        )
        for place in range(max([1, *map(len, possible)]))
    ]


def destinations_of(mapping: Mapping) -> list[Share]:
    """Each share with a transform, of all clusters; one for each destination.

    Its place is that of the program in `compile_destinations` that makes the destination.
    """
    shares = (share for share in mapping.ends() if share.weight and share.transform)
    return list({share.destination: share for share in shares}.values())


def _rule(mapping: Mapping, number: int) -> Rule:
    return Rule(
        Pattern.of_source(mapping.filter),
        mapping.source,
        _ends(mapping, number, None),
        {cluster: _ends(mapping, number, cluster) for cluster in mapping.clusters},
    )


def _rules(mappings: AccountMappings, make: Callable[[Mapping, int], Rule]) -> Iterator[Rule]:
    for number, mapping in enumerate(mappings.mappings):
        rule = make(mapping, number)
        if number == 0 and mapping.filter.is_literal:
            # nats-server does not cut the subject that is this very source: see
            # `AccountMappings`. A source `*a` is a literal that covers other subjects, too.
            yield replace(
                rule,
                pattern=Pattern.of_subject(mapping.filter),
                ends=_uncut(rule.ends),
                scoped={cluster: _uncut(ends) for cluster, ends in rule.scoped.items()},
            )
        yield rule


def _ends(mapping: Mapping, number: int, cluster: str | None) -> Ends:
    shares = mapping.shares(cluster)
    return Ends([_end(mapping, number, share) for share in shares], mapping.is_drawn(cluster))


def _end(mapping: Mapping, number: int, share: Share) -> End:
    def state(fate: Fate, reason: str | None = None) -> State:
        return State(fate, reason, mapping.source, share.destination, number)

    if share.destination is None:
        return End(state(Fate.LOST), None, share.below)
    if share.transform is None:
        return End(state(Fate.INVALID, EMPTY_DESTINATION), None, share.below)
    tokens = share.transform.tokens
    if not share.transform.can_make_empty_token:
        return End(state(Fate.MAPPED), tokens, share.below)
    failed = state(Fate.INVALID, EMPTY_RESULT)
    return End(state(Fate.MAPPED), tokens, share.below, Check.NO_EMPTY_TOKEN, failed)


def _uncut(ends: Ends) -> Ends:
    """The ends for a subject that is not split, so that there are no tokens to hash or to copy."""

    def tokens(given: Sequence[Token] | None) -> Sequence[Token] | None:
        return given and [
            Literal(token.evaluate((), None)) if isinstance(token, Partition | Tail) else token
            for token in given
        ]

    return replace(ends, ends=[replace(end, tokens=tokens(end.tokens)) for end in ends.ends])
