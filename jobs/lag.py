"""How far archives are behind their streams: what a server and the table say, without reading."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

from jobs.errors import ArchiveError
from jobs.jetstream.connection import connection
from jobs.jetstream.stream import StreamState, message_at, sequence_at, stream_state
from jobs.settings.connection import NatsSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.accounting import Archived
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import find_table


@dataclass(frozen=True)
class Lag:
    """A stream and its archive.

    Attributes:
        state: what the server says of the stream.
        last: the last sequence that the archive has looked at, or that an ingest skips because an
            erasure names it; 0 if there is none.
    """

    state: StreamState
    last: int

    @property
    def messages(self) -> int:
        """How many messages of the stream come after the archive's last; at most, if some of
        them have been deleted."""
        return max(0, min(self.state.last - self.last, self.state.messages))

    @property
    def numbers(self) -> dict[str, int | str]:
        """All of it for people, the lag first."""
        return {
            "lag": self.messages,
            "messages": self.state.messages,
            "first sequence": self.state.first,
            "last sequence": self.state.last,
            "archived up to": self.last,
            "bytes": self.state.bytes,
            "created": self.state.created,
        }


def measure_lags(
    nats: NatsSettings, streams: Mapping[str, str], warehouse: Warehouse
) -> dict[str, Lag | ArchiveError]:
    """The lag of each stream by its name in the table, or why there is none.

    Args:
        streams: the name in the table -> the name on the server.

    Raises:
        ArchiveError: the server cannot be reached.
        WarehouseError: the table cannot be read.
    """
    table = find_table(warehouse, MESSAGES)

    async def measure() -> dict[str, Lag | ArchiveError]:
        lags: dict[str, Lag | ArchiveError] = {}
        async with connection(nats) as client:
            for stream, name in streams.items():
                archived = Archived.of(table, stream)
                end, had = archived.end, archived.coverage.ranges
                try:
                    state = await stream_state(client, name)
                    if state.last < end:
                        raise ArchiveError(
                            "lag-recreated",
                            stream=name,
                            where=nats.where,
                            last=state.last,
                            archived=end,
                        )
                    skipped = next((last for first, last in had if first <= end + 1 <= last), end)
                    lags[stream] = Lag(state, min(skipped, state.last))
                except ArchiveError as error:
                    lags[stream] = error
        return lags

    return asyncio.run(measure())


def first_missing_day(nats: NatsSettings, name: str, lag: Lag, start: date) -> date | None:
    """The day (UTC) of the first message that the archive lacks after its last, or None.

    Args:
        name: the name of the stream on the server.
        start: the first day that counts.
    """

    async def look() -> date | None:
        async with connection(nats) as client:
            midnight = datetime.combine(start, time(), UTC)
            first = await sequence_at(client, name, midnight, lag.state)
            message = await message_at(client, name, max(first, lag.last + 1))
        return message and datetime.fromtimestamp(message[1] / 1e9, UTC).date()

    return asyncio.run(look())
