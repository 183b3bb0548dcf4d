"""How far an archive is behind its stream."""

from __future__ import annotations

import pytest

from jobs.errors import ArchiveError
from jobs.lag import Lag, measure_lags
from jobs.settings.connection import NatsSettings
from jobs.settings.warehouse import Warehouse
from tests.support.jobs import archived, erased
from tests.support.streams import Stream


def lag(nats: NatsSettings, stream: Stream, warehouse: Warehouse) -> Lag | ArchiveError:
    return measure_lags(nats, {"S": stream.name}, warehouse)["S"]


@pytest.mark.server
@pytest.mark.parametrize(
    ("seq", "lags"),
    [
        pytest.param("18..5000", [0, 0], id="from-archived-ones-on"),
        pytest.param("21..25", [0, 5], id="the-next-ones"),
        pytest.param("4000..5000", [0, 10], id="much-later-ones"),
        pytest.param("19..20", [0, 10], id="the-last-ones"),
    ],
)
def test_sequences_erased_in_advance(
    nats: NatsSettings, stream: Stream, warehouse: Warehouse, seq: str, lags: list[int]
) -> None:
    """The stream is the same one, and an ingest skips what an erasure names."""
    stream.count(20)
    source = {"from_stream": stream.name, "server": nats}
    assert archived(warehouse, **source).added == 20
    assert erased(warehouse, seq=seq).refused is None
    found = [lag(nats, stream, warehouse)]
    stream.count(10)
    found.append(lag(nats, stream, warehouse))
    assert [it.messages if isinstance(it, Lag) else str(it) for it in found] == lags
    assert archived(warehouse, **source).added == lags[1]
    stream.create_again()
    assert getattr(lag(nats, stream, warehouse), "code", "") == "lag-recreated"
