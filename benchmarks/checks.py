"""What the checks of a day cost beside its transform.

Run: python benchmarks/checks.py [--messages N] [--json]

The transform job runs over one day that the ingest job put into a real warehouse; its checks run
where Dagster runs them, between writing and publishing, and the suite of `messages` runs on the
same day, both with all that Dagster gives them to compare. Reported are the seconds that passed and
the processor seconds of this process and its JVM, which a busy machine disturbs less; the best of
several rounds. Fails if all checks together take more than 40 % of the time of the transform.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from expectations.measures.digests import row_hash
from expectations.suites import Reference
from expectations.validation import validate_messages, validate_transformed_messages
from jobs.ingest import IngestSettings, ingest
from jobs.session import SparkSettings, spark_session
from jobs.transform import TransformSettings, publish, stage
from jobs.warehouse import specs, tables
from jobs.warehouse.accounting import Archived
from nats_transform import AccountMappings, Destination, Mapping

BUDGET = 0.40
ROUNDS = 4  # the first ones warm the JVM up
STREAM = "SHOP"
VERSION = "0f" * 32
MAPPINGS = AccountMappings(
    [
        Mapping("orders.*.*", [Destination("orders.{{partition(16,2)}}.$1.$2")]),
        Mapping(
            "cart.*.*",
            [
                Destination("cart.v1.$1.$2", 70),
                Destination("cart.v2.$1.$2", 30),
                Destination("cart.east.$2.$1", 100, "east"),
            ],
        ),
        Mapping("telemetry.*.>", [Destination("plant.{{splitfromleft(1,3)}}.>")]),
        Mapping("beat", [Destination("beat", 25), Destination("pulse", 25)]),
    ]
)


@dataclass
class Cost:
    """Seconds that passed, and processor seconds."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu)

    def __truediv__(self, other: Cost) -> Cost:
        return Cost(self.wall / other.wall, self.cpu / other.cpu)

    def __str__(self) -> str:
        return f"{self.wall:6.2f} s, {self.cpu:6.2f} s of processor"


class Meter:
    """Measures what this process and its JVM use."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm  # type: ignore[attr-defined]
        pid = int(jvm.java.lang.ProcessHandle.current().pid())
        self._stat = Path(f"/proc/{pid}/stat")

    def _cpu(self) -> float:
        fields = self._stat.read_text(encoding="ascii").rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])  # user and system time
        return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()

    @contextmanager
    def measure(self) -> Iterator[Cost]:
        cost, wall, cpu = Cost(), time.perf_counter(), self._cpu()
        yield cost
        cost.wall, cost.cpu = time.perf_counter() - wall, self._cpu() - cpu


def make(spark: SparkSession, folder: Path, messages: int) -> None:
    """Ingests one day of a stream, with headers and payloads."""
    kind, number = (
        F.pmod(F.xxhash64("id"), F.lit(10)),
        F.pmod(F.xxhash64("id", F.lit(1)), F.lit(50_000)),
    )
    subject = (
        F.when(kind < 4, F.format_string("orders.eu-%d.c%d", F.pmod("id", F.lit(7)), number))
        .when(kind < 6, F.format_string("cart.c%d.%d", number, F.pmod("id", F.lit(90))))
        .when(kind < 8, F.format_string("telemetry.ber%d.temp.max", F.pmod("id", F.lit(500))))
        .when(kind < 9, F.lit("beat"))
        .otherwise(F.lit("other.subject"))
    )
    step = 86_400 * 10**6 // messages
    micros = F.lit(1_772_323_200 * 10**6) + F.col("id") * F.lit(step)
    cluster = F.element_at(
        F.array(*map(F.lit, ("east", "west", "north"))), (F.pmod("id", F.lit(3)) + 1).cast("int")
    )
    rows = spark.range(messages, numPartitions=8).select(
        (F.col("id") + 1).alias("seq"),
        F.timestamp_micros(micros).alias("ts"),
        subject.alias("subject"),
        cluster.alias("cluster"),
        F.array(
            F.struct(F.lit("Nats-Msg-Id").alias("name"), F.hex("id").alias("value")),
            F.struct(F.lit("Cluster").alias("name"), cluster.alias("value")),
        ).alias("headers"),
        F.unhex(F.sha2(F.col("id").cast("string"), 512)).alias("data"),
    )
    dump = folder / "dump"
    rows.write.parquet(str(dump))
    warehouse = tables.Warehouse(dir=folder / "warehouse")
    ingest(spark, IngestSettings(stream=STREAM, parquet=str(dump), warehouse=warehouse))


def one_round(spark: SparkSession, folder: Path, messages: int) -> dict[str, Cost]:
    """The cost of a transform, and of the checks of both tables."""
    warehouse, meter = tables.Warehouse(dir=folder / "warehouse"), Meter(spark)
    costs: dict[str, Cost] = {}
    settings = TransformSettings(stream=STREAM, mapping=Path("-"), warehouse=warehouse)
    with meter.measure() as costs["transform"]:
        staged = stage(spark, settings, MAPPINGS, VERSION)
    with meter.measure() as costs["transformed_messages"]:
        report = validate_transformed_messages(
            staged.rows(spark),
            MAPPINGS,
            folder / "checks",
            name=STREAM,
            archive=Reference(staged.archive.rows, str(staged.archive)),
            version=VERSION,
            written=staged.result.digest,
            before=staged.before,
            archive_hash=row_hash(specs.MESSAGES.spark_schema),
            table_hash=row_hash(specs.TRANSFORMED.spark_schema),
        )
    reports = [report]
    with meter.measure() as commit:
        publish(staged)
    costs["transform"] += commit
    table = tables.open_table(warehouse, specs.MESSAGES)
    with meter.measure() as costs["messages"]:
        archived = Archived.of(table, STREAM)
        counted = archived.digest_of()
        report = validate_messages(
            tables.read(spark, table, specs.MESSAGES, STREAM),
            folder / "checks",
            name=STREAM,
            ingested=Reference(counted.rows, str(counted)),
            explained=archived.coverage.ranges,
            row_hash=row_hash(specs.MESSAGES.spark_schema),
        )
        reports.append(report)
    for report in reports:
        assert report.success, str(report)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    spark = spark_session(SparkSettings(master="local[2]"))
    with tempfile.TemporaryDirectory(prefix="nats-transform-") as folder:
        make(spark, Path(folder), options.messages)
        rounds = [one_round(spark, Path(folder), options.messages) for _ in range(ROUNDS)]
    best = {
        name: Cost(min(r[name].wall for r in rounds), min(r[name].cpu for r in rounds))
        for name in ("transform", "transformed_messages", "messages")
    }
    of_checks = [best["transformed_messages"], best["messages"]]
    checks = Cost(sum(c.wall for c in of_checks), sum(c.cpu for c in of_checks))
    share = checks / best["transform"]
    if options.json:
        found = {name: vars(cost) for name, cost in best.items()}
        print(json.dumps({"messages": options.messages, **found, "share": vars(share)}))
    else:
        print(f"{options.messages:,} messages, best of {ROUNDS}")
        for name, cost in best.items():
            print(f"{name:22}{cost}")
        print(f"all checks: {share.wall:.0%} of the transform ({share.cpu:.0%} of its processor)")
    spark.stop()
    sys.exit(share.wall > BUDGET)


if __name__ == "__main__":
    main()
