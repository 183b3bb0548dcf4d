"""A dry run by the kernel finds what the scalar code finds, subject by subject."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import fields
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nats_transform import (
    AccountMappings,
    Destination,
    InvalidStream,
    Mapping,
    NatsTransformError,
    StreamConfig,
)
from nats_transform.consumer import Consumer
from nats_transform.migration import Allowance, CensusRow, Question, User
from nats_transform.migration import rows as rows_module
from nats_transform.migration.columns import Part, added_up, alike, dry_run_of_columns
from nats_transform.sharing import SharedStream
from nats_transform.stream import parse_stream
from nats_transform.subject import encode
from tests.nats_transform.kernel import generate
from tests.support.scalar import dry_run

FEW = ["a", "b", "c", "a-b", "--a"]
ALIKE = [*(f"k{number}" for number in range(30)), *FEW, "x y", "{{random(3)}}"]


class Dense(Random):
    """Few different tokens, so that subjects meet and are alike."""

    def choice(self, seq: Any) -> Any:
        if seq is generate.PLAIN or seq is generate.HOSTILE:
            seq = FEW
        if seq is generate.CLUSTERS:
            seq = [None, "east"]
        return super().choice(seq)


class Tiny(Dense):
    """Hardly any different tokens, so that results are equal to each other and to the subjects."""


def tiny_account(random: Random) -> AccountMappings:
    """Few mappings that move few tokens."""
    found = []
    for source in random.sample(["a.*", "*.b", "*.*", "*.*.*", "a.>", "*", "a"], 3):
        wild = min(2, source.count("*"))
        parts = ["a", "b", *(["$1", f"${wild}", f"{{{{partition(2,{wild})}}}}"] if wild else [])]
        made = {
            ".".join(
                [*random.choices(parts, k=random.randint(1, 3)), *[">"] * source.endswith(">")]
            )
            for _ in range(random.randint(1, 2))
        }
        weight = random.choice([50, 100]) // len(made)
        found.append(Mapping(source, [Destination(one, weight) for one in sorted(made)]))
    return AccountMappings(found)


def alike_subjects(random: Random, sources: Sequence[str]) -> list[str | None]:
    """Subjects under few of the sources, which differ in what stands for the wildcards."""
    templates = [random.choice([*sources, "*.*"]) for _ in range(3)]
    found: list[str | None] = []
    for _ in range(random.randint(20, 150)):
        template = random.choice(templates).replace(">", random.choice([">", ">.>"]))
        names = ["a", "b", "k1", "k2", "k3"] if isinstance(random, Tiny) else ALIKE
        parts = (random.choice(names) if p in "*>" else p for p in template.split("."))
        found.append(".".join(parts))
    return found


def network(random: Random, filters: Sequence[str]) -> list[StreamConfig]:
    """Streams that take the subjects, rename them, and feed each other."""
    found: dict[str, StreamConfig] = {}
    for name in "ABCD"[: random.randint(1, 4)]:
        config: dict[str, Any] = {"name": name, "no_ack": True}
        if random.random() < 0.7:
            config["subjects"] = [random.choice(filters) for _ in range(random.randint(1, 3))]
        others = list(found)
        if others and random.random() < 0.5:
            source = generate.stream_source(random)
            given = source.model_dump(
                by_alias=True, include={"filter_subject", "subject_transforms"}
            )
            config["sources"] = [{**given, "name": random.choice(others)}]
        elif others and "subjects" not in config:
            config["mirror"] = {"name": random.choice(others)}
        for field in ("subject_transform", "republish"):
            if random.random() < 0.4:
                filter = random.choice([">", random.choice(filters)])
                config[field] = {"src": filter, "dest": generate.destination(random, filter)}
        if random.random() < 0.5:
            config["max_msgs_per_subject"] = random.choice([1, 3, 50])
        if random.random() < 0.3:
            config |= {"discard": "new", "discard_new_per_subject": True}
        try:
            found[name] = parse_stream(config)
        except (InvalidStream, NatsTransformError):
            continue
    return list(found.values())


def question(random: Random) -> Question:
    candidate, other = generate.account(random), generate.account(random)
    if isinstance(random, Dense):
        candidate, other = (AccountMappings(of.mappings[:3]) for of in (candidate, other))
    if isinstance(random, Tiny):
        candidate, other = tiny_account(random), tiny_account(random)
    current = random.choice([AccountMappings(()), candidate, other])
    if random.random() < 0.5:
        # Nearly the same, as a change is.
        current = AccountMappings([*candidate.mappings[:-1], *current.mappings[:1]])
    results = [
        transform.filter_of_results
        for mappings in (candidate, current)
        for mapping in mappings.mappings
        for transform in mapping.transforms
    ]
    filters = [">", *(m.source for m in candidate.mappings), *results, generate.source(random)]
    streams = network(random, filters) if random.random() < 0.8 else []

    def some() -> tuple[str, ...]:
        return tuple(random.choice(filters) for _ in range(random.randint(0, 3)))

    return Question(
        candidate,
        current,
        tuple(streams),
        tuple(
            Consumer(random.choice(streams).name, f"c{n}", some())
            for n in range(random.randint(0, 3) if streams else 0)
        ),
        tuple(
            User(f"u{n}", Allowance(random.choice([None, some()]), some()), Allowance(some()))
            for n in range(random.randint(0, 2))
        ),
        tuple(random.choice([(), ("east", "west")])),
        tuple(
            SharedStream(random.choice(filters), random.choice([None, "B", "C"]))
            for _ in range(random.randint(0, 3))
        ),
    )


def chosen(random: Random, mappings: AccountMappings, row: CensusRow) -> str | None:
    """A destination that messages can draw."""
    found = mappings.outcomes(row.subject or "", row.cluster)
    return random.choice([outcome.mapping_destination for outcome, _ in found])


def census(random: Random, asked: Question) -> Part:
    sources = [m.source for of in (asked.candidate, asked.current) for m in of.mappings]
    subjects = [generate.subject(random, sources) for _ in range(random.randint(1, 60))]
    if isinstance(random, Dense):
        subjects = [*subjects[:5], *alike_subjects(random, sources)]
    is_drawn = random.random() < 0.3
    found = []
    for subject in subjects:
        for _ in range(random.choice([1, 1, 2, 3])):
            row = CensusRow(
                subject, random.choice(generate.CLUSTERS), random.choice([1, 1, 2, 99, 1000]), 7
            )
            if is_drawn:
                before, after = (chosen(random, of, row) for of in (asked.current, asked.candidate))
                row = row._replace(chosen=(before, after))
            found.append(row)
    columns = {
        "subject": [row.subject for row in found],
        "cluster": [row.cluster for row in found],
    }
    if is_drawn:
        columns["before"] = [row.chosen[0] if row.chosen else None for row in found]
        columns["after"] = [row.chosen[1] if row.chosen else None for row in found]
    table = pa.table(
        {
            name: pa.array([None if v is None else encode(v) for v in values], pa.binary())
            for name, values in columns.items()
        }
        | {"messages": [row.messages for row in found], "bytes": [row.bytes for row in found]}
    )
    return added_up(table)


def scalar(part: Part, asked: Question) -> Any:
    firsts = part.firsts
    rows = part.of(firsts, np.diff(firsts, append=len(part.subjects)))
    return dry_run(
        list(rows),
        asked.candidate,
        asked.current,
        streams=asked.streams,
        consumers=asked.consumers,
        users=asked.users,
        clusters=asked.clusters,
        shared=asked.shared,
    )


def compare(random: Random) -> list[str]:
    asked = question(random)
    part = census(random, asked)
    wanted = scalar(part, asked)
    with io.BytesIO() as file:
        found = dry_run_of_columns([part], asked, file)
    for field in fields(found):
        assert getattr(found, field.name) == getattr(wanted, field.name), field.name
    return [finding.code for finding in found.findings]


SOME = pytest.param(4, id="some")
MANY = pytest.param(300, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("count", [SOME, MANY])
@pytest.mark.parametrize(("kind", "few"), [(Random, 0), (Dense, 0), (Dense, 4), (Tiny, 0)])
def test_scenarios(
    kind: type[Random], few: int, count: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alike, "_FEW", few)
    monkeypatch.setattr(rows_module, "MOST_IN_MEMORY", 500)
    for number in range(count):
        compare(kind(seed + number))


@pytest.mark.parametrize("number", [102, 144, 157])
def test_results_that_are_now_and_then_the_subject(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alike, "_FEW", 0)
    compare(Tiny(number))
