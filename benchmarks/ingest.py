"""How fast a stream becomes a committed table, beside two ways of nats-py to read it and drop it.

    python benchmarks/ingest.py [--messages 1000000] [--size 100] [--rounds 3] [--spark] [--loop]

In each round, in turn: nats-py's ordered consumer, an ingest in this process, with `--spark` one in
a warm Spark session, and with `--loop` nats-py's loop of `fetch(1000)`, over a tenth of the
messages. Before the first round, an ingest from a cold command line. Prints messages/s, the
processor time of a message in all processes (which a busy machine changes less), medians of the
ratios within a round, and the peak memory of each kind of process. The server runs on the same
machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from nats import connect
from nats.js.api import AckPolicy, ConsumerConfig

from jobs.ingest import ingest
from jobs.jetstream.process import nats_server
from jobs.session import SessionOnDemand, Spark, spark_session
from jobs.settings.connection import NatsSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.warehouse import Warehouse

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
    """What this process and its descendants use, by kind: peak memory and processor time."""

    def __init__(self) -> None:
        self.peaks: dict[str, int] = {}
        self._spent: dict[int, tuple[str, int]] = {}
        self._lock = threading.Lock()
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
            self._look()

    def _look(self) -> None:
        with self._lock:
            for process, kind, ticks, pages in self._descendants():
                self._spent[process] = (kind, ticks)
                size = pages * os.sysconf("SC_PAGE_SIZE") // 2**20
                self.peaks[kind] = max(self.peaks.get(kind, 0), size)

    def seconds(self) -> dict[str, float]:
        """Processor seconds used so far, also by those that have ended, but for their last 0.2."""
        self._look()
        found: dict[str, float] = {}
        for kind, ticks in self._spent.values():
            found[kind] = found.get(kind, 0) + ticks / os.sysconf("SC_CLK_TCK")
        return found

    @staticmethod
    def _descendants() -> Iterator[tuple[int, str, int, int]]:
        """Number, kind, processor ticks and resident pages of this process and each descendant."""
        processes = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    name, _, rest = (entry / "stat").read_text().rpartition(")")
                except OSError:  # ended just now
                    continue
                fields = rest.split()
                kind = name.partition("(")[2]
                if not kind.startswith(("python", "nats-server", "nats-transform")):
                    kind = "java"  # which renames its main thread
                used = int(fields[11]) + int(fields[12])
                processes[int(entry.name)] = (int(fields[1]), kind, used, int(fields[21]))
        for process, (_, kind, used, pages) in processes.items():
            ancestor = process
            while ancestor in processes and ancestor != os.getpid():
                ancestor = processes[ancestor][0]
            if ancestor == os.getpid():
                yield process, "driver" if process == os.getpid() else kind, used, pages


class Bench:
    """Times ways to read the stream."""

    def __init__(self, messages: int, size: int, processes: Processes) -> None:
        self._messages, self._size, self._processes = messages, size, processes

    def time(self, name: str, work: Callable[[], object], messages: int = 0) -> tuple[float, float]:
        """Seconds and processor microseconds of a message; both are printed."""
        messages = messages or self._messages
        before, start = self._processes.seconds(), time.perf_counter()
        work()
        took, after = time.perf_counter() - start, self._processes.seconds()
        spent = {k: (after[k] - before.get(k, 0)) / messages * 1e6 for k in after}
        rate, whole = messages / took, sum(spent.values())
        kinds = ", ".join(f"{kind} {used:.2f}" for kind, used in sorted(spent.items()))
        print(
            f"{name:24} {rate:9,.0f} msg/s {rate * self._size / 1e6:7.1f} MB/s; "
            f"processor µs a message: {whole:.2f} ({kinds})",
            flush=True,
        )
        return took / messages, whole


def into_table(spark: Spark, url: str, messages: int) -> None:
    """An ingest into a new warehouse."""
    with tempfile.TemporaryDirectory() as folder:
        settings = IngestSettings(
            stream=STREAM,
            server=NatsSettings(servers=url),
            warehouse=Warehouse(dir=Path(folder)),
        )
        assert ingest(spark, settings).messages == messages


def cold(url: str) -> None:
    """The same from the command line."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["nats-transform", "ingest", "--stream", STREAM, "--server", url]
        subprocess.run(
            [Path(sys.executable).parent / command[0], *command[1:], "--warehouse", folder],
            check=True,
            capture_output=True,
        )


def baseline(work: Callable[[str, int], Awaitable[None]], url: str, messages: int) -> None:
    """One way of nats-py to read the stream."""
    asyncio.run(work(url, messages))  # type: ignore[arg-type]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--heap", default="2g", help="of the JVM")
    given = parser.parse_args()
    count = given.messages
    with nats_server() as server, Processes() as processes:
        url = server.url
        asyncio.run(fill(url, count, given.size))
        bench = Bench(count, given.size, processes)
        load = os.getloadavg()[0]
        print(f"{count:,} messages of {given.size} bytes; load of the machine {load:.1f}")
        ways: dict[str, tuple[Callable[[], object], int]] = {
            "ordered consumer": (lambda: baseline(ordered, url, count), count),
            "ingest, this process": (
                lambda: into_table(SessionOnDemand(SparkSettings()), url, count),
                count,
            ),
        }
        if given.spark:
            spark = spark_session(SparkSettings(master="local[2]", driver_memory=given.heap))
            ways["ingest, Spark"] = lambda: into_table(spark, url, count), count
        if given.loop:
            part = max(1000, count // 10_000 * 1000)
            ways["fetch(1000) loop"] = lambda: baseline(fetch_loop, url, part), part
        rounds = [{"ingest, cold": bench.time("ingest, cold", lambda: cold(url))}]
        for _ in range(given.rounds):
            rounds.append({name: bench.time(name, *way) for name, way in ways.items()})
    first = rounds[1]["ordered consumer"]
    rounds[0]["ordered consumer"] = first
    for name in {name: None for one in rounds for name in one}:
        found = [one for one in rounds if name in one]
        speed = statistics.median(one["ordered consumer"][0] / one[name][0] for one in found)
        spent = statistics.median(one[name][1] for one in found)
        print(f"{name:24} {speed:.2f} times the ordered consumer, {spent:.2f} µs of a core")
    for kind, peak in sorted(processes.peaks.items()):
        print(f"peak memory of {kind:16} {peak:8,} MB")


if __name__ == "__main__":
    main()
