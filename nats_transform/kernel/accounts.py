"""The rules of account mappings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nats_transform.functions import Literal, Partition, Token
from nats_transform.kernel.filters import Pattern
from nats_transform.kernel.program import Program
from nats_transform.kernel.rules import WHOLE_SUBJECT, Check, End, Ends, Rule, State
from nats_transform.mapping import (
    EMPTY_DESTINATION,
    EMPTY_RESULT,
    AccountMappings,
    Fate,
    Mapping,
    Share,
)


def compile_mappings(mappings: AccountMappings, seed: int = 0) -> Program:
    """The program that does to a column of subjects what `AccountMappings.replay` does to one.

    Args:
        mappings: of one account; `State.rule` is the place of a mapping in `mappings.mappings`.
        seed: the seed of the run, which decides the draws.

    Raises:
        NatsTransformError: a text of the mappings cannot be encoded.
    """
    return Program(list(_rules(mappings)), End(State(Fate.UNMATCHED), WHOLE_SUBJECT), seed=seed)


def _rules(mappings: AccountMappings) -> Iterator[Rule]:
    for number, mapping in enumerate(mappings.mappings):
        rule = Rule(
            Pattern.of_source(mapping.filter),
            mapping.source,
            _ends(mapping, number, None),
            {cluster: _ends(mapping, number, cluster) for cluster in mapping.clusters},
        )
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
    """The ends where `partition` has no tokens to hash."""

    def tokens(given: Sequence[Token] | None) -> Sequence[Token] | None:
        return given and [
            Literal(token.evaluate((), None)) if isinstance(token, Partition) else token
            for token in given
        ]

    return replace(ends, ends=[replace(end, tokens=tokens(end.tokens)) for end in ends.ends])
