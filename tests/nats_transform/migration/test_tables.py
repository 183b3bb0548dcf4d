"""A dry run over tables finds what the scalar library finds, subject by subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

from nats_transform import (
    AccountMappings,
    Destination,
    InvalidStream,
    Mapping,
    NatsTransformError,
    StreamConfig,
)
from nats_transform.accounts.sharing import SharedStream
from nats_transform.config.permissions import Allowance, User
from nats_transform.errors import shown
from nats_transform.mappings.subject import encode, subscribes
from nats_transform.mappings.symbolic import filter_of_results, reversed_mappings
from nats_transform.mappings.unresolved import numbered
from nats_transform.migration import DryRun, Question
from nats_transform.migration.layers import layers
from nats_transform.migration.tables.texts import MOST_BYTES
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.stream import parse_stream
from tests.nats_transform.kernel import generate
from tests.support.dry_runs import CensusRow, of_question
from tests.support.rules import mappings
from tests.support.scalar import Mapped, Oracle, facts_of, findings

FEW = ["a", "b", "c", "a-b", "--a"]
FEATURES = ["allow_msg_counter", "allow_msg_schedules", "allow_atomic"]
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


def network(
    random: Random, filters: Sequence[str], back: Sequence[Mapping] = ()
) -> list[StreamConfig]:
    """Streams that take the subjects, rename them, and feed each other."""
    found: dict[str, StreamConfig] = {}
    features = Random(str(filters))  # of its own, so that known seeds draw what they drew
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
        config |= features.choice([{}, *({name: True} for name in FEATURES)])
        if back and features.random() < 0.4:
            undone = features.choice(back)
            dest = undone.destinations[0].subject
            config["subject_transform"] = {"src": undone.source, "dest": dest}
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
        filter_of_results(transform)
        for mappings in (candidate, current)
        for mapping in mappings.mappings
        for transform in mapping.transforms
    ]
    filters = [">", *(m.source for m in candidate.mappings), *results, generate.source(random)]
    back = reversed_mappings(candidate.mappings).mappings
    streams = network(random, filters, back) if random.random() < 0.8 else []

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
            dict.fromkeys(
                SharedStream(random.choice(filters), random.choice([None, "B", "C"]))
                for _ in range(random.randint(0, 3))
            )
        ),
    )


def chosen(random: Random, mappings: AccountMappings, row: CensusRow) -> str | None:
    """A destination that messages can draw."""
    found = mappings.outcomes(row.subject or "", row.cluster)
    return random.choice([outcome.mapping_destination for outcome, _ in found])


def census(random: Random, asked: Question) -> list[CensusRow]:
    sources = [m.source for of in (asked.candidate, asked.current) for m in of.mappings]
    subjects = [generate.subject(random, sources) for _ in range(random.randint(1, 60))]
    if isinstance(random, Dense):
        subjects = [*subjects[:5], *alike_subjects(random, sources)]
    subjects += [one.swapcase() for one in subjects if one and random.random() < 0.05]
    is_drawn = random.random() < 0.3
    found = []
    for subject in subjects:
        for _ in range(random.choice([1, 1, 2, 3])):
            row = CensusRow(
                subject, random.choice(generate.CLUSTERS), random.choice([1, 1, 2, 99, 1000]), 7
            )
            row = row._replace(carries=random.choice([None, "", "id", "condition id"]))
            kinds = ["", " batch", " counter"]
            row = row._replace(carries=row.carries and row.carries + kinds[len(subject or "") % 3])
            if is_drawn:
                before, after = (chosen(random, of, row) for of in (asked.current, asked.candidate))
                row = row._replace(chosen=(before, after))
            found.append(row)
    return found


def together(rows: Sequence[CensusRow]) -> list[CensusRow]:
    """One row for each subject, cluster, pair of draws and what headers hold on to."""
    found: dict[Any, CensusRow] = {}
    for row in rows:
        key = (row.subject, row.cluster, row.chosen, row.carries)
        known = found.get(key)
        more = 0 if known is None else known.messages
        found[key] = row._replace(messages=row.messages + more)
    return list(found.values())


def sure(rows: Sequence[CensusRow], asked: Question) -> list[CensusRow]:
    """The rows of which streams, consumers, users and limits treat each `random()` number alike.

    Of the others a dry run takes the worst number; `tests/cases/dry_run.yaml` has examples, and
    only their results are compared here.
    """
    questions = [asked, *layers(asked).questions.values()]
    filters = {filter for one in questions for _, filter in one.filters}
    names = {token for filter in filters for token in filter.split(".")}
    sides = Mapped(asked.current), Mapped(asked.candidate)

    def looks(subject: str) -> frozenset[str]:
        return frozenset(filter for filter in filters if subscribes(filter, subject))

    def seen(subject: str) -> object:
        facts = [facts_of(one.network, subject) for one in questions]
        stored = {
            (number, name, looks(text or subject))
            for number, fact in enumerate(facts)
            for name, text in fact.stored
        }
        others = [replace(fact, stored=frozenset()) for fact in facts]
        return looks(subject), stored, others, len(encode(subject)) > MOST_BYTES

    def is_sure(row: CensusRow) -> bool:
        results = {end.subject or "" for n, of in enumerate(sides) for end, _ in of.ends(row, n)}
        return all(
            seen(number) == seen(result)
            for result in results
            if "{{random(" in result
            for number in numbered(result, names)
        )

    return list(filter(is_sure, rows))


def compare(random: Random) -> None:
    """Compares a random question about a random census."""
    asked = question(random)
    rows = together(census(random, asked))
    certain = sure(rows, asked)
    compare_on(certain, asked)
    if len(certain) < len(rows):
        compare_results(rows, of_question(rows, asked), Oracle(rows, asked))


def compare_results(rows: Sequence[CensusRow], found: DryRun, oracle: Oracle) -> None:
    """Compares what mappings make of the rows, whoever gets it."""
    total = sum(row.messages for row in rows)
    assert found.messages == total
    assert found.subjects == len({row.subject for row in rows})
    assert found.clusters == tuple(sorted(name for name in oracle.clusters if name))
    assert (found.changed_messages, found.changed_subjects) == oracle.changed.numbers
    assert [found.subjects_before, found.subjects_after] == [*map(len, oracle.results)]
    for fates, wanted in zip((found.fates_before, found.fates_after), oracle.fates, strict=True):
        assert fates == {fate: parts / 100 for fate, parts in wanted.items() if parts}
    assert {(f.before, f.after): f.messages for f in found.flows} == {
        way: parts / 100 for way, parts in oracle.flows.items()
    }
    told = {(c.before, c.after): (c.messages, c.subjects) for c in found.changes}
    assert told == {
        (_rule(before), _rule(after)): tally.numbers
        for (before, after), tally in oracle.changes.items()
    }
    for number, level in enumerate(found.levels):
        for values, results in zip((level.before, level.after), oracle.results, strict=True):
            tokens = (result.split(".") for result in results)
            assert values == len({one[number] for one in tokens if len(one) > number})
    for balance in found.partitions:
        keys = next(
            keys
            for (source, destination, _), keys in oracle.keys.items()
            if (source, destination) == (balance.source, balance.destination)
        )
        sums = [0.0] * balance.partitions
        for (_, hash_), parts in keys.items():
            sums[hash_ % balance.partitions] += parts
        assert balance.counts == tuple(parts / 100 for parts in sums)
        assert balance.keys == len(keys)
        largest = sorted(keys.values(), reverse=True)[:5]
        assert [parts for *_, parts in balance.largest] == [parts / 100 for parts in largest]


def compare_on(rows: Sequence[CensusRow], asked: Question) -> set[str]:
    """Compares the counts of a dry run with the scalar ones; returns the codes that were found."""
    found, oracle = of_question(rows, asked), Oracle(rows, asked)
    compare_results(rows, found, oracle)
    assert findings(oracle) == Counter(
        (one.code, one.about, one.messages, one.subjects)
        for one in found.findings
        if one.subjects and not one.code.startswith(("check-", "cluster-", "rule-", "collision"))
    )
    collided = Counter[bool]()
    for (is_new, *_), subjects in oracle.collisions().items():
        collided[is_new] += subjects
    for code, is_new in (("collision", True), ("collision-already", False)):
        merged = [one for one in found.findings if one.code == code]
        assert sum(one.subjects for one in merged) == collided[is_new]
    rules = {one.about: one for one in found.findings if one.code == "rule-overlap"}
    for (code, about), tally in oracle.tallies.items():
        if code == "pair" and ("hit", about[1]) in oracle.tallies:  # type: ignore[index]
            assert f"mapping {shown(asked.candidate.mappings[about[0]].source)}" in rules  # type: ignore[index]
            assert tally.parts
    for layer, one in layers(asked).questions.items():
        wanted = findings(Oracle(rows, one))
        for it in found.with_room:
            if it.layer is layer and it.subjects:
                assert (it.code, it.about, it.messages, it.subjects) in wanted
    return {finding.code for finding in found.findings}


def _rule(rule: tuple[str, str | None] | None) -> str | None:
    if rule is None:
        return None
    source, destination = rule
    if destination == source:
        return f"{shown(source)}, which keeps the subject"
    return f"{shown(source)} -> {'nobody' if destination is None else shown(destination)}"


SOME = pytest.param(4, id="some")
MANY = pytest.param(700, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(10800)])


@pytest.mark.parametrize("count", [SOME, MANY])
@pytest.mark.parametrize("kind", [Random, Dense, Tiny])
def test_scenarios(kind: type[Random], count: int, seed: int) -> None:
    for number in range(count):
        compare(kind(seed + number))


@pytest.mark.parametrize("number", [102, 144, 157])
def test_results_that_are_now_and_then_the_subject(number: int) -> None:
    compare(Tiny(number))


def test_a_stream_that_stores_a_message_under_two_names() -> None:
    compare(Dense(2_513_664_369))


# What would act in a query, a pattern, a format or a terminal, if it were not data.
TEXTS = [
    *("'", '"', "';DROP/**/TABLE/**/outcomes;--", "')OR('1'='1", "$1", "?", "%s", "{}", "{{x}}x"),
    *("\x00", "\x1b[31m", "\x7f", "\\", "\udcff", "\udced\udca0\udc80", "NULL", "x" * 4096, "日本"),
]


def test_hostile_texts_are_data() -> None:
    """In subjects, clusters, mappings, and the names of streams, consumers, users and accounts."""

    def moved(to: str) -> AccountMappings:
        # As a destination `$1` would be a wildcard.
        pairs = [(f"a.{text}.*", f"{to}.{text}.$1") for text in TEXTS if text != "$1"]
        return mappings({old: [(new, 60), ("c.$1", 40)] for old, new in pairs})

    rows = [
        CensusRow(f"a.{text}.{TEXTS[n - 1]}", TEXTS[n - 2], 3 + n, 7)
        for n, text in enumerate(TEXTS)
    ]
    name = "';DROP--\x1b"
    streams = (
        parse_stream({"name": name, "subjects": ["b.>", "c.*"], "max_msgs_per_subject": 1}),
        parse_stream({"name": f"{name}2", "subjects": [f"a.{TEXTS[2]}.*"]}),
    )
    asked = Question(
        moved("b"),
        moved("a"),
        streams,
        (Consumer(name, name, ("b.'.*",)),),
        (User(name, Allowance(("b.>",), (f"b.{TEXTS[2]}.>",)), Allowance()),),
        (),
        (SharedStream("a.'.*", name),),
    )
    codes = compare_on(together(rows), asked)
    assert {"publish-opened", "consumer-more", "import-none", "captured-elsewhere"} <= codes


@pytest.mark.parametrize("places", [(7, 15), (3, 11), (0, 8), (5, 13)])
def test_names_of_one_width_are_different_subjects(places: tuple[int, int]) -> None:
    """DuckDB's own hash often is the same for texts that differ every eight bytes."""
    names = []
    for pair in product(map(str, range(10)), repeat=2):
        name = list("device-0-in-hall-00")
        for place, digit in zip(places, pair, strict=True):
            name[place] = digit
        names.append("".join(name))
    rows = [CensusRow(f"fleet.{name}.a", None, 1, 0) for name in names]
    # A result does not say what the last token was, so all of them are compared.
    found = of_question(rows, Question(mappings({"fleet.*.*": "$1"}), mappings({})))
    assert found.subjects_after == len(names)
    assert "collision" not in {one.code for one in found.findings}
