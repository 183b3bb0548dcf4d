"""Observed audits open with an account of the messages; what it leaves open is never within."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from jobs.audit.headline import headline
from jobs.audit.result import AuditError, AuditResult
from jobs.settings.warehouse import Warehouse
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.audit import Verdict
from tests.jobs.audit import rehearsal
from tests.support.archive import Row, message
from tests.support.refused import refused

START = datetime(2026, 3, 1, tzinfo=UTC)
HALVES = Mapping("shop.>", [Destination("shop.v1.>", 50), Destination("shop.v2.>", 50)])
MESSAGES = 4_000


def published(count: int = MESSAGES, cluster: str | None = None) -> list[Row]:
    step = timedelta(hours=3) / count
    return [
        message(n + 1, f"shop.a{n % 7}", START + n * step, stream="IN", cluster=cluster)
        for n in range(count)
    ]


def stored(rows: Sequence[Row], keep: Callable[[int], bool] = lambda _: False) -> list[Row]:
    """What a server makes of published messages, but for those that it does not map.

    Half of the others comes to each destination, in random order.
    """
    mapped = [n for n in range(len(rows)) if not keep(n)]
    versions = np.random.default_rng(1).permutation(len(mapped)) % 2 + 1
    made = dict(zip(mapped, versions.tolist(), strict=True))
    return [
        row
        | {"stream": "OUT"}
        | ({"subject": f"shop.v{made[n]}.{row['subject'][5:]}"} if n in made else {})
        for n, row in enumerate(rows)
    ]


def observe(
    folder: Path, rows: Sequence[Row], mappings: Sequence[Mapping] = (HALVES,), **more: Any
) -> AuditResult:
    warehouse = Warehouse(dir=folder / "warehouse")
    return rehearsal.observe(warehouse, AccountMappings(mappings), rows, **more)


def test_a_mapping_that_was_not_in_force_for_some(tmp_path: Path) -> None:
    result = observe(tmp_path, stored(published(), lambda n: n % 4 < 2))
    (rule,), (account,) = result.rules, result.accounts
    assert rule.verdict is Verdict.OUTSIDE
    ends = {end.destination: (end.end, end.weight, end.count) for end in rule.destinations}
    assert ends["shop.>"] == ("unmapped", 0, MESSAGES // 2)
    assert ends["shop.v1.>"] == ("destination", 50, MESSAGES // 4)
    assert account.unmapped == result.fates["unmapped"] == MESSAGES // 2
    assert account.published is account.missing is account.doubled is None
    assert "the mapping wasn't in force for them" in headline(result)
    assert "had loaded then" not in headline(result)


def test_a_mapping_that_was_in_force_nowhere(tmp_path: Path) -> None:
    result = observe(tmp_path, stored(published(), lambda _: True))
    assert result.verdict is Verdict.OUTSIDE
    assert result.fails("outside")
    assert f"{MESSAGES:,} of {MESSAGES:,} messages kept the mapping's source" in headline(result)


def test_a_subject_that_another_mapping_makes_may_not_have_been_mapped(tmp_path: Path) -> None:
    other = Mapping("old.*", [Destination("shop.$1", 100)])
    rows = stored(published(), lambda n: n % 4 < 2)
    result = observe(tmp_path / "unknown", rows, (HALVES, other))
    (rule,) = result.rules
    assert (rule.verdict, rule.ambiguous) == (Verdict.UNDECIDED, MESSAGES // 2)
    # What was published decides it.
    right = published(MESSAGES // 2)
    result = observe(tmp_path / "known", [*rows, *right], (HALVES, other), source_stream="IN")
    assert result.verdict is Verdict.WITHIN
    result = observe(
        tmp_path / "missing", [*rows, *published()], (HALVES, other), source_stream="IN"
    )
    assert result.verdict is not Verdict.WITHIN


def test_an_archive_that_does_not_hold_the_source_says_so(tmp_path: Path) -> None:
    captured = ("shop.v1.>", "shop.v2.>")
    result = observe(tmp_path, stored(published()), captured=captured)
    assert result.verdict is Verdict.WITHIN
    assert result.accounts[0].unmapped is None
    assert any("can't show where the mapping wasn't in force" in note for note in result.notes)


@pytest.mark.parametrize("lost", [0, 30, 1_500])
@pytest.mark.parametrize("counter", [False, True])
def test_messages_that_are_missing(tmp_path: Path, lost: int, counter: bool) -> None:
    """Of the second destination the first messages vanish."""
    sent = published()
    out = stored(sent)
    vanished = [row["seq"] for row in out if row["subject"].startswith("shop.v2.")][:lost]
    out = [row for row in out if row["seq"] not in vanished]
    more: dict[str, Any] = {"source_stream": "IN"}
    if counter:
        more = {"published": [("shop.>", MESSAGES)]}
    result = observe(tmp_path, [*sent, *out], **more)
    (account,) = result.accounts
    assert (account.published, account.missing, account.unpublished) == (MESSAGES, lost, 0)
    assert result.verdict is (Verdict.OUTSIDE if lost > 1_000 else Verdict.WITHIN)
    if lost > 1_000:
        assert f"{lost:,} of {MESSAGES:,} published messages are missing" in headline(result)


def test_a_count_of_nothing_that_is_audited(tmp_path: Path) -> None:
    """It must not look as if nothing were missing."""
    with refused(AuditError, "counted-source-unmapped", hint="; did you mean shop.>?"):
        observe(tmp_path, stored(published()), published=[("shop", MESSAGES)])
    with refused(ValidationError, "counted-several-times", times=2):
        observe(tmp_path, [], published=[("shop.>", MESSAGES), ("shop.>", 10)])


def test_others_who_publish_to_a_destination(tmp_path: Path) -> None:
    """The server splits in halves; direct messages make it look like a canary of 10 %."""
    canary = Mapping("shop.>", [Destination("shop.v1.>", 90), Destination("shop.v2.>", 10)])
    sent = published(1_000)
    direct = [row | {"subject": "shop.v1.x"} for row in stored(published(4_000))]
    rows = [*sent, *stored(sent), *direct]
    assert observe(tmp_path / "unknown", rows, (canary,)).verdict is Verdict.WITHIN
    result = observe(tmp_path / "known", rows, (canary,), source_stream="IN")
    assert result.verdict is Verdict.OUTSIDE
    assert result.accounts[0].unpublished == 4_000
    assert "4,000 of 5,000 stored messages were not published" in headline(result)


def with_ids(rows: Sequence[Row], id_of: Callable[[int], int]) -> list[Row]:
    """The rows with ids as publishers give them, beside another header."""
    return [
        row | {"headers": [("A", "Nats-Msg-Id"), ("Nats-Msg-Id", f"id-{id_of(n)}"), ("B", "id-1")]}
        for n, row in enumerate(rows)
    ]


def test_messages_that_were_sent_again_count_once(tmp_path: Path) -> None:
    """A canary of 2 % answers late; each of its messages is sent again four times, drawn anew."""
    canary = Mapping("shop.>", [Destination("shop.v1.>", 98), Destination("shop.v2.>", 2)])
    first = with_ids(published(), lambda n: n)
    out = [
        row | {"stream": "OUT", "subject": f"shop.v{2 if n % 50 == 0 else 1}.x"}
        for n, row in enumerate(first)
    ]
    late = [row for row in out if row["subject"] == "shop.v2.x"]
    again = [
        row | {"seq": MESSAGES * round_ + row["seq"], "ts": row["ts"] + timedelta(minutes=3)}
        for round_ in range(1, 5)
        for row in late
    ]
    result = observe(
        tmp_path, [*out, *again], (canary,), tolerance=1, published=[("shop.>", 4_320)]
    )
    (account,) = result.accounts
    assert account.doubled == result.fates["doubled"] == len(again) == 320
    assert (account.attributed, account.missing, account.unpublished) == (MESSAGES, 0, 0)
    assert {end.destination: end.count for end in result.rules[0].destinations} == {
        "shop.v2.>": 80,
        "shop.v1.>": 3_920,
    }
    assert any("320 messages were stored again with the Nats-Msg-Id" in n for n in result.notes)
    assert sum(result.fates.values()) == result.messages == MESSAGES + 320


def test_the_first_of_several_ids_counts(tmp_path: Path) -> None:
    """nats-server looks at no other, and an empty one is none."""
    canary = Mapping("shop.>", [Destination("shop.v1.>", 90), Destination("shop.v2.>", 10)])
    ids = [("Nats-Msg-Id", ""), ("Nats-Msg-Id", "same")]
    rows = [row | {"headers": ids} for row in stored(published(1_000))]
    assert observe(tmp_path, rows, (canary,)).accounts[0].doubled is None


def test_ids_that_name_no_message(tmp_path: Path) -> None:
    result = observe(tmp_path, with_ids(stored(published()), lambda n: n % 100))
    assert result.fates["doubled"] == 0
    assert result.messages == result.rules[0].messages == MESSAGES
    assert any("so they can't show which" in note for note in result.notes)


def test_messages_published_to_clusters_that_the_archive_does_not_name(tmp_path: Path) -> None:
    sent = [*published(2_000, "east"), *published(2_000, "west")]
    out = [row | {"cluster": None} for row in stored(sent)]
    result = observe(tmp_path / "unnamed", [*sent, *out], source_stream="IN")
    assert result.verdict is Verdict.WITHIN
    assert result.accounts[0].published == 4_000
    with refused(AuditError, "source-names-no-cluster", stored="east, west"):
        observe(tmp_path / "named", stored(sent), published=[("shop.>", 4_000)])
    # Nor where some of the stored messages name none.
    some = [
        row | {"cluster": row["cluster"] if n % 4 else None} for n, row in enumerate(stored(sent))
    ]
    with refused(AuditError, "source-names-no-cluster", stored="east, west"):
        observe(tmp_path / "mixed", some, published=[("shop.>", 4_000)])


@pytest.mark.parametrize(
    ("count", "captured"), [(2_000, ()), (5_000, ("v1.>", "v2.>"))], ids=["all", "captured"]
)
def test_audits_take_time_in_proportion_to_mappings(
    tmp_path: Path, count: int, captured: Sequence[str]
) -> None:
    """Comparing each with every other takes far longer; so even a busy machine tells it apart."""
    many = [
        Mapping(f"o{n}.*", [Destination(f"v1.o{n}.$1", 50), Destination(f"v2.o{n}.$1", 50)])
        for n in range(count)
    ]
    rows = [message(n + 1, f"v{n % 2 + 1}.o{n}.x", START, stream="OUT") for n in range(count)]
    started = time.process_time()
    result = observe(tmp_path, rows, many, captured=captured)
    assert time.process_time() - started < 12
    assert [rule.messages for rule in result.rules] == [1] * count
