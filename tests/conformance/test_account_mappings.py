"""Account mappings: what a real nats-server delivers is what `AccountMappings` says."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from nats_transform import (
    AccountMappings,
    Destination,
    Fate,
    InvalidConfig,
    InvalidTransform,
    Mapping,
    load,
)
from nats_transform.mappings.subject import literal_fault
from tests import cases
from tests.conformance.client import Client
from tests.conformance.generate import Generator, agrees
from tests.nats_transform.mappings.test_mapping import end_of
from tests.support.files import written
from tests.support.refused import refused
from tests.support.server_check import checked

pytestmark = pytest.mark.server

ACCOUNTS = 180
SUBJECTS = 10
# Each frequency may stray this many standard deviations: one false alarm in millions.
SIGMAS = 5.5


def serving(
    accounts: Sequence[AccountMappings], cluster: str | None = None
) -> AbstractContextManager[NatsServer]:
    """A server with one account for each set of mappings, A0, A1 and so on, with a user alike."""
    lines = [f"server_name: {cluster}", f"cluster {{ name: {cluster} }}"] if cluster else []
    lines.append("accounts {")
    for number, account in enumerate(accounts):
        entries = ", ".join(
            f"{quoted(m.source)}: [{', '.join(map(_destination, m.destinations))}]"
            for m in account.mappings
        )
        user = f"users: [{{user: A{number}, password: secret}}]"
        lines.append(f"  A{number} {{ {user}, mappings {{ {entries} }} }}")
    lines.append("}")
    return nats_server("\n".join(lines))


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _destination(destination: Destination) -> str:
    cluster = f", cluster: {quoted(destination.cluster)}" if destination.cluster else ""
    return f"{{destination: {quoted(destination.subject)}, weight: {destination.weight}{cluster}}}"


def delivered(server: NatsServer, number: int, subjects: Sequence[str]) -> list[str | None]:
    """The subject under which an account delivers each published subject, or None."""
    with Client(server.url, f"A{number}") as client:
        return client.through(client, subjects)


def allowed(account: AccountMappings, subject: str, got: str | None) -> bool:
    """Whether a delivery is one that we say is possible."""
    # The server tries the mappings of an account in random order, which shows only where a literal
    # source stands first.
    return any(
        outcome.subject is got
        if outcome.subject is None or got is None
        else agrees(outcome.subject, got)
        for first in account.mappings
        for outcome, _ in AccountMappings(
            [first, *(mapping for mapping in account.mappings if mapping is not first)]
        ).outcomes(subject)
    )


def _account(generator: Generator) -> AccountMappings:
    """One mapping of any shape, or several that do not overlap."""
    count = generator.choice([1, 1, 1, 2, 4])
    mappings = []
    while len(mappings) < count:
        first = "" if count == 1 else f"m{len(mappings)}."
        transform = generator.transform()
        source = first + transform.source
        # The numbers of wildcards stay the same behind a literal token.
        try:
            mappings.append(Mapping(source, [Destination(transform.destination)]))
        except InvalidTransform:
            continue
    return AccountMappings(mappings)


def test_generated_mappings(seed: int) -> None:
    generator = Generator(seed)
    accounts = [_account(generator) for _ in range(ACCOUNTS)]
    differences = []
    with serving(accounts) as server:
        for number, account in enumerate(accounts):
            subjects = [
                generator.subject(generator.choice(account.mappings).source)
                for _ in range(SUBJECTS)
            ]
            subjects = [subject for subject in subjects if literal_fault(subject) is None]
            for subject, got in zip(subjects, delivered(server, number, subjects), strict=True):
                if not allowed(account, subject, got):
                    ours = account.apply(subject)
                    differences.append(f"{account.match(subject)}: {subject!r}: {got!r}, {ours}")
    assert not differences, "\n".join(differences)


def test_every_row_of_the_table_of_transforms() -> None:
    rows = [
        case
        for case in cases.transforms()
        if case.error is None
        and not case.strict
        and case.source
        and literal_fault(case.subject) is None
    ]
    accounts = [
        AccountMappings([Mapping(case.source, [Destination(case.destination)])]) for case in rows
    ]
    differences = []
    with serving(accounts) as server:
        for number, case in enumerate(rows):
            (got,) = delivered(server, number, [case.subject])
            if not allowed(accounts[number], case.subject, got):
                differences.append(f"{case}: {got!r}")
    assert not differences, "\n".join(differences)


CLUSTERS = sorted({case.get("cluster") or "" for case in cases.load("mappings.yaml")})


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda name: name or "no-cluster")
def test_every_row_of_the_table_of_weights(cluster: str) -> None:
    rows = [
        case
        for case in cases.load("mappings.yaml")
        if (case.get("cluster") or "") == cluster and "error" not in case
    ]
    accounts = [cases.account(case["mappings"]) for case in rows]
    with serving(accounts, cluster or None) as server:
        for number, case in enumerate(rows):
            _compare_frequencies(case["outcomes"], server, number, case["subject"])


def test_generated_weights(seed: int) -> None:
    generator = Generator(seed)
    mappings = [_weighted(generator) for _ in range(16)]
    accounts = [AccountMappings([mapping]) for mapping in mappings]
    with serving(accounts, "west") as server:
        for number, account in enumerate(accounts):
            exact: Counter[str] = Counter()
            for outcome, percent in account.outcomes("a.b", "west"):
                exact[end_of(outcome)] += percent
            _compare_frequencies(exact, server, number, "a.b")


def _weighted(generator: Generator) -> Mapping:
    source = generator.choice(["a.b", "a.*", "*.*", "a.>"])
    tail = ".>" if source.endswith(">") else ""
    destinations = [
        Destination(f"d{number}{tail}", generator.choice([0, 1, 5, 10, 20, 25]), cluster)
        for number, cluster in enumerate(
            generator.choices([None, "west", "east"], k=generator.randint(1, 6))
        )
    ]
    if "*" not in source and generator.random() < 0.4:
        destinations.append(Destination(source, 3, generator.choice([None, "west", "east"])))
    totals: dict[str | None, int] = defaultdict(int)
    kept = []
    for destination in destinations:
        if totals[destination.cluster] + destination.weight <= 100:
            totals[destination.cluster] += destination.weight
            kept.append(destination)
    return Mapping(source, kept)


def _compare_frequencies(
    exact: dict[str, Any], server: NatsServer, number: int, subject: str
) -> None:
    count = 2000
    seen = Counter(delivered(server, number, [subject] * count))
    nobody = sum(exact.get(fate, 0) for fate in (Fate.LOST, Fate.INVALID))
    expected = {end: p for end, p in exact.items() if p and end not in {Fate.LOST, Fate.INVALID}}
    assert set(seen) - {None} <= set(expected)
    for end, percent in [*expected.items(), (None, nobody)]:
        share = percent / 100
        slack = SIGMAS * (count * share * (1 - share)) ** 0.5
        assert abs(seen[end] - count * share) <= slack, f"{subject} -> {end}: {seen}, {exact}"


@pytest.mark.parametrize(
    ("east", "west", "reason"),
    [
        ("b.$1", "b.$1", "destination-twice-rewrite"),
        ("b.$1", "b.{{wildcard(1)}}", None),
        ("b", "b", "destination-twice-elsewhere"),
    ],
)
def test_the_cluster_does_not_make_a_destination_another_one(
    east: str, west: str, reason: str | None, tmp_path: Path
) -> None:
    entries = (
        f'{{destination: "{subject}", weight: 100, cluster: {cluster}}}'
        for cluster, subject in (("east", east), ("west", west))
    )
    text = f'mappings {{ "a.*": [ {", ".join(entries)} ] }}'
    config = written(tmp_path / "server.conf", text)
    is_taken, said = checked(config)
    assert is_taken == (reason is None)
    if reason is None:
        assert load(config)
        return
    assert "duplicate entry" in said
    with refused(InvalidConfig, "refused", reason=reason):
        load(config)
