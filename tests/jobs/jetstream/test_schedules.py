"""Which schedules of an archive wait, and what their headers become."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from jobs.jetstream.schedules import Rewriting, schedules_in
from jobs.jetstream.wire import MAX_HEADERS, Unsendable
from nats_transform import AccountMappings, Destination, Mapping
from tests.support.refused import refused

MAPPINGS = AccountMappings(
    [
        Mapping("jobs.*", [Destination("work.$1")]),
        Mapping("plans.*", [Destination("v2.plans.$1")]),
        Mapping("two.*", [Destination("one.$1", 50), Destination("other.$1", 50)]),
        Mapping("far.*", [Destination("near.$1", cluster="east")]),
        Mapping("any.*", [Destination("any.{{random(3)}}")]),
        Mapping("gone", [Destination("gone", 0)]),
        Mapping("cut.*", [Destination("cut.{{split(1,-)}}")]),
        Mapping("self.*", [Destination("v2.plans.$1")]),
        Mapping("dropped.*", [Destination("elsewhere.$1")]),
    ]
)
AT = b"@at 2030-01-01T00:00:00Z"
Row = tuple[int, bytes, list[tuple[bytes, bytes]]]


def fault(subject: str) -> str | None:
    return "stream S does not capture it" if subject.startswith("elsewhere.") else None


def batch(rows: list[Row]) -> pa.RecordBatch:
    kinds = (pa.binary(), pa.string())
    binary, text = (pa.list_(pa.struct([("name", k), ("value", k)])) for k in kinds)
    renamed = [
        MAPPINGS.apply(subject.decode("utf-8", "surrogateescape")).subject for _, subject, _ in rows
    ]
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array([seq for seq, _, _ in rows], pa.int64()),
            "subject": pa.array([subject for _, subject, _ in rows], pa.binary()),
            "mapped_subject": pa.array(
                [name and name.encode("utf-8", "surrogateescape") for name in renamed], pa.binary()
            ),
            "headers": pa.array([headers for _, _, headers in rows], binary).view(text),
        }
    )


def rewriting(*rows: Row, chosen: list[int] | None = None) -> Rewriting:
    # In two batches, the later one first: files need not be in order.
    batches = [batch(list(rows[1:])), batch(list(rows[:1]))]
    numbers = [seq for seq, _, _ in rows] if chosen is None else chosen
    return Rewriting.of(batches, [pa.RecordBatch.from_pydict({"seq": numbers})], MAPPINGS, fault)


def schedule(target: bytes, *more: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    return [(b"Nats-Schedule", AT), (b"Nats-Schedule-Target", target), *more]


def test_targets_and_sources_get_their_new_names() -> None:
    source = (b"Nats-Schedule-Source", b"jobs.last")
    found = rewriting(
        (1, b"plans.1", schedule(b"jobs.eu", source)),
        (2, b"plans.2", schedule(b"stay.eu")),
        (3, b"jobs.\xff", schedule(b"jobs.\xfe")),
        (4, b"plans.4", []),
    )
    assert (found.faults, found.fired) == ({}, 0)
    assert found.values == {
        1: {b"Nats-Schedule-Target": b"work.eu", b"Nats-Schedule-Source": b"work.last"},
        2: {},
        3: {b"Nats-Schedule-Target": b"work.\xfe"},
    }
    assert found.rewritten == {"Nats-Schedule-Target": 2, "Nats-Schedule-Source": 1}


REFUSED = [
    pytest.param(b"two.eu", "has no single new subject", id="weights"),
    pytest.param(b"far.eu", "has no single new subject", id="cluster"),
    pytest.param(b"any.eu", "has no single new subject", id="random"),
    pytest.param(b"gone", "is lost by its mapping", id="lost"),
    pytest.param(b"cut.--", "is lost by its mapping", id="empty-token"),
    pytest.param(b"dropped.eu", "stream S does not capture it", id="not-captured"),
    pytest.param(b"self.1", None, id="itself"),
    pytest.param(b"jobs.*", "is not a subject", id="wildcard"),
    pytest.param(b"jobs.>", "is not a subject", id="open-wildcard"),
    pytest.param(b"", "is not a subject", id="empty"),
    pytest.param(b"jobs.eu ", "is not a subject", id="blank-behind"),
    pytest.param(b"jobs.a\nPUB x 0", "is not a subject", id="line-feed"),
    pytest.param(b"jobs.a\r", "is not a subject", id="carriage-return"),
    pytest.param(b"jobs." + b"a" * MAX_HEADERS, "is not a subject", id="64 KB"),
]


@pytest.mark.parametrize(("target", "why"), REFUSED)
def test_what_cannot_be_rewritten(target: bytes, why: str | None) -> None:
    found = rewriting((1, b"plans.1", schedule(target)), (2, b"plans.2", schedule(b"jobs.eu")))
    assert list(found.faults) == [1]
    error = found.faults[1]
    assert error.code == ("schedule-not-rewritten" if why else "schedule-of-itself")
    assert (why or "v2.plans.1") in str(error)
    assert str(error).isprintable()
    assert list(found.values) == [2]
    with refused(Unsendable, error.code, header="Nats-Schedule-Target"):
        found.lines(1, [])


def test_a_schedule_without_a_target_would_stop_a_replay() -> None:
    found = rewriting((1, b"plans.1", [(b"Nats-Schedule", AT)]))
    assert found.faults[1].fields["header"] == "Nats-Schedule-Target"


NO_SCHEDULES = [
    pytest.param([(b"nats-schedule", AT), (b"Nats-Schedule-Target", b"two.eu")], id="small-name"),
    pytest.param([(b"Nats-Schedule", b""), (b"Nats-Schedule-Target", b"two.eu")], id="no-time"),
    pytest.param([(b"Nats-Schedule-Target", b"two.eu")], id="target-alone"),
    pytest.param([(b"Nats-Schedule", b""), *schedule(b"two.eu")], id="empty-first"),
    pytest.param([(b" Nats-Schedule", AT), (b"Nats-Schedule-Target", b"two.eu")], id="blank"),
]


@pytest.mark.parametrize("headers", NO_SCHEDULES)
def test_what_is_no_schedule_to_the_server(headers: list[tuple[bytes, bytes]]) -> None:
    found = rewriting((1, b"plans.1", headers))
    assert found == Rewriting()
    assert found.lines(1, [b"Nats-Schedule-Target: two.eu"]) is None


def test_the_first_header_of_a_name_counts() -> None:
    twice = schedule(
        b"jobs.eu", (b"Nats-Schedule-Target", b"two.eu"), (b"nats-schedule-target", b"x")
    )
    found = rewriting((1, b"plans.1", twice))
    lines = [b"%b:  %b" % pair for pair in twice]
    rest = lines[2:]
    assert found.lines(1, lines) == [lines[0], b"Nats-Schedule-Target:  work.eu", *rest]


def fired(seq: int, scheduler: bytes, when: bytes = b"purge") -> Row:
    return seq, b"jobs.eu", [(b"Nats-Scheduler", scheduler), (b"Nats-Schedule-Next", when)]


PAST: list[Any] = [
    pytest.param([fired(5, b"plans.1")], [], 1, id="fired"),
    pytest.param([fired(5, b"plans.1", b"2030-01-01T00:00:00Z")], [1], 0, id="repeats"),
    pytest.param([fired(5, b"v2.plans.1")], [1], 0, id="another"),
    pytest.param([(6, b"plans.1", schedule(b"jobs.us"))], [6], 1, id="replaced"),
    pytest.param(
        [fired(5, b"plans.1"), (6, b"plans.1", schedule(b"jobs.us"))], [6], 1, id="made-again"
    ),
]


@pytest.mark.parametrize(("later", "waiting", "gone"), PAST)
def test_a_schedule_that_fired_waits_no_more(
    later: list[Row], waiting: list[int], gone: int
) -> None:
    found = rewriting((1, b"plans.1", schedule(b"jobs.eu")), *later)
    assert (list(found.values), found.fired) == (waiting, gone)


def test_what_is_not_chosen_is_not_refused() -> None:
    found = rewriting((1, b"plans.1", schedule(b"two.eu")), fired(5, b"plans.1"), chosen=[5])
    assert found.faults == {}


def test_blocks_keep_every_other_byte() -> None:
    found = rewriting((7, b"plans.1", schedule(b"jobs.eu")))
    blocks = [
        b"", b"NATS/1.0\r\nA: 1\r\n\r\n",
        b"NATS/1.0 100 Idle\r\nNats-Schedule-Target:jobs.eu\r\nb:\xff\r\nno colon\r\n\r\n",
    ]  # fmt: skip
    new = found.blocks(pa.array([1, 2, 7]), pa.array(blocks, pa.binary())).to_pylist()
    assert new == [*blocks[:2], blocks[2].replace(b"jobs.eu", b"work.eu")]
    long = b"NATS/1.0\r\nNats-Schedule-Target: jobs.eu\r\nA: %b\r\n\r\n" % (b"x" * MAX_HEADERS)
    with refused(Unsendable, "schedule-headers-too-large", sequence=7):
        found.blocks(pa.array([7]), pa.array([long], pa.binary()))


def test_the_messages_with_a_schedule_are_counted() -> None:
    rows: list[Row] = [
        (1, b"a", []), (2, b"a", schedule(b"x")), (3, b"a", schedule(b"x") * 2),
        (4, b"a", [(b"A", b"1")]),
    ]  # fmt: skip
    assert schedules_in(batch(rows).column("headers")) == 2
    assert schedules_in(batch(rows).slice(1, 2).column("headers")) == 2
    assert schedules_in(batch(rows[:1]).column("headers")) == 0
