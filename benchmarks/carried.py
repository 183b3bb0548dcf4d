"""What it costs to count the headers that hold on to subjects, beside an ingest.

    python benchmarks/carried.py [--messages 1000000] [--rounds 5]

For each kind of message a stream of a real nats-server is ingested once a round; then its subjects
are counted four times: with headers, twice without, and with headers again. All of it runs in this
process, whose processor seconds are taken. Fails if the headers take more than 5 % of the processor
seconds of the ingest (the median of the rounds).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from nats import connect

from jobs import census
from jobs.files.census import COLUMNS, read_counts
from jobs.files.read import Reader, Task
from jobs.ingest import ingest
from jobs.jetstream.process import nats_server
from jobs.session import SessionOnDemand
from jobs.settings.census import CensusSettings
from jobs.settings.connection import NatsSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.warehouse import Warehouse

BUDGET = 0.05
SPARK = SessionOnDemand(SparkSettings())  # it is not needed
WITHOUT = tuple(name for name in COLUMNS if name != "headers")
NONE = pa.list_(pa.struct({"name": pa.string()}))
KINDS: dict[str, Callable[[int], dict[str, str] | None]] = {
    "no header": lambda n: None,
    "Nats-Msg-Id": lambda n: {"Nats-Msg-Id": f"{n:x}"},
    "Nats-Msg-Id, two others": lambda n: {"Trace": f"{n:x}", "Region": "eu", "Nats-Msg-Id": f"{n}"},
}


async def fill(url: str, stream: str, messages: int, kind: str) -> None:
    """Publishes messages of 100 bytes under 1,000 subjects."""
    client = await connect(url)
    await client.jetstream().add_stream(name=stream, subjects=[f"{stream}.>"])
    for n in range(messages):
        await client.publish(f"{stream}.{n % 1000}", b"x" * 100, headers=KINDS[kind](n))
        if n % 1000 == 999:
            await client.flush()
    await client.flush()
    while (await client.jetstream().stream_info(stream)).state.messages < messages:
        await asyncio.sleep(0.1)
    await client.close()


def without_headers(reader: Reader, task: Task) -> Iterator[pa.RecordBatch]:
    """The counts of messages whose headers nobody reads."""

    def read(task: Task) -> Iterator[pa.RecordBatch]:
        for rows in reader(task):
            yield rows.append_column("headers", pa.nulls(len(rows), NONE))

    yield from read_counts(read, task)  # type: ignore[arg-type]


def spent(work: Callable[[], object]) -> float:
    """The processor seconds of this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def one_round(url: str, stream: str, messages: int) -> dict[str, float]:
    """The processor seconds of an ingest, and of both ways to count."""
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Warehouse(dir=Path(folder))
        server = NatsSettings(servers=url)
        asked = IngestSettings(stream=stream, server=server, warehouse=warehouse)
        costs = {"ingest": spent(lambda: ingest(SPARK, asked)), "with": 0.0, "without": 0.0}
        settings = CensusSettings(stream=stream, warehouse=warehouse)

        def count() -> None:
            assert census.census(SPARK, settings).messages == messages

        for way in ("with", "without", "without", "with"):
            with contextlib.ExitStack() as stack:
                if way == "without":
                    stack.enter_context(patch.object(census, "COLUMNS", WITHOUT))
                    stack.enter_context(patch.object(census, "read_counts", without_headers))
                costs[way] += spent(count) / 2
    return costs


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    worst = 0.0
    with nats_server() as server:
        asyncio.run(fill(server.url, "FIRST", 1_000, "Nats-Msg-Id"))
        one_round(server.url, "FIRST", 1_000)  # which imports what it needs
        for number, kind in enumerate(KINDS):
            stream = f"S{number}"
            asyncio.run(fill(server.url, stream, given.messages, kind))
            rounds = [one_round(server.url, stream, given.messages) for _ in range(given.rounds)]
            shares = [(one["with"] - one["without"]) / one["ingest"] for one in rounds]
            share = statistics.median(shares)
            worst = max(worst, share)
            each = {
                way: statistics.median(one[way] for one in rounds) / given.messages * 1e6
                for way in rounds[0]
            }
            print(
                f"{kind:24} ingest {each['ingest']:.2f} µs a message, count {each['with']:.2f}, "
                f"without headers {each['without']:.2f}: {share:.1%} of the ingest "
                f"({min(shares):.1%} to {max(shares):.1%})",
                flush=True,
            )
    sys.exit(worst > BUDGET)


if __name__ == "__main__":
    main()
