"""What an audit costs beside counts that Spark makes of the same columns.

Run: python benchmarks/audit.py [--messages N] [--dir FOLDER] [--json]

Two audits, each whole, from opening the tables to the rows in `weight_audit`, as a command line
runs them: expected over `transformed_messages`, observed over `messages`. Beside each are two
counts by Spark: the plainest one, by cluster, hour and the first token of the subject, and one as
release 0.1.0 made it. Medians of several rounds, taken in turn; the ratios are of core seconds, so
that other work on the machine shows less. Fails where an observed audit is above a budget.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from frames import HEADERS, archive, read
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.audit.run import run as run_audit
from jobs.session import SessionOnDemand, spark_session
from jobs.settings.audit import AuditSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.transform import TransformSettings
from jobs.transform import transform
from jobs.warehouse import specs, tables
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.audit import Period
from nats_transform.config import mapping_version

BUDGETS = {"plain": 1.2, "before": 0.6}
ROUNDS = 5
# What the mappings below make: literal text, and how many tokens follow it; None: one or more.
SHAPES = [
    ("v1.orders.", 2),
    ("v2.orders.", 2),
    ("pay.a.", 1),
    ("pay.b.", 1),
    ("pay.", 1),
    ("metrics.", None),
    ("telemetry.", None),
]
MAPPINGS = AccountMappings(
    [
        Mapping(
            "orders.*.*", [Destination("v1.orders.$1.$2", 98), Destination("v2.orders.$1.$2", 2)]
        ),
        Mapping("pay.*", [Destination("pay.a.$1", 30), Destination("pay.b.$1", 60, "east")]),
        Mapping("telemetry.>", [Destination("metrics.>", 50)]),
    ]
)
VERSION = mapping_version(MAPPINGS, 0)


def make(spark: SparkSession, warehouse: tables.Warehouse, messages: int) -> None:
    """Stream IN with its messages transformed, and stream OUT with what came out."""
    kind = F.pmod(F.xxhash64("id"), F.lit(10))
    subject = (
        F.when(kind < 4, F.format_string("orders.eu-%d.%d", F.pmod("id", F.lit(7)), F.col("id")))
        .when(kind < 6, F.format_string("pay.%d", F.pmod("id", F.lit(1000))))
        .when(kind < 9, F.format_string("telemetry.site%d.temp", F.pmod("id", F.lit(500))))
        .otherwise(F.lit("other.subject"))
    )
    ts_ns = F.lit(1_772_323_200 * 10**9) + (F.col("id") - 1) * F.lit(86_400 * 10**9 // messages)
    rows = spark.range(1, messages + 1, numPartitions=8).select(
        F.lit("IN").alias("stream"),
        F.col("id").alias("seq"),
        F.timestamp_micros((ts_ns / 1000).cast("long")).alias("ts"),
        ts_ns.alias("ts_ns"),
        F.lit("2026-03-01").cast("date").alias("day"),
        subject.alias("subject"),
        F.element_at(
            F.array(*map(F.lit, ("east", "west", "north"))),
            (F.pmod("id", F.lit(3)) + 1).cast("int"),
        ).alias("cluster"),
        F.lit(None).cast(HEADERS).alias("headers"),
        F.lit(None).cast("binary").alias("headers_raw"),
        F.unhex(F.sha2(F.col("id").cast("string"), 512)).alias("data"),
    )
    table = tables.open_table(warehouse, specs.MESSAGES, create=True)
    archive(rows, table, "IN")
    settings = TransformSettings(stream="IN", mapping=Path("-"), warehouse=warehouse)
    transform(spark, settings, MAPPINGS)
    done = tables.open_table(warehouse, specs.TRANSFORMED)
    out = read(spark, done, specs.TRANSFORMED, "IN").where("mapped_subject IS NOT NULL")
    out = out.withColumn("subject", F.col("mapped_subject")).withColumn("stream", F.lit("OUT"))
    out = out.select(*specs.MESSAGES.rows.names)
    table.refresh()
    archive(out, table, "OUT")


def plain(rows: DataFrame) -> DataFrame:
    """Messages by cluster, hour and the first token of their subject, in the plainest way."""
    prefix = F.substring_index("subject", ".", 1).alias("prefix")
    return rows.groupBy("cluster", F.date_trunc("hour", "ts").alias("hour"), prefix).count()


def expected_before(rows: DataFrame) -> DataFrame:
    """Transformed messages by cluster, hour and outcome, as release 0.1.0 counted them."""
    outcome = F.xxhash64("mapping_source", "mapping_destination", "fate").alias("outcome")
    rows = rows.where(F.col("mapping_version") == VERSION)
    return rows.groupBy(_hour(), outcome, F.xxhash64("cluster").alias("cluster")).count()


def observed_before(rows: DataFrame) -> DataFrame:
    """Messages by cluster, hour and the shape of their subject, as release 0.1.0 counted them."""
    subject, fits = F.col("subject"), F.lit(0)
    for bit, (prefix, rest) in enumerate(SHAPES):
        size = F.octet_length(subject) - F.lit(len(prefix))
        if rest is None:
            is_fitting = subject.startswith(prefix) & (size > 0)
        else:
            last = F.substring_index(subject, ".", -rest)
            is_fitting = subject.startswith(prefix) & (F.octet_length(last) == size)
        fits = F.when(is_fitting, F.lit(1 << bit)).otherwise(fits)
    cluster = F.xxhash64("cluster").alias("cluster")
    return rows.groupBy(_hour(), cluster, fits.cast("long").alias("fits")).count()


def _hour() -> Column:
    return F.call_function("div", F.unix_micros("ts"), F.lit(3_600_000_000)).alias("hour")


def count(
    spark: SparkSession,
    warehouse: tables.Warehouse,
    spec: specs.TableSpec,
    stream: str,
    counted: Callable[[DataFrame], DataFrame],
) -> None:
    """Counts the rows of a stream with Spark."""
    rows = read(spark, tables.open_table(warehouse, spec), spec, stream)
    counted(rows).collect()


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and core-seconds of this process and its JVM."""
    start, used = time.perf_counter(), core_seconds()
    work()
    return time.perf_counter() - start, core_seconds() - used


