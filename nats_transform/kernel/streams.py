"""The rules by which a stream takes, stores and republishes subjects."""

from __future__ import annotations

from nats_transform.kernel.filters import Pattern
from nats_transform.kernel.program import Program
from nats_transform.kernel.rules import WHOLE_SUBJECT, Check, End, Ends, Rule, State
from nats_transform.mappings.mapping import Fate
from nats_transform.mappings.transform import Transform
from nats_transform.streams.source import StreamSource
from nats_transform.streams.stream import INGRESS, REPUBLISH, UNPUBLISHABLE, StreamConfig

_UNMATCHED = End(State(Fate.UNMATCHED), WHOLE_SUBJECT)
_FILTERED = End(State(Fate.FILTERED))


def compile_ingress(config: StreamConfig, seed: int = 0) -> Program:
    """The program that does for a column of subjects what `StreamConfig.replay` does for one.

    Args:
        config: the configuration of the stream that the messages reach.
        seed: the seed of the run.

    Raises:
        NatsTransformError: a text of the configuration cannot be encoded.
    """
    transform = config.ingress_transform
    rules = [] if transform is None else [_rule(transform, INGRESS)]
    return Program(rules, _UNMATCHED, seed=seed)


def compile_republish(config: StreamConfig, seed: int = 0) -> Program:
    """The program that does what `StreamConfig.replay_republish` does.

    Args:
        config: the configuration of the stream that stores the messages.
        seed: the seed of the run.

    Raises:
        NatsTransformError: a text of the configuration cannot be encoded.
    """
    transform = config.republish_transform
    if transform is None:
        return Program([], _FILTERED, seed=seed)
    failed = State(Fate.INVALID, UNPUBLISHABLE, transform.source, transform.destination, 0)
    rule = _rule(transform, REPUBLISH, check=Check.PUBLISHABLE, failed=failed)
    return Program([rule], _FILTERED, seed=seed)


def compile_take(source: StreamSource, seed: int = 0) -> Program:
    """The program that does what `StreamSource.replay` does; `State.rule` counts `source.filters`.

    Args:
        source: one of a stream's `sources`, or its `mirror`.
        seed: the seed of the run.

    Raises:
        NatsTransformError: a text of the configuration cannot be encoded.
    """
    if not source.filters or source.takes_nothing:
        return Program([], _FILTERED if source.filters else _UNMATCHED, seed=seed)
    rules: list[Rule] = []
    takers: list[tuple[Pattern, int]] = []
    for number, taken in enumerate(source.filters):
        if source.consumer is not None and taken.transform is None:
            continue  # the consumer filters, not this
        state = State(Fate.MAPPED, None, taken.source, taken.destination, number)
        tokens = taken.transform.tokens if taken.transform else WHOLE_SUBJECT
        # If filters cross, one may take a message and another one, with a destination, rename it.
        pattern = Pattern.of_source(taken.filter) if taken.transform else None
        rules.append(Rule(pattern, source.place, Ends([End(state, tokens)])))
        takers.append((Pattern.of_subscription(taken.filter), number))
    if source.consumer is not None:
        return Program(rules, _UNMATCHED, seed=seed)
    return Program(rules, _FILTERED, takers=takers, seed=seed)


def _rule(
    transform: Transform, place: str, check: Check = Check.ANY_RESULT, failed: State | None = None
) -> Rule:
    state = State(Fate.MAPPED, None, transform.source, transform.destination, 0)
    end = End(state, transform.tokens, check=check, failed=failed)
    return Rule(Pattern.of_source(transform.filter), place, Ends([end]))
