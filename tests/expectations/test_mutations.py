"""Each expectation fails on a table made wrong in just its way, and passes on a good one.

A row of these tables is a change to good rows and the names of all expectations that then fail;
every expectation is in at least one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from expectations.expectation import Suite, report_on
from expectations.messages import MAX_SUBJECT, measure_messages, messages_suite
from expectations.transformed import transformed_messages_suite
from tests.expectations.tables import (
    MAPPINGS,
    PER_DAY,
    SEED,
    VERSION,
    Change,
    archive_digest,
    batches,
    measure,
    messages,
    table_digest,
    transformed,
)
from tests.support.archive import Row

MESSAGES = messages()
TRANSFORMED = transformed(MESSAGES)
ARCHIVE = archive_digest(MESSAGES)


def _where(rows: Sequence[Row], **values: Any) -> list[int]:
    """The places of the rows that have these values."""
    found = [
        place
        for place, row in enumerate(rows)
        if all(row[name] == value for name, value in values.items())
    ]
    assert found
    return found


def _first(mapping: str, **values: Any) -> int:
    return _where(TRANSFORMED, mapping_source=mapping, **values)[0]


ORDER = _first("orders.*.*")
CART = _first("cart.*", mapping_destination="cart.v1.$1")
LOG = _first("log.*", fate="mapped")
LOST = _first("beat", fate="lost")
OTHER = _where(TRANSFORMED, fate="unmatched")[0]


def put(place: int, **values: Any) -> Change:
    """Changes the columns of one row."""

    def change(rows: list[Row]) -> None:
        rows[place] = rows[place] | values

    return change


def drop(*places: int) -> Change:
    def change(rows: list[Row]) -> None:
        for place in sorted(places, reverse=True):
            del rows[place]

    return change


def twice(place: int) -> Change:
    return lambda rows: rows.append(rows[place])


def both(*changes: Change) -> Change:
    def change(rows: list[Row]) -> None:
        for each in changes:
            each(rows)

    return change


def partition(number: str) -> Change:
    """Puts one message into another partition."""
    tokens = TRANSFORMED[ORDER]["mapped_subject"].split(".")
    return put(ORDER, mapped_subject=".".join([tokens[0], number, *tokens[2:]]))


def crowd(rows: list[Row]) -> None:
    """Puts the keys of six partitions into one."""
    for place in _where(rows, mapping_source="orders.*.*"):
        tokens = rows[place]["mapped_subject"].split(".")
        tokens[1] = "0" if tokens[1] in "012345" else tokens[1]
        rows[place] = rows[place] | {"mapped_subject": ".".join(tokens)}


def skew(cluster: str | None) -> Change:
    """Sends all messages of a cluster to the first destination."""

    def change(rows: list[Row]) -> None:
        moved = {"mapping_destination": "cart.v1.$1", "draw": 99}
        for place in _where(rows, mapping_destination="cart.v2.$1", cluster=cluster):
            subject = rows[place]["mapped_subject"].replace("v2", "v1")
            rows[place] = rows[place] | moved | {"mapped_subject": subject}

    return change


def _failures(suite: Suite, measures: Any) -> set[str]:
    return {failure.name for failure in report_on(measures, suite).failures}


# What else fails when outcomes are not those that the mappings make.
CHANGED = {"ExpectTheSameDigest"}
OTHER_OUTCOME = {"ExpectEveryOutcomeToAgree", *CHANGED}
TOUCHED = {"ExpectArchiveToBeAsIngested", "ExpectTheSameDigest"}
LEGAL = {"ExpectMappedSubjectsToBeLegal", *OTHER_OUTCOME}
MISCOUNTED = {"ExpectMessagesToBeConserved", *OTHER_OUTCOME}
REKEYED = {"ExpectKeysToKeepTheirPartition", *OTHER_OUTCOME}
OUT_OF_RANGE = {"ExpectPartitionNumbersInRange", *REKEYED}
SKEWED = {"ExpectWeightsToHold", *OTHER_OUTCOME}
ELSEWHERE = "7" if ".0." in TRANSFORMED[ORDER]["mapped_subject"] else "0"
"""Another partition than that of the order."""

TRANSFORMED_CHANGES = [
    pytest.param(lambda rows: None, set(), id="good"),
    pytest.param(lambda rows: rows.reverse(), set(), id="another order"),
    pytest.param(drop(ORDER), {"ExpectMessagesToBeConserved", *TOUCHED}, id="drop a row"),
    pytest.param(twice(ORDER), {"ExpectMessagesToBeConserved", *TOUCHED}, id="duplicate a row"),
    pytest.param(both(twice(CART), drop(ORDER)), TOUCHED, id="one twice instead of another"),
    pytest.param(put(ORDER, data=b"payload"), TOUCHED, id="touch a payload"),
    pytest.param(put(ORDER, data=None), TOUCHED, id="lose a payload"),
    pytest.param(put(ORDER, headers=[("Nats-Msg-Id", "0")]), TOUCHED, id="touch a header"),
    pytest.param(put(ORDER, headers=None), TOUCHED, id="lose the headers"),
    pytest.param(put(LOST, cluster="west"), TOUCHED, id="move a lost message's cluster"),
    pytest.param(
        put(ORDER, ts_ns=MESSAGES[ORDER]["ts_ns"] + 1000),
        {"ExpectRowsToBeDated", *TOUCHED},
        id="touch a time",
    ),
    pytest.param(
        put(CART, mapped_subject="cart.v1.999"), OTHER_OUTCOME, id="change a mapped subject"
    ),
    pytest.param(put(LOST, mapped_subject="beat"), OTHER_OUTCOME, id="deliver a lost message"),
    pytest.param(put(OTHER, fate="gone"), MISCOUNTED, id="an unknown fate"),
    pytest.param(put(OTHER, fate=None), MISCOUNTED, id="no fate"),
    pytest.param(put(LOST, fate=None), MISCOUNTED, id="no fate and no subject"),
    pytest.param(put(CART, draw=100), OTHER_OUTCOME, id="a draw of 100"),
    pytest.param(put(CART, reason="none"), OTHER_OUTCOME, id="a reason without need"),
    pytest.param(
        put(CART, mapping_version="1f" * 32),
        {"ExpectOneMappingVersion", *CHANGED},
        id="another mapping version",
    ),
    pytest.param(put(LOG, mapped_subject="log..b"), LEGAL, id="an empty token"),
    pytest.param(put(LOG, mapped_subject="log."), LEGAL, id="an empty last token"),
    pytest.param(put(LOG, mapped_subject=".log"), LEGAL, id="an empty first token"),
    pytest.param(put(LOG, mapped_subject=""), LEGAL, id="an empty subject"),
    pytest.param(put(LOG, mapped_subject="log.*.a"), LEGAL, id="a wildcard"),
    pytest.param(put(LOG, mapped_subject=">"), LEGAL, id="a full wildcard"),
    pytest.param(put(LOG, mapped_subject="log.*a.>b"), OTHER_OUTCOME, id="no wildcard"),
    pytest.param(put(LOG, mapped_subject="é" * (MAX_SUBJECT // 2)), OTHER_OUTCOME, id="long"),
    pytest.param(put(LOG, mapped_subject="é" * (MAX_SUBJECT // 2 + 1)), LEGAL, id="too long"),
    pytest.param(partition("8"), OUT_OF_RANGE, id="a partition out of range"),
    pytest.param(partition("01"), OUT_OF_RANGE, id="a partition number that is none"),
    pytest.param(partition(ELSEWHERE), REKEYED, id="move a key"),
    pytest.param(crowd, {"ExpectPartitionsToBeBalanced", *REKEYED}, id="crowd a partition"),
    pytest.param(skew("west"), SKEWED, id="skew a weight in a cluster"),
    pytest.param(skew(None), SKEWED, id="skew a weight without a cluster"),
]


TRANSFORMED_SUITE = transformed_messages_suite(
    MAPPINGS,
    archive=ARCHIVE,
    seed=SEED,
    version=VERSION,
    before=table_digest(TRANSFORMED),
    tolerance=10.0,
)


@pytest.mark.parametrize(("change", "failing"), TRANSFORMED_CHANGES)
def test_transformed_messages(change: Change, failing: set[str]) -> None:
    rows = list(TRANSFORMED)
    change(rows)
    assert _failures(TRANSFORMED_SUITE, measure()(batches(rows))) == failing


def next_draw(row: Row) -> Row:
    return row | {"draw": (row["draw"] + 1) % 100}


def lose(row: Row) -> Row:
    return row | {"fate": "lost", "mapped_subject": None, "mapping_destination": None}


def deliver(row: Row) -> Row:
    return row | {"fate": "mapped", "mapped_subject": "pulse", "mapping_destination": "pulse"}


def leave(row: Row) -> Row:
    names = ("mapping_source", "mapping_destination", "draw")
    return row | {"fate": "unmatched", "mapped_subject": row["subject"], **dict.fromkeys(names)}


def claim(row: Row) -> Row:
    """An unmatched row that a mapping is said to have mapped."""
    rule = {"mapping_source": "log.*", "mapping_destination": "log.{{split(1,-)}}"}
    return row | {"fate": "mapped", **rule}


def other_end(row: Row) -> Row:
    """Another destination of the mapping, with its subject and a draw that would choose it."""
    chosen = next(
        outcome
        for draw in range(100)
        if (outcome := MAPPINGS.apply(row["subject"], row["cluster"], draw)).mapping_destination
        != row["mapping_destination"]
    )
    new = (chosen.subject, chosen.mapping_destination, chosen.draw, chosen.fate.value)
    names = ("mapped_subject", "mapping_destination", "draw", "fate")
    return row | dict(zip(names, new, strict=True))


EVERY = "ExpectEveryOutcomeToAgree"
UNTOUCHED = "ExpectArchiveToBeAsIngested"
IS_DRAWN = {"mapping_source": "cart.*"}
ONE_ROW: list[Any] = [
    pytest.param({}, {"mapped_subject": "x.y"}, EVERY, id="change its new subject"),
    pytest.param({"fate": "mapped"}, {"mapped_subject": None}, EVERY, id="lose its new subject"),
    pytest.param(
        {"mapping_source": "orders.*.*"}, {"mapped_subject": "orders.3.eu.c1x"}, EVERY,
        id="another key in its new subject",
    ),
    pytest.param(IS_DRAWN, next_draw, EVERY, id="the next draw"),
    pytest.param(IS_DRAWN, lambda row: row | {"draw": 99 - row["draw"]}, EVERY, id="another draw"),
    pytest.param(IS_DRAWN, {"draw": None}, EVERY, id="lose its draw"),
    pytest.param({"draw": None}, {"draw": 0}, EVERY, id="a draw where none is"),
    pytest.param({"fate": "mapped"}, lose, EVERY, id="lose a mapped row"),
    pytest.param({"fate": "lost"}, deliver, EVERY, id="map a lost row"),
    pytest.param({"fate": "mapped"}, leave, EVERY, id="leave a row unmatched"),
    pytest.param({"fate": "unmatched"}, claim, EVERY, id="map an unmatched row"),
    pytest.param(IS_DRAWN, other_end, EVERY, id="another destination, draw and subject"),
    pytest.param(
        IS_DRAWN, lambda row: other_end(row) | {"draw": row["draw"]}, EVERY,
        id="another destination and subject",
    ),
    pytest.param(
        {"fate": "mapped"}, {"mapping_destination": "cart.v3.$1"}, EVERY,
        id="another name of its destination",
    ),
    pytest.param({"fate": "mapped"}, {"mapping_destination": None}, EVERY, id="no destination"),
    pytest.param({"fate": "mapped"}, {"mapping_source": "cart.>"}, EVERY, id="another mapping"),
    pytest.param({"fate": "invalid"}, {"reason": "empty token"}, EVERY, id="another reason"),
    pytest.param({"fate": "invalid"}, {"reason": None}, EVERY, id="no reason"),
    pytest.param({"fate": "lost"}, {"fate": "filtered"}, EVERY, id="filter a lost row"),
    pytest.param({"cluster": "east"}, {"cluster": "west"}, UNTOUCHED, id="another cluster"),
    pytest.param({}, {"subject": "cart.51"}, UNTOUCHED, id="another subject"),
    pytest.param(
        {}, {"mapping_version": "1f" * 32}, "ExpectOneMappingVersion", id="another version"
    ),
]  # fmt: skip
"""What one row must have, what becomes of it, and who finds that in the row itself.

