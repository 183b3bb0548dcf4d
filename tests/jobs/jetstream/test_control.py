"""What becomes of archived headers when their message is replayed."""

from __future__ import annotations

import pytest

from jobs.jetstream.control import ASIDE, TABLE, outgoing
from jobs.jetstream.wire import Unsendable
from scripts import pages

NOTHING: frozenset[str] = frozenset()
ALL = frozenset(("rollup", "ttl"))
PREFIX = "Nats-Transform-Original-"


@pytest.mark.parametrize(
    ("line", "acts", "expected"),
    [
        pytest.param("Own: 1", NOTHING, "Own: 1", id="own"),
        pytest.param("b:1", NOTHING, "b:1", id="spacing"),
        pytest.param("A:", NOTHING, "A:", id="empty"),
        pytest.param("Nats-Marker-Reason: MaxAge", ALL, "Nats-Marker-Reason: MaxAge", id="marker"),
        pytest.param("Nats-Rollup:  sub", ALL, "Nats-Rollup: sub", id="rollup-that-acts"),
        pytest.param("Nats-Rollup: SUB", ALL, "Nats-Rollup: sub", id="rollup-in-capitals"),
        pytest.param("Nats-Rollup: all", ALL, PREFIX + "Nats-Rollup: all", id="rollup-of-all"),
        pytest.param("nats-rollup: sub", NOTHING, PREFIX + "nats-rollup: sub", id="small-letters"),
        pytest.param("nats-rollup: sub", ALL, PREFIX + "nats-rollup: sub", id="never-acted"),
        pytest.param("NATS-TTL: 1s", ALL, PREFIX + "NATS-TTL: 1s", id="ttl-never-acted"),
        pytest.param("Nats-TTL: 10", ALL, "Nats-TTL: 10", id="ttl-that-acts"),
        pytest.param("Nats-TTL: 1h30m5s", ALL, "Nats-TTL: 1h30m5s", id="ttl-as-a-duration"),
        pytest.param("Nats-TTL: 5m0s", ALL, "Nats-TTL: 5m0s", id="ttl-as-go-writes-minutes"),
        pytest.param("Nats-TTL: never", ALL, "Nats-TTL: never", id="ttl-never"),
        pytest.param("Nats-TTL: 0", ALL, PREFIX + "Nats-TTL: 0", id="ttl-of-nothing"),
        pytest.param("Nats-TTL: soon", ALL, PREFIX + "Nats-TTL: soon", id="ttl-that-is-none"),
        pytest.param("Nats-Future: 1", ALL, PREFIX + "Nats-Future: 1", id="of-a-later-server"),
        pytest.param("Status: 503", ALL, PREFIX + "Status: 503", id="status"),
        pytest.param(
            "Nats-Transform-Source: v 1 S", ALL, PREFIX + "Nats-Transform-Source: v 1 S",
            id="our-own-of-an-earlier-replay",
        ),
        pytest.param(PREFIX + "Nats-TTL: 1", ALL, PREFIX + "Nats-TTL: 1", id="set-aside-before"),
    ],
)  # fmt: skip
def test_lines(line: str, acts: frozenset[str], expected: str) -> None:
    assert outgoing([line.encode()], acts) == [expected.encode()]


def test_only_the_first_header_of_a_name_acts() -> None:
    for first, second in ((b"Nats-Rollup:", b"Nats-Rollup: sub"), (b"Nats-TTL: 0", b"Nats-TTL: 1")):
        assert outgoing([first, second], ALL) == [ASIDE + first, ASIDE + second]
        assert outgoing([second, second], ALL) == [second, ASIDE + second]


@pytest.mark.parametrize("name", TABLE)
def test_nothing_of_the_table_acts_unless_allowed(name: str) -> None:
    (line,) = outgoing([f"{name}: sub".encode()], NOTHING)
    is_kept = "kept" in TABLE[name][1]
    assert line.decode() == ("" if is_kept else PREFIX) + f"{name}: sub"


@pytest.mark.parametrize("line", [b"A", b": 1", b"A: x\ny", b"A B: 1", b" A: 1", b"A: \r"])
def test_lines_that_are_no_headers(line: bytes) -> None:
    with pytest.raises(Unsendable):
        outgoing([line], NOTHING)


def test_the_reference_has_the_table() -> None:
    page = pages.commands()
    for name, (what, fate) in TABLE.items():
        assert f"| `{name}` | {what} | {fate} |" in page
