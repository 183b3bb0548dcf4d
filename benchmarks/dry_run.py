"""What a census and a dry run over many distinct subjects cost, in time and memory.

    python benchmarks/dry_run.py [--subjects 100000] [--messages N] [--heap 1g] [--rounds 3]
    python benchmarks/dry_run.py --step live [--subjects 100000]

Messages are made first (by default a ninth more than subjects). Then, each in a process of its own:

- the census job, in turn with a bare `groupBy(subject).count()` written to Parquet;
- a dry run over that census, from a cold command line: a weighted candidate with partitions against
  a current mapping, two streams, one with a limit per subject. No Spark starts.

The step `live` is a dry run of a nats-server, which counts the subjects.

Processor seconds, which a busy machine changes less, are those of all processes. Under a local
master the JVM is the executor too. What a step shows of memory includes the start of Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from backup import server_seconds  # noqa: E402 - the other benchmarks
from frames import HEADERS, archive, read  # noqa: E402
from ingest import Processes  # noqa: E402

from jobs.census import census  # noqa: E402
from jobs.jetstream.process import nats_server  # noqa: E402
from jobs.session import spark_session  # noqa: E402
from jobs.settings.census import CensusSettings  # noqa: E402
from jobs.settings.spark import SparkSettings  # noqa: E402
from jobs.warehouse import specs, tables  # noqa: E402
from tests.support.streams import Stream  # noqa: E402

STREAM = "BENCH"
CANDIDATE = """mappings {
  "orders.*.*": [
    { destination: "shop.$1.{{partition(16,2)}}.$2", weight: 90% }
    { destination: "canary.$1.$2", weight: 10% }
  ]
  "sensors.*.*": "lab.$2"
}
"""
CURRENT = 'mappings { "orders.*.*": "shop.$1.{{partition(12,2)}}.$2" }'
STREAMS = (
    {"name": "SHOP", "subjects": ["shop.>"], "max_msgs_per_subject": 1},
    {"name": "REST", "subjects": ["sensors.>", "lab.*"]},
)


def fill(spark: SparkSession, warehouse: tables.Warehouse, messages: int, subjects: int) -> None:
    """Writes messages under distinct subjects, those beyond under the first ones again."""
    number = F.col("id") % subjects
    ts = F.timestamp_micros(F.lit(1_772_366_400_000_000) + F.col("id"))
    rows = spark.range(messages).select(
        F.lit(STREAM).alias("stream"),
        (F.col("id") + 1).alias("seq"),
        ts.alias("ts"),
        (F.unix_micros(ts) * 1000).alias("ts_ns"),
        F.to_date(ts).alias("day"),
        F.concat_ws(
            ".",
            F.when(number % 10 == 0, "sensors").otherwise("orders"),
            F.concat(F.lit("area"), (F.xxhash64(number) % 50).cast("string")),
            F.concat(F.lit("item"), number.cast("string")),
        ).alias("subject"),
        F.lit(None).cast("string").alias("cluster"),
        F.lit(None).cast(HEADERS).alias("headers"),
        F.lit(None).cast("binary").alias("headers_raw"),
        F.encode(F.col("id").cast("string"), "UTF-8").alias("data"),
    )
    table = tables.open_table(warehouse, specs.MESSAGES, create=True)
    archive(rows, table, STREAM)


@dataclass(frozen=True)
class Cost:
    """What some work took.

    Attributes:
        seconds: by the clock.
        processors: seconds by kind of process.
    """

    seconds: float
    processors: Mapping[str, float]

    @property
    def processor(self) -> float:
        """Seconds of all processes."""
        return sum(self.processors.values())


KINDS = {"driver": "driver's Python", "java": "JVM", "python": "Python workers"}


def cost(processes: Processes, work: Callable[[], object]) -> Cost:
    """What some work takes."""
    before, start = processes.seconds(), time.perf_counter()
    work()
    seconds, after = time.perf_counter() - start, processes.seconds()
    return Cost(seconds, {kind: after[kind] - before.get(kind, 0) for kind in after})


def show(name: str, costs: Sequence[Cost]) -> tuple[float, float]:
    """One line of results; the medians of seconds and processor seconds are returned."""
    seconds = statistics.median(one.seconds for one in costs)
    processor = statistics.median(one.processor for one in costs)
    print(f"{name:26} {seconds:10.1f} s {processor:10.1f} processor s", flush=True)
    return seconds, processor


def compare(
    spark: SparkSession,
    processes: Processes,
    warehouse: tables.Warehouse,
    rounds: int,
    folder: Path,
) -> None:
    """Times the census and the bare count in turn."""
    table = tables.open_table(warehouse, specs.MESSAGES)

    def count() -> None:
        shutil.rmtree(folder / "count", ignore_errors=True)
        messages = read(spark, table, specs.MESSAGES, STREAM)
        messages.groupBy("subject").count().write.parquet(str(folder / "count"))

    def ours() -> None:
        census(spark, CensusSettings(stream=STREAM, warehouse=warehouse))

    if not rounds:
        show("census", [cost(processes, ours)])
        return
    found: tuple[list[Cost], list[Cost]] = [], []
    for _ in range(rounds):
        for costs, work in zip(found, (count, ours), strict=True):
            costs.append(cost(processes, work))
    bare = show("groupBy(subject).count()", found[0])
    full = show("census", found[1])
    ratio, processor = (one / other for one, other in zip(full, bare, strict=True))
    print(f"{'census to bare count':26} {ratio:10.2f}   {processor:10.2f}")


def try_candidate(warehouse: tables.Warehouse, folder: Path) -> None:
    """Times a dry run from a cold command line; its census is there."""
    (folder / "streams").mkdir()
    for config in STREAMS:
        (folder / "streams" / f"{config['name']}.json").write_text(json.dumps(config))
    given = ["--stream", STREAM, "--warehouse", str(warehouse.folder)]
    time_command(folder, [*given, "--streams", str(folder / "streams")])


def try_live(subjects: int, folder: Path) -> None:
    """Times a dry run of the streams of a server, each message under a subject of its own."""
    with nats_server() as server:
        stream = Stream(server, "orders")
        stream.run(lambda js: js.add_stream(name="orders", subjects=["orders.>"]))
        for config in STREAMS:
            stream.run(lambda js, config=config: js.add_stream(**config))
        stream.publish((b"area%d.item%d" % (n % 50, n), b"", b"%d" % n) for n in range(subjects))
        before = server_seconds(server)
        time_command(folder, ["--server", server.url])
        print(f"{'':26} processor seconds of the server: {server_seconds(server) - before:.1f}")


def time_command(folder: Path, given: Sequence[str]) -> None:
    """Prints what a dry run from a cold command line takes and finds."""
    (folder / "new.conf").write_text(CANDIDATE)
    (folder / "old.conf").write_text(CURRENT)
    command = [
        *(str(Path(sysconfig.get_path("scripts")) / "nats-transform"), "dry-run", "--json"),
        *("--candidate", str(folder / "new.conf"), "--mapping", str(folder / "old.conf")),
        *("--fail-on", "never", *given),
    ]
    start = time.perf_counter()
    with (folder / "found.json").open("w") as found:
        process = subprocess.Popen(command, stdout=found)
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"the dry run ended with {status}")
    show("dry run, cold", [Cost(time.perf_counter() - start, {"": used.ru_utime + used.ru_stime})])
    document = json.loads((folder / "found.json").read_text())
    codes = ", ".join(sorted({finding["code"] for finding in document["findings"]}))
    print(f"{'':26} {document['summary']['subjects']:,} subjects: {codes}")
    print(f"{'':26} peak memory: {used.ru_maxrss // 1024:,} MB")


def main() -> None:
    """Runs one step, or all of them in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=100_000)
    parser.add_argument("--messages", type=int, help="a ninth more than subjects by default")
    parser.add_argument("--heap", default="1g", help="of the JVM")
    parser.add_argument("--rounds", type=int, default=3, help="of census and count; 0: census only")
    parser.add_argument("--warehouse", type=Path, help="kept, and used again if it is there")
    parser.add_argument("--step", choices=("fill", "census", "dry-run", "live"))
    given = parser.parse_args()
    if given.step == "live":
        with tempfile.TemporaryDirectory() as made:
            try_live(given.subjects, Path(made))
        return
    if given.step is None:
        with tempfile.TemporaryDirectory() as made:
            folder = given.warehouse or Path(made) / "warehouse"
            steps = ("census", "dry-run") if folder.exists() else ("fill", "census", "dry-run")
            for step in steps:
                own = ["--step", step, "--warehouse", str(folder)]
                subprocess.run([sys.executable, *sys.argv, *own], check=True)
        return
    warehouse = tables.Warehouse(dir=given.warehouse)
    with tempfile.TemporaryDirectory() as made, Processes() as processes:
        if given.step == "dry-run":
            try_candidate(warehouse, Path(made))
            return
        spark = spark_session(SparkSettings(master="local[2]", driver_memory=given.heap))
        if given.step == "fill":
            messages = given.messages or given.subjects * 10 // 9
            fill(spark, warehouse, messages, given.subjects)
            return
        compare(spark, processes, warehouse, given.rounds, Path(made))
    names = KINDS | {"python": "largest Python worker"}
    peaks = [f"{names[kind]} {peak:,} MB" for kind, peak in sorted(processes.peaks.items())]
    print(f"{'':26} peak memory: {', '.join(peaks)}")


if __name__ == "__main__":
    main()
