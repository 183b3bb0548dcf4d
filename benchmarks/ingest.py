"""How fast a stream becomes a committed table, beside two ways of nats-py to read it and drop it.

    python benchmarks/ingest.py [--messages 1000000] [--size 100] [--baselines] [--heap 512m]

Prints messages/s, MB/s of payload, the processor time of a message (which a busy machine changes
less), what the JVM's heap holds after a collection, and the peak memory of the JVM, of this process
(the driver's Python) and of the largest Python worker. The server runs on the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from nats import connect
from nats.js.api import AckPolicy, ConsumerConfig
from pyspark.sql import SparkSession

from jobs.ingest import IngestSettings, ingest
from jobs.jetstream.connection import NatsSettings
from jobs.jetstream.process import NatsServer, nats_server
from jobs.session import SparkSettings, spark_session
from jobs.warehouse.tables import Warehouse

STREAM = "BENCH"


async def fill(url: str, messages: int, size: int) -> None:
    """Publishes messages with random payloads, which no store or file format can shrink."""
    client = await connect(url)
    js = client.jetstream()
    await js.add_stream(name=STREAM, subjects=["bench.>"])
    noise = os.urandom(1024 * 1024 + size)
    for n in range(messages):
        start = (n * 997) % (1024 * 1024)
        await client.publish(f"bench.{n % 1000}", noise[start : start + size])
        if n % 1000 == 999:
            await client.flush()
    await client.flush()
    while (await js.stream_info(STREAM)).state.messages < messages:
        await asyncio.sleep(0.1)
    await client.close()


async def fetch_loop(url: str, messages: int) -> None:
    """nats-py's pull consumer, a thousand messages at a time, which are only counted."""
    client = await connect(url)
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await client.jetstream().pull_subscribe("", stream=STREAM, config=config)
    seen = 0
    while seen < messages:
        seen += len(await subscription.fetch(1000))
    await client.close()


async def ordered(url: str, messages: int) -> None:
    """nats-py's ordered push consumer, whose messages are only counted."""
    client = await connect(url)
    done, seen = asyncio.Event(), 0

    async def count(_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == messages:
            done.set()

    await client.jetstream().subscribe("bench.>", cb=count, ordered_consumer=True)
    await done.wait()
    await client.close()


class Processes:
    """What this process's descendants use, by kind: peak resident memory and processor time."""

    def __init__(self) -> None:
        self.peaks: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Processes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for kind, _, pages in self._descendants():
                size = pages * os.sysconf("SC_PAGE_SIZE") // 2**20
                self.peaks[kind] = max(self.peaks.get(kind, 0), size)

    def seconds(self) -> dict[str, float]:
        """Processor seconds used so far, those of ended children included."""
        found: dict[str, float] = {}
        for kind, ticks, _ in self._descendants():
            found[kind] = found.get(kind, 0) + ticks / os.sysconf("SC_CLK_TCK")
        return found

    @staticmethod
    def _descendants() -> Iterator[tuple[str, int, int]]:
        """Kind, processor ticks and resident pages of each descendant, and of this process."""
        processes = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    name, _, rest = (entry / "stat").read_text().rpartition(")")
                except OSError:  # ended just now
                    continue
                fields = rest.split()
                kind = name.partition("(")[2]
                if not kind.startswith(("python", "nats-server")):
                    kind = "java"  # which renames its main thread
                used = sum(int(field) for field in fields[11:15])
                processes[int(entry.name)] = (int(fields[1]), kind, used, int(fields[21]))
        for process, (_, kind, used, pages) in processes.items():
            ancestor = process
            while ancestor in processes and ancestor != os.getpid():
                ancestor = processes[ancestor][0]
            if ancestor == os.getpid():
                yield "driver" if process == os.getpid() else kind, used, pages


def report(name: str, seconds: float, messages: int, size: int) -> None:
    """One line of results."""
    rate = messages / seconds
    print(f"{name:28} {rate:12,.0f} msg/s {rate * size / 1e6:9.1f} MB/s {seconds:8.2f} s")


def baseline(name: str, work: Callable[[], Awaitable[None]], messages: int, size: int) -> None:
    """Times one way to read the stream."""
    start = time.perf_counter()
    asyncio.run(work())  # type: ignore[arg-type]
    report(name, time.perf_counter() - start, messages, size)


def live_heap(spark: SparkSession) -> float:
    """MB of the JVM's heap that are still in use after a full collection."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    memory = jvm.java.lang.Runtime.getRuntime()
    return float(memory.totalMemory() - memory.freeMemory()) / 2**20


def measure(server: NatsServer, messages: int, size: int, runs: int, heap: str) -> None:
    """Ingests the stream into new warehouses; the first run also warms up."""
    spark = spark_session(SparkSettings(master="local[2]", driver_memory=heap))
    settings = {"stream": STREAM, "server": NatsSettings(servers=server.url)}
    with Processes() as processes:
        for run in range(runs):
            with tempfile.TemporaryDirectory() as folder:
                warehouse = Warehouse(dir=Path(folder))
                before, start = processes.seconds(), time.perf_counter()
                result = ingest(spark, IngestSettings(warehouse=warehouse, **settings))
                took, after = time.perf_counter() - start, processes.seconds()
            assert result.messages == messages
            report(f"stream to table, run {run + 1}", took, messages, size)
            spent = {k: (after[k] - before.get(k, 0)) / messages * 1e6 for k in after}
            shown = ", ".join(f"{kind} {used:.2f}" for kind, used in sorted(spent.items()))
            print(f"    processor microseconds a message: {sum(spent.values()):.2f} ({shown})")
            print(f"    live heap after a collection: {live_heap(spark):.0f} MB of {heap}")
    for kind, peak in sorted(processes.peaks.items()):
        print(f"peak memory of {kind:16} {peak:8,} MB")


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--baselines", action="store_true")
    parser.add_argument("--heap", default="2g", help="of the JVM")
    given = parser.parse_args()
    with nats_server() as server:
        asyncio.run(fill(server.url, given.messages, given.size))
        load = os.getloadavg()[0]
        print(f"{given.messages:,} messages of {given.size} bytes; load of the machine {load:.1f}")
        if given.baselines:
            for name, work in (("nats-py fetch(1000)", fetch_loop), ("nats-py ordered", ordered)):
                baseline(
                    name, lambda w=work: w(server.url, given.messages), given.messages, given.size
                )
        measure(server, given.messages, given.size, given.runs, given.heap)


if __name__ == "__main__":
    main()
