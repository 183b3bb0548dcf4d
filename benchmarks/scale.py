"""How the job `transform` grows: with the messages, and with the executors of a cluster.

    python benchmarks/scale.py [--messages 1 2 4 8 16] [--executors 1 2] [--rounds 3] [--payload 64]
                               [--places "one process" "local[2]"] [--one-file]

Messages are in millions. With --one-file a day is one Parquet file, which only its row groups can
divide. The whole job (read, check, transform, write, commit) runs in one process
without Spark, at `local[2]`, and on a standalone cluster on this machine, whose executors have one
core and 1 GiB each; there a driver takes a little of the same cores. Each line is the median of
some rounds after one that warms up. CPU seconds are of the driver, the executors and their Python.
Memory is the most that a process had resident in these rounds: the Python that started the job, and
the largest Python worker of Spark.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from frames import archive  # noqa: E402
from transform import MIXED, messages  # noqa: E402 - the other benchmark

from jobs.session import SessionOnDemand, spark_session  # noqa: E402
from jobs.settings.spark import SparkSettings  # noqa: E402
from jobs.settings.transform import TransformSettings  # noqa: E402
from jobs.transform import transform  # noqa: E402
from jobs.warehouse import specs, tables  # noqa: E402
from jobs.warehouse.folder import CATALOG_FILE  # noqa: E402
from jobs.warehouse.paths import NAMESPACE  # noqa: E402
from tests.support.spark_cluster import spark_cluster  # noqa: E402

PROCESS = "one process"
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


def fill(folder: Path, counts: Sequence[int], payload: int, is_one_file: bool) -> None:
    """Makes a table of messages for each number of them."""
    spark = spark_session(SparkSettings(master=LOCAL))
    for count in counts:
        table = tables.open_table(warehouse(folder, count), specs.MESSAGES, create=True)
        rows = messages(spark, count, payload)
        staged = archive(rows.coalesce(1) if is_one_file else rows, table, "ORDERS")
        sizes = [file.file_size_in_bytes >> 20 for file in staged.data_files]
        print(f"{count:,} messages: files of {sizes} MiB", file=sys.stderr)


@dataclass(frozen=True)
class Taken:
    """What a number of messages took: seconds, and MiB of memory."""

    wall: float
    processor: float
    driver: int
    worker: int


def measure(place: Place, folder: Path, counts: Sequence[int], rounds: int) -> list[Taken]:
    """What the job takes for each number of messages."""
    os.environ |= place.environment
    settings = SparkSettings() if place.name == PROCESS else place.settings
    spark = SessionOnDemand(settings) if place.name == PROCESS else spark_session(settings)
    sessions = (os.getsid(0), *place.sessions)
    found: list[Taken] = []
    for count in counts:
        given = TransformSettings(
            stream="ORDERS", mapping=Path("-"), warehouse=warehouse(folder, count)
        )
        taken, driver, worker = [], 0, 0
        for turn in range(rounds + (count == counts[0])):
            print(f"{place.name}: {count:,} messages, round {turn}", file=sys.stderr)
            forget_peaks(sessions)
            start, used = time.perf_counter(), processor_seconds(sessions)
            assert transform(spark, given, MIXED).messages == count
            taken.append((time.perf_counter() - start, processor_seconds(sessions) - used))
            peaks = dict(peak_memory(sessions))
            driver = max(driver, peaks.pop(os.getpid()))
            worker = max([worker, *peaks.values()])
            forget(given.warehouse)
        walls, processors = zip(*taken[-rounds:], strict=True)
        found.append(Taken(statistics.median(walls), statistics.median(processors), driver, worker))
    if not isinstance(spark, SessionOnDemand):
        spark.stop()
    return found


def forget(made: tables.Warehouse) -> None:
    """Drops what the job wrote: the next round has the same to do, and disks are small."""
    # Ours drops no tables, and PyIceberg's opens the same file.
    catalog = SqlCatalog("nats-transform", uri=f"sqlite:///{made.folder / CATALOG_FILE}")
    catalog.drop_table((NAMESPACE, specs.TRANSFORMED.name))
    catalog.close()
    shutil.rmtree(made.folder / "nats" / specs.TRANSFORMED.name)


def processes(sessions: Sequence[int]) -> Iterator[tuple[Path, str, list[str]]]:
    """The processes of some sessions: folder, name, and the fields of `stat` after the name."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            before, _, rest = (entry / "stat").read_text().rpartition(")")
        except OSError:  # no process, or one that ended just now
            continue
        if len(fields := rest.split()) > 14 and int(fields[3]) in sessions:
            yield entry, before.partition("(")[2], fields


def processor_seconds(sessions: Sequence[int]) -> float:
    """What the processes of some sessions, and those they waited for, have used so far."""
    ticks = sum(sum(map(int, fields[11:15])) for _, _, fields in processes(sessions))
    return ticks / os.sysconf("SC_CLK_TCK")


def forget_peaks(sessions: Sequence[int]) -> None:
    """Lets Linux forget how much memory these processes had at most."""
    for entry, _, _ in processes(sessions):
        with suppress(OSError):
            (entry / "clear_refs").write_text("5")


def peak_memory(sessions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The Python processes of some sessions, and MiB of memory that each had at most."""
    for entry, name, _ in processes(sessions):
        with suppress(OSError, IndexError):
            status = (entry / "status").read_text()
            if name.startswith("python"):
                yield int(entry.name), int(status.split("VmHWM:")[1].split()[0]) // 1024


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
    parser.add_argument("--one-file", action="store_true", help="a day is one file")
    parser.add_argument("--places", nargs="*", default=[PROCESS, LOCAL], choices=[PROCESS, LOCAL])
    options = parser.parse_args()
    counts = [round(millions * 1_000_000) for millions in sorted(options.messages)]
    lines = []
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as running:
        folder = Path(temporary)
        apart(fill, folder, counts, options.payload, options.one_file)
        for name in options.places:
            here = Place(name, SparkSettings(master=LOCAL), {})
            lines += [(name, apart(measure, here, folder, counts, options.rounds))]
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
    columns = "where messages seconds CPU-seconds messages/s CPU-µs/message driver-MiB worker-MiB"
    print("|", columns.replace(" ", " | "), "|")
    print("|---|" + "---:|" * columns.count(" "))
    for name, taken in lines:
        for count, one in zip(counts, taken, strict=True):
            print(
                f"| {name} | {count:,} | {one.wall:.2f} | {one.processor:.2f} "
                f"| {count / one.wall:,.0f} | {one.processor / count * 1e6:.2f} "
                f"| {one.driver} | {one.worker} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
