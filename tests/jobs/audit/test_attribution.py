"""Observed audits: what messages say of the mapping they went through, by their subject alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.result import AuditError, AuditResult
from jobs.settings.audit import Published
from jobs.settings.warehouse import Warehouse
from nats_transform import AccountMappings, Fate
from nats_transform.audit import MappingAudit, Verdict
from tests.jobs.audit import rehearsal
from tests.support.archive import archive, message
from tests.support.jobs import dumped, ingested
from tests.support.refused import refused
from tests.support.rules import mappings as account

START = datetime(2026, 3, 1, tzinfo=UTC)
MAPPINGS = account(
    {
        "shop.*.*": [("v1.$1.$2", 80), ("v2.{{partition(4,1)}}.$2", 20)],
        "t.>": [("u.>", 60), ("w.>", 30, "east")],
        "drop.*": [("kept.$1", 50), ("dropé.{{left(1,2)}}", 20)],
        "lose": [("keep", 30), ("lose", 10)],
        "twin.*": [("x.$1", 50), ("x.{{wildcard(1)}}", 50)],
        "plain.*": "kept.zz",
    }
)
SOURCES = ["shop.a{}.b{}", "t.{}", "drop.é{}", "lose", "twin.{}", "plain.{}", "other"]


def traffic(count: int = 10_000) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None, Any]]:
    """Messages as published, as they came out (None: lost), and what became of them."""
    rng = np.random.default_rng(1)
    draws = rng.integers(0, 100, count).tolist()
    for seq, draw in enumerate(draws, start=1):
        at = START + timedelta(hours=30) * (seq / count)
        subject = SOURCES[seq % len(SOURCES)].format(seq % 50, seq % 11)
        cluster = ("east", "west")[seq % 2]
        outcome = MAPPINGS.apply(subject, cluster, draw)
        out = None
        if outcome.subject is not None:
            out = message(seq, outcome.subject, at, stream="OUT", cluster=cluster)
        yield message(seq, subject, at, stream="IN", cluster=cluster), out, outcome


@pytest.fixture(scope="module")
def sent() -> list[tuple[dict[str, Any], dict[str, Any] | None, Any]]:
    return list(traffic())


@pytest.fixture(scope="module")
def warehouse(sent: Sequence[Any], tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Two streams: IN as published, OUT as it came out with a stranger's messages among it."""
    warehouse = Warehouse(dir=tmp_path_factory.mktemp("observed"))
    published = [before for before, _, _ in sent]
    came_out = [after for _, after, _ in sent if after is not None]
    strange = [
        message(10**6 + n, f"v2.2.b{n}", START, stream="OUT", cluster="east") for n in range(200)
    ]
    archive(warehouse, published + came_out + strange)
    return warehouse


def observe(warehouse: Warehouse, mappings: AccountMappings = MAPPINGS, **more: Any) -> AuditResult:
    return rehearsal.observe(warehouse, mappings, **more)


def rule_of(result: AuditResult, source: str, cluster: str | None) -> MappingAudit:
    (rule,) = (r for r in result.rules if (r.source, r.cluster) == (source, cluster))
    return rule


def test_messages_are_attributed_to_the_destination_that_made_them(
    warehouse: Warehouse, sent: Sequence[Any]
) -> None:
    result = observe(warehouse, key=2)
    truth = Counter(
        (outcome.mapping_source, before["cluster"], outcome.mapping_destination)
        for before, _, outcome in sent
    )
    for source in ("shop.*.*", "t.>"):
        for cluster in ("east", "west"):
            rule = rule_of(result, source, cluster)
            for end in rule.destinations:
                strange = 200 if (end.destination or "").startswith("v2") else 0
                wanted = truth[source, cluster, end.destination]
                assert end.count == wanted + (strange if cluster == "east" else 0)
                assert end.ambiguous == 0
    # kept.zz is what plain.* makes; of drop.* only kept.$1 can have made any other kept.
    drop = rule_of(result, "drop.*", "east")
    kept, cut, rest = (
        next(end for end in drop.destinations if (end.destination or "").startswith(name))
        for name in ("kept", "drop\u00e9", "drop.*")
    )
    assert kept.count == truth["drop.*", "east", "kept.$1"]
    assert kept.ambiguous == sum(
        outcome.mapping_source == "plain.*" and before["cluster"] == "east"
        for before, _, outcome in sent
    )
    assert cut.count == truth["drop.*", "east", cut.destination] > 0
    assert rest.count == truth["drop.*", "east", rest.destination] > 0
    assert drop.verdict is Verdict.UNDECIDED
    # Lost messages leave no trace: the weights are compared with the shares of the rest.
    lose = rule_of(result, "lose", "west")
    assert [(end.destination, end.expected) for end in lose.destinations] == [
        ("lose", 25),
        ("keep", 75),
    ]
    twin = rule_of(result, "twin.*", "east")
    assert (twin.messages, twin.verdict) == (0, Verdict.UNDECIDED)
    assert twin.ambiguous == sum(truth["twin.*", "east", d] for d in ("x.$1", "x.{{wildcard(1)}}"))
    assert result.fates["other"] == sum(outcome.fate is Fate.UNMATCHED for _, _, outcome in sent)
    assert sum(result.fates.values()) == result.messages
    assert any("of twin.* make the same subjects" in note for note in result.notes)
    assert any("other programs publish" in note for note in result.notes)
    (shop,) = (keys for keys in result.keys if keys.source == "shop.*.*")
    assert shop.keys == 200
    assert shop.split == 11


