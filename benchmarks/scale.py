"""How the job `transform` grows: with the messages, and with the executors of a cluster.

    python benchmarks/scale.py [--messages 1 2 4 8 16] [--executors 1 2] [--rounds 3] [--payload 64]

Messages are in millions. The whole job (read, check, transform, write, commit) runs at `local[2]`
and on a standalone cluster on this machine, whose executors have one core and 1 GiB each; there a
driver takes a little of the same cores. Each line is the median of some rounds after one that warms
up. CPU seconds are of the driver, the executors and their Python.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from transform import MIXED, messages  # noqa: E402 - the other benchmark

from jobs import tables  # noqa: E402
from jobs.session import SparkSettings, spark_session  # noqa: E402
from jobs.transform import TransformSettings, publish, stage  # noqa: E402
from tests.support.spark_cluster import spark_cluster  # noqa: E402

LOCAL = "local[2]"
EXECUTOR = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.scheduler.minRegisteredResourcesRatio": "1",  # no task before all executors are there
}


@dataclass(frozen=True)
class Place:
    """Where the job runs.

    Attributes:
        sessions: ids of the sessions of processes whose processor time counts, beside our own.
    """

    name: str
    settings: SparkSettings
    environment: dict[str, str]
    sessions: tuple[int, ...] = ()


def warehouse(folder: Path, count: int) -> tables.Warehouse:
    return tables.Warehouse(dir=folder / str(count) / "warehouse")


def fill(folder: Path, counts: Sequence[int], payload: int) -> None:
    """Makes a table of messages for each number of them."""
    spark = spark_session(SparkSettings(master=LOCAL))
    for count in counts:
        table = tables.open_table(warehouse(folder, count), tables.MESSAGES, create=True)
        staged = tables.stage(messages(spark, count, payload), table, tables.MESSAGES)
        tables.publish(table, staged, "ORDERS", replace=True, properties={})


def measure(
    place: Place, folder: Path, counts: Sequence[int], rounds: int
) -> list[tuple[float, float]]:
    """Seconds, and processor seconds, of the job for each number of messages."""
    os.environ |= place.environment
    spark = spark_session(place.settings)
    sessions = (os.getsid(0), *place.sessions)
    found: list[tuple[float, float]] = []
    for count in counts:
        given = TransformSettings(
            stream="ORDERS", mapping=Path("-"), warehouse=warehouse(folder, count)
        )
        taken = []
        for turn in range(rounds + (count == counts[0])):
            print(f"{place.name}: {count:,} messages, round {turn}", file=sys.stderr)
            start, used = time.perf_counter(), processor_seconds(sessions)
            assert publish(stage(spark, given, MIXED, "version")).messages == count
            taken.append((time.perf_counter() - start, processor_seconds(sessions) - used))
            forget(given.warehouse)
        walls, processors = zip(*taken[-rounds:], strict=True)
        found.append((statistics.median(walls), statistics.median(processors)))
    spark.stop()
    return found


def forget(made: tables.Warehouse) -> None:
    """Drops what the job wrote: the next round has the same to do, and disks are small."""
    table = tables.open_table(made, tables.TRANSFORMED)
    tables.drop(table.location(), table)
    table.catalog.drop_table(table.name())


def processor_seconds(sessions: Sequence[int]) -> float:
    """What the processes of some sessions, and those they waited for, have used so far."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # no process, or one that ended just now
            continue
        if len(fields) > 14 and int(fields[3]) in sessions:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def apart(work, *given):  # type: ignore[no-untyped-def]
    """The result of a function in a process, and a session, of its own: with a fresh JVM."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=os.setsid) as pool:
        return pool.submit(work, *given).result()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = [1.0, 2.0, 4.0, 8.0, 16.0]
    parser.add_argument("--messages", type=float, nargs="+", default=sizes, help="millions")
    parser.add_argument("--executors", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--payload", type=int, default=64, help="bytes")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    counts = [round(millions * 1_000_000) for millions in sorted(options.messages)]
    lines = []
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as running:
        folder = Path(temporary)
        apart(fill, folder, counts, options.payload)
        here = Place(LOCAL, SparkSettings(master=LOCAL), {})
        lines += [(LOCAL, apart(measure, here, folder, counts, options.rounds))]
        if options.executors:
            cluster = running.enter_context(
                spark_cluster(folder / "cluster", workers=max(options.executors), java="")
            )
            workers = tuple(worker.process.pid for worker in cluster.workers)
        for number in options.executors:
            settings = SparkSettings(
                master=cluster.master, config=EXECUTOR | {"spark.cores.max": str(number)}
            )
            name = f"{number} executor{'s' if number > 1 else ''}"
            place = Place(name, settings, cluster.environment, workers)
            lines += [(name, apart(measure, place, folder, counts, options.rounds))]
    print("| where | messages | seconds | CPU seconds | messages/s | CPU µs/message |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, taken in lines:
        for count, (wall, processor) in zip(counts, taken, strict=True):
            print(
                f"| {name} | {count:,} | {wall:.2f} | {processor:.2f} | {count / wall:,.0f} "
                f"| {processor / count * 1e6:.2f} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
