"""Messages of a live JetStream stream, as the PySpark data source `jetstream`.

    spark.dataSource.register(JetStreamSource)
    spark.read.format("jetstream").option("servers", "nats://...").option("stream", "ORDERS").load()

One row per message, with the columns of the table `messages`. The wanted sequences are cut into
ranges that executors read side by side, each through a consumer of its own (`jobs.jetstream.pull`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pydantic import ValidationError
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from jobs.errors import ArchiveError, text_of
from jobs.jetstream.connection import NatsSettings, connection
from jobs.jetstream.reader import read_range
from jobs.jetstream.stream import (
    JetStreamSettings,
    StreamState,
    split,
    stream_state,
    wanted_range,
)
from jobs.warehouse.schema import MESSAGE_COLUMNS


@dataclass
class SequenceRange(InputPartition):
    """The sequences that one task reads, and the stream they are of."""

    first: int
    last: int
    state: StreamState


class JetStreamSource(DataSource):
    """`spark.read.format("jetstream")`; see the module, `NatsSettings` and `JetStreamSettings`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "jetstream"

    def schema(self) -> StructType:
        """The columns of the table `messages`."""
        return StructType([StructField(*column) for column in MESSAGE_COLUMNS.items()])

    def reader(self, schema: StructType) -> JetStreamReader:
        """A reader for the options given."""
        nats, settings = settings_from_options(self.options)
        return JetStreamReader(nats, settings)


def settings_from_options(
    options: Mapping[str, str],
) -> tuple[NatsSettings, JetStreamSettings]:
    """The settings that data source options say; `clusterHeader` is `cluster_header`.

    Raises:
        ArchiveError: an unknown option or a bad value.
    """
    by_option = {name.replace("_", ""): name for name in NatsSettings.model_fields}
    of_stream = {name.replace("_", ""): name for name in JetStreamSettings.model_fields}
    nats: dict[str, str] = {}
    settings: dict[str, str] = {}
    for option, value in options.items():
        key = option.lower().replace("_", "")
        if key in by_option:
            nats[by_option[key]] = value
        elif key in of_stream:
            settings[of_stream[key]] = value
        else:
            known = sorted([*NatsSettings.model_fields, *JetStreamSettings.model_fields])
            raise ArchiveError(f"jetstream: no option {option}; there are {', '.join(known)}")
    try:
        return NatsSettings.model_validate(nats), JetStreamSettings.model_validate(settings)
    except ValidationError as error:
        raise ArchiveError(f"jetstream: option {text_of(error)}") from error


class JetStreamReader(DataSourceReader):
    """Plans the ranges, on the driver's side, and reads one of them, in a task."""

    def __init__(self, nats: NatsSettings, settings: JetStreamSettings) -> None:
        self.nats = nats
        self.settings = settings

    def partitions(self) -> Sequence[SequenceRange]:
        """The ranges to read."""
        return asyncio.run(self._plan())

    async def _plan(self) -> list[SequenceRange]:
        async with connection(self.nats) as client:
            state = await stream_state(client, self.nats, self.settings.stream)
            first, last = await wanted_range(client, self.nats, self.settings, state)
            ranges = split(first, last, state, self.settings.readers)
            # Spark wants one range at least.
            return [SequenceRange(a, b, state) for a, b in ranges or [(1, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range."""
        assert isinstance(partition, SequenceRange)  # noqa: S101 - we made it
        batches = read_range(
            self.nats, self.settings, partition.first, partition.last, partition.state
        )
        loop = asyncio.new_event_loop()
        try:
            while True:
                try:
                    yield loop.run_until_complete(anext(batches))
                except StopAsyncIteration:
                    return
        finally:
            loop.run_until_complete(batches.aclose())  # type: ignore[attr-defined]
            loop.close()