def test_a_configuration_that_was_not_in_force_is_outside(warehouse: Warehouse) -> None:
    wrong = account(
        {
            "shop.*.*": [("v1.$1.$2", 50), ("v2.{{partition(4,1)}}.$2", 50)],
            "t.>": [("u.>", 60, "east"), ("w.>", 30)],
        }
    )
    result = observe(warehouse, wrong)
    assert {(r.source, r.cluster): r.verdict for r in result.rules} == dict.fromkeys(
        [(s, c) for s in ("shop.*.*", "t.>") for c in ("east", "west")], Verdict.OUTSIDE
    )
    assert {end.end for end in rule_of(result, "t.>", "east").destinations} >= {"unlisted"}


def test_the_source_archive_shows_what_was_lost_and_who_else_publishes(
    warehouse: Warehouse, sent: Sequence[Any]
) -> None:
    result = observe(warehouse, source_stream="IN")
    lose = rule_of(result, "lose", "east")
    lost = lose.destinations[-1]
    assert (lost.end, lost.weight, lost.inferred) == ("lost", 60, True)
    assert lost.count == sum(
        outcome.fate is Fate.LOST and before["cluster"] == "east" for before, _, outcome in sent
    )
    shop = rule_of(result, "shop.*.*", "east")
    assert shop.verdict is Verdict.OUTSIDE
    assert "200 of " in (shop.cause or "")
    assert "were not published to the mapping" in (shop.cause or "")
    assert not any("other programs publish" in note for note in result.notes)


def test_another_publisher_is_ambiguous(warehouse: Warehouse) -> None:
    rule = rule_of(observe(warehouse, publishers=("v2.>",)), "shop.*.*", "east")
    canary, stable = rule.destinations
    assert (canary.count, stable.ambiguous) == (0, 0)
    assert rule.ambiguous == canary.ambiguous > 200
    assert rule.verdict is Verdict.UNDECIDED


def test_what_the_archive_does_not_capture(warehouse: Warehouse, sent: Sequence[Any]) -> None:
    captured = ("v2.>", "u.>", "w.>")
    result = observe(warehouse, captured=captured)
    shop = rule_of(result, "shop.*.*", "west")
    assert [end.destination for end in shop.destinations] == ["v2.{{partition(4,1)}}.$2"]
    assert shop.verdict is Verdict.UNDECIDED
    assert "only one destination" in shop.reason
    published = sum(
        outcome.mapping_source == "shop.*.*" and before["cluster"] == "west"
        for before, _, outcome in sent
    )
    counter = Published(source="shop.*.*", cluster="west", messages=published)
    shop = rule_of(observe(warehouse, captured=captured, published=(counter,)), "shop.*.*", "west")
    assert shop.messages == published
    assert shop.destinations[-1].inferred
    assert shop.destinations[-1].destination == "v1.$1.$2"


def test_days_that_were_never_ingested_are_named(tmp_path: Path) -> None:
    rows = [
        {"seq": seq, "subject": f"v1.a{seq}.b", "ts": (START + timedelta(hours=seq)).isoformat()}
        for seq in range(1, 101)
        if seq != 60  # of a day that is ingested
    ]
    dump = dumped(tmp_path / "dump.jsonl", rows)
    warehouse = Warehouse(dir=tmp_path / "warehouse")

    def notes(day: int) -> str:
        since = START + timedelta(days=day)
        ingested(warehouse, dump, "OUT", since=since, until=since + timedelta(days=1))
        return "; ".join(observe(warehouse).notes)

    assert "sequence" not in notes(0)
    assert "not looked at: 24 sequences of OUT between 24 and 47 (ingest" in notes(2)
    assert "sequence" not in notes(1)


def test_clear_messages(tmp_path: Path) -> None:
    warehouse = Warehouse(dir=tmp_path / "warehouse")
    archive(warehouse, [message(n, "u.x", START, stream="OUT") for n in range(5)])
    with refused(AuditError, "no-cluster-names", source="t.>", total=5):
        observe(warehouse)
    with refused(AuditError, "source-without-messages", stream="IN", days="any day"):
        observe(warehouse, cluster="west", source_stream="IN")
    with refused(AuditError, "audit-without-messages", stream="OUT", days="2026-04-01"):
        observe(warehouse, first_day=datetime(2026, 4, 1, tzinfo=UTC).date())
    assert rule_of(observe(warehouse, cluster="west"), "t.>", "west").messages == 5
