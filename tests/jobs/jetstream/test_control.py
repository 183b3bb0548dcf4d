"""What becomes of archived headers when their message is replayed."""

from __future__ import annotations

import pytest

from jobs.jetstream.control import ASIDE, TABLE, outgoing
from jobs.jetstream.wire import Unsendable
from scripts import pages
from tests.cases import rows

NOTHING: frozenset[str] = frozenset()
ALL = frozenset(("rollup", "ttl"))
PREFIX = "Nats-Transform-Original-"


@pytest.mark.parametrize(("line", "acts", "expected"), rows("replays.yaml", "headers"))
def test_lines(line: str, acts: list[str], expected: str) -> None:
    assert outgoing([line.encode()], frozenset(acts)) == [expected.encode()]


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
