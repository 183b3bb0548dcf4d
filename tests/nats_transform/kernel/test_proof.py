"""The second opinion on outcomes: what the scalar library makes is right, all else is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from nats_transform import Outcome
from nats_transform.kernel.proof import IS_ILLEGAL, IS_SAME, Opinion, Proof
from nats_transform.mappings.functions import fnv1a
from nats_transform.mappings.subject import encode, literal_fault
from tests.nats_transform.kernel import generate
from tests.nats_transform.kernel.comparing import LAYOUTS, Message, texts
from tests.support import rules

SOME = pytest.param(10_000, id="some")
MANY = pytest.param(250_000, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(1800)])


def judge(
    proof: Proof, messages: Sequence[Message], mapped: Sequence[str | None], layout: str = "string"
) -> Opinion:
    text = LAYOUTS[layout]
    columns = {
        "subject": text([m.subject for m in messages]),
        "cluster": text([m.cluster for m in messages]),
        "stream": text([m.stream for m in messages]),
        "seq": pa.array([m.seq for m in messages], pa.int64()),
        "mapped_subject": texts(mapped),
    }
    return proof.judge(pa.RecordBatch.from_pydict(columns))


def outcomes(proof: Proof, opinion: Opinion, mapped: Sequence[str | None]) -> list[Outcome]:
    """The outcomes that an opinion describes, of rows whose new subjects are right."""
    assert (opinion.marks & IS_SAME).all()
    states = [proof.states[number] for number in opinion.states.tolist()]
    return [
        Outcome(subject, s.fate, s.source, s.destination, None if draw < 0 else draw, s.reason)
        for subject, s, draw in zip(mapped, states, opinion.draws.tolist(), strict=True)
    ]


@pytest.mark.parametrize("wanted", [SOME, MANY])
def test_generated(wanted: int, seed: int) -> None:
    random = Random(seed)
    seen = 0
    while seen < wanted:
        mappings = generate.account(random)
        messages = generate.messages(random, [m.source for m in mappings.mappings], 100)
        of_run = random.choice(generate.SEEDS)
        expected = [
            mappings.replay(m.subject, m.cluster, stream=m.stream, seq=m.seq, seed=of_run)
            for m in messages
        ]
        mapped = [outcome.subject for outcome in expected]
        proof = Proof(mappings, of_run)
        opinion = judge(proof, messages, mapped, random.choice(list(LAYOUTS)))
        assert outcomes(proof, opinion, mapped) == expected, (mappings, messages, of_run)
        illegal = [subject is not None and bool(literal_fault(subject)) for subject in mapped]
        assert ((opinion.marks & IS_ILLEGAL) > 0).tolist() == illegal
        # Any other subject is wrong in each row, and changes nothing else.
        other = [changed(random, subject) for subject in mapped]
        wrong = judge(proof, messages, other)
        assert not (wrong.marks & IS_SAME).any(), (mappings, messages, other)
        assert np.array_equal(wrong.states, opinion.states)
        assert np.array_equal(wrong.draws, opinion.draws)
        seen += len(messages)


def changed(random: Random, subject: str | None) -> str | None:
    if subject is None:
        return random.choice(["", "a.b"])
    place = random.randrange(len(subject) + 1)
    return random.choice(
        [
            None,
            subject[:place] + random.choice(["x", ".", "é"]) + subject[place:],
            subject[:place] + subject[place + 1 :] + ("" if place < len(subject) else "y"),
        ]
    )


def test_hashes_are_those_of_keys() -> None:
    mappings = rules.mappings(
        {
            "whole": "w.{{partition(5)}}",
            "a.*.*": "a.{{partition(7,2,1)}}.{{partition(3,1)}}",
            "b.>": "b.{{partition(0)}}.>",
            "c.*": "d.$1",
        }
    )
    keys = {"whole": "", "a.x.yz": "yzx", "b.c.d": "b.c.d", "c.x": None, "e": None}
    messages = [Message(subject) for subject in keys]
    mapped = [mappings.replay(s, None, stream="S", seq=1).subject for s in keys]
    opinion = judge(Proof(mappings), messages, mapped)
    expected = [0 if key is None else fnv1a(encode(key)) for key in keys.values()]
    assert opinion.hashes.tolist() == expected
    assert (opinion.marks == IS_SAME).all()


def test_many_rules_that_look_alike() -> None:
    """Sources that share beginnings, in all orders: the first that covers a subject counts."""
    random = Random(3)
    sources = [*map(".".join, product("ab*", "xy*", "1*>"))]
    messages = [Message(f"{a}.{b}.{c}") for a in "abc" for b in "xyz" for c in ("1", "2", "1.2")]
    for _ in range(50):
        random.shuffle(sources)
        mappings = rules.mappings({s: "m.>" if s[-1] == ">" else "m" for s in sources})
        proof = Proof(mappings)
        expected = [mappings.replay(m.subject, None, stream="S", seq=1) for m in messages]
        mapped = [outcome.subject for outcome in expected]
        assert outcomes(proof, judge(proof, messages, mapped), mapped) == expected
