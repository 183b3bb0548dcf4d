"""Random mappings, streams and messages, hostile ones among them: scalar = kernel."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.nats_transform.kernel import generate
from tests.nats_transform.kernel.comparing import (
    LAYOUTS,
    Case,
    compare,
    ingress_case,
    mappings_case,
    republish_case,
    take_case,
)

SOME = pytest.param(10_000, id="some")
MANY = pytest.param(250_000, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(1800)])
BATCH = 100


def account_cases(random: Random) -> Iterator[Case]:
    while True:
        mappings = generate.account(random)
        messages = generate.messages(random, [m.source for m in mappings.mappings], BATCH)
        yield mappings_case(mappings, messages, random.choice(generate.SEEDS))


def stream_cases(random: Random) -> Iterator[Case]:
    while True:
        seed = random.choice(generate.SEEDS)
        source = generate.stream_source(random)
        filters = [one.source for one in source.filters]
        yield take_case(source, generate.messages(random, filters, BATCH), seed)
        config = generate.stream(random)
        if config is None:
            continue
        pairs = [pair for pair in (config.subject_transform, config.republish) if pair]
        messages = generate.messages(random, [pair.source for pair in pairs], BATCH)
        yield ingress_case(config, messages, seed)
        yield republish_case(config, messages, seed)


@pytest.mark.parametrize("wanted", [SOME, MANY])
@pytest.mark.parametrize("cases", [account_cases, stream_cases])
def test_generated(cases: type[Iterator[Case]], wanted: int, seed: int) -> None:
    random = Random(seed)
    seen = 0
    for case in cases(random):
        seen += compare(case, text=LAYOUTS[random.choice(list(LAYOUTS))])
        if seen >= wanted:
            break