def core_seconds() -> float:
    tick = os.sysconf("SC_CLK_TCK")
    total = time.process_time()
    for process in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = process.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == os.getpid():  # a child of ours: the JVM
                total += (int(fields[11]) + int(fields[12])) / tick
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--dir", type=Path, help="keep the archive there, and use it again")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    spark = spark_session(SparkSettings(master="local[2]"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.dir or Path(temporary)
        warehouse = tables.Warehouse(dir=folder / "warehouse")
        if not warehouse.folder.exists():
            make(spark, warehouse, options.messages)
        periods = [Period(MAPPINGS, VERSION)]
        expected = AuditSettings(stream="IN", mapping=Path("-"), warehouse=warehouse, by="hour")
        observed = expected.model_copy(update={"stream": "OUT", "observed": True})
        work = {
            "expected": (expected, specs.TRANSFORMED, expected_before),
            "observed": (observed, specs.MESSAGES, observed_before),
        }
        here = SessionOnDemand(SparkSettings())
        found: dict[str, Any] = {}
        for name, (settings, spec, before) in work.items():
            of = (spark, warehouse, spec, settings.stream)
            kinds: dict[str, Callable[[], object]] = {
                "plain": partial(count, *of, plain),
                "before": partial(count, *of, before),
                "audit": partial(run_audit, here, settings, periods),
            }
            rounds = [{kind: cost(do) for kind, do in kinds.items()} for _ in range(ROUNDS)]
            seconds, core = (
                {kind: median(one[kind][place] for one in rounds) for kind in kinds}
                for place in (0, 1)
            )
            found[name] = {
                "seconds": seconds,
                "core_seconds": core,
                "ratios": {kind: core["audit"] / core[kind] for kind in BUDGETS},
            }
    found["peak_python_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if options.json:
        print(json.dumps(found))
    else:
        for name in work:
            print(f"{name}, core seconds (seconds):")
            for kind, used in found[name]["core_seconds"].items():
                ratio = found[name]["ratios"].get(kind)
                told = f"; the audit is {ratio:.2f} of it" if ratio else ""
                print(f"  {kind:7} {used:6.2f} ({found[name]['seconds'][kind]:.2f}){told}")
    ratios = found["observed"]["ratios"]
    return 0 if all(ratios[kind] <= budget for kind, budget in BUDGETS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