No digest of the transformed rows is known here.
"""
ALSO_ALONE = 5  # rows


@pytest.mark.parametrize(("having", "values", "finder"), ONE_ROW)
def test_one_row_is_found_wherever_it_is(having: dict[str, Any], values: Any, finder: str) -> None:
    places = _where(TRANSFORMED, **having)
    change = values if callable(values) else lambda row: row | values
    changed = {
        place: new for place in places if (new := change(TRANSFORMED[place])) != TRANSFORMED[place]
    }
    if finder != UNTOUCHED:  # which finds a row by its digest
        # Each row is judged by itself, so all of them are changed at once.
        rows = [changed.get(place, row) for place, row in enumerate(TRANSFORMED)]
        flag = "different" if finder == EVERY else "misversioned"
        broken = measure(messages=10**12)(batches(rows)).flagged(flag)
        assert sum(found.rows for found in broken.values()) == len(changed)
    for place in {min(changed), max(changed), *Random(1).sample([*changed], ALSO_ALONE)}:
        start = max(0, place - 3)
        good = TRANSFORMED[start : place + 4]
        new = changed[place]
        assert EVERY not in _found(good, good)
        assert finder in _found(good, [new if row is TRANSFORMED[place] else row for row in good])


def test_swapped_subjects_are_found_wherever_they_are() -> None:
    places = Random(1).sample(_where(TRANSFORMED, mapping_source="cart.*"), 40)
    for one, other in pairwise([0, *places, len(TRANSFORMED) - 1]):
        good = [TRANSFORMED[one], TRANSFORMED[other]]
        new = [good[n] | {"mapped_subject": good[1 - n]["mapped_subject"]} for n in (0, 1)]
        assert (EVERY in _found(good, new)) == (new != good)


def _found(good: Sequence[Row], rows: Sequence[Row]) -> set[str]:
    """Which expectations rows fail that should be others; and no earlier run is known."""
    suite = transformed_messages_suite(
        MAPPINGS, archive=archive_digest(good), seed=SEED, version=VERSION
    )
    return _failures(suite, measure(messages=10**12)(batches(rows)))


INGESTED = {"ExpectArchiveToBeAsIngested"}
GAP = {"ExpectNoUnexplainedGap", *INGESTED}
MISDATED = {"ExpectRowsToBeDated", *INGESTED}
ILLEGAL = {"ExpectArchivedSubjectsToBeLegal", *INGESTED}
TWICE = "ExpectNoSequenceTwice"
LAST_DAY = {name: MESSAGES[-1][name] for name in ("ts", "ts_ns", "day")}
A_MICROSECOND = timedelta(microseconds=1)

MESSAGES_CHANGES = [
    pytest.param(lambda rows: None, set(), id="good"),
    pytest.param(lambda rows: rows.reverse(), set(), id="another order"),
    pytest.param(drop(0), INGESTED, id="drop the first row"),
    pytest.param(drop(100), GAP, id="drop a row"),
    pytest.param(drop(63, 64, 65), GAP, id="drop rows on both sides of a word"),
    pytest.param(drop(PER_DAY), GAP, id="drop a row between days"),
    pytest.param(twice(100), {TWICE, *INGESTED}, id="duplicate a row"),
    pytest.param(both(twice(100), drop(200)), {TWICE, *GAP}, id="one twice instead of another"),
    pytest.param(put(100, data=b"payload"), INGESTED, id="touch a payload"),
    pytest.param(put(100, headers=[]), INGESTED, id="lose headers"),
    pytest.param(put(100, seq=None), {"ExpectRowsToBeDated", *GAP}, id="no sequence"),
    pytest.param(put(100, ts=None), MISDATED, id="no time"),
    pytest.param(put(100, ts=MESSAGES[100]["ts"] + A_MICROSECOND), MISDATED, id="another time"),
    pytest.param(put(PER_DAY - 1, day=LAST_DAY["day"]), MISDATED, id="another day"),
    pytest.param(
        put(100, **LAST_DAY), INGESTED, id="of a day that other sequences around it are not of"
    ),
    pytest.param(put(100, subject="a..b"), ILLEGAL, id="an illegal subject"),
    pytest.param(put(100, subject=None), ILLEGAL, id="no subject"),
    pytest.param(put(100, subject="x" * (MAX_SUBJECT + 1)), ILLEGAL, id="a subject too long"),
]


@pytest.mark.parametrize(("change", "failing"), MESSAGES_CHANGES)
def test_messages(change: Change, failing: set[str]) -> None:
    rows = list(MESSAGES)
    change(rows)
    suite = messages_suite(ARCHIVE)
    assert _failures(suite, measure_messages(batches(rows))) == failing


@pytest.mark.parametrize(
    ("suite", "changes"),
    [
        pytest.param(messages_suite(ARCHIVE), MESSAGES_CHANGES, id="messages"),
        pytest.param(
            transformed_messages_suite(MAPPINGS, archive=ARCHIVE, version=VERSION, before="0"),
            TRANSFORMED_CHANGES,
            id="transformed_messages",
        ),
    ],
)
def test_every_expectation_has_a_change_that_it_fails_on(
    suite: Suite, changes: Sequence[Any]
) -> None:
    shown = {name for change in changes for name in change.values[1]}
    assert {expectation.name for expectation in suite.expectations} == shown
