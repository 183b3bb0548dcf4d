"""What an audit costs beside a plain Spark scan-and-count of the same columns.

Run: python benchmarks/audit.py [--messages N] [--dir FOLDER] [--json]

Two audits, each whole, from opening the tables to the rows in `weight_audit`: expected over
`transformed_messages` and observed over `messages`. Beside each two scans of the columns which that
audit needs: one counts what is in each column, the other counts by cluster and hour, as the audit
must at least. The best of several rounds, taken in turn; the ratio is of core-seconds, so that
other work on the machine hardly shows. Fails where it is above the budget, against the first scan.
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
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from jobs.audit.run import run as run_audit
from jobs.audit.settings import AuditSettings
from jobs.session import SparkSettings, spark_session
from jobs.transform import TransformSettings, publish, stage
from jobs.warehouse import specs, staging, tables
from jobs.warehouse.schema import HEADERS
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.audit import Period

BUDGET = 1.3
ROUNDS = 8
MAPPINGS = AccountMappings(
    [
        Mapping(
            "orders.*.*", [Destination("v1.orders.$1.$2", 98), Destination("v2.orders.$1.$2", 2)]
        ),
        Mapping("pay.*", [Destination("pay.a.$1", 30), Destination("pay.b.$1", 60, "east")]),
        Mapping("telemetry.>", [Destination("metrics.>", 50)]),
    ]
)


def make(spark: SparkSession, warehouse: tables.Warehouse, messages: int) -> None:
    """Stream IN with its messages transformed, and stream OUT with what came out."""
    kind = F.pmod(F.xxhash64("id"), F.lit(10))
    subject = (
        F.when(kind < 4, F.format_string("orders.eu-%d.%d", F.pmod("id", F.lit(7)), F.col("id")))
        .when(kind < 6, F.format_string("pay.%d", F.pmod("id", F.lit(1000))))
        .when(kind < 9, F.format_string("telemetry.site%d.temp", F.pmod("id", F.lit(500))))
        .otherwise(F.lit("other.subject"))
    )
    ts_ns = F.lit(1_772_323_200 * 10**9) + F.col("id") * F.lit(86_400 * 10**9 // messages)
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
    staging.publish(
        table, staging.stage(rows, table, specs.MESSAGES), "IN", replace=True, properties={}
    )
    settings = TransformSettings(stream="IN", mapping=Path("-"), warehouse=warehouse)
    publish(stage(spark, settings, MAPPINGS, "v"))
    done = tables.open_table(warehouse, specs.TRANSFORMED)
    out = tables.read(spark, done, specs.TRANSFORMED, "IN").where("mapped_subject IS NOT NULL")
    out = out.withColumn("subject", F.col("mapped_subject")).withColumn("stream", F.lit("OUT"))
    out = out.select(*specs.MESSAGES.spark_schema.names)
    table.refresh()
    staging.publish(
        table, staging.stage(out, table, specs.MESSAGES), "OUT", replace=True, properties={}
    )


def scan(
    spark: SparkSession,
    warehouse: tables.Warehouse,
    spec: specs.TableSpec,
    stream: str,
    columns: list[str],
    *groups: Column,
) -> None:
    """Reads some columns and counts what is in each, in each of the groups if there are any."""
    rows = tables.read(spark, tables.open_table(warehouse, spec), spec, stream)
    rows.groupBy(*groups).agg(*(F.count(column) for column in columns)).collect()


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
        periods = [Period(MAPPINGS, "v")]
        expected = AuditSettings(stream="IN", mapping=Path("-"), warehouse=warehouse, by="hour")
        observed = expected.model_copy(update={"stream": "OUT", "observed": True})
        work: dict[str, tuple[AuditSettings, specs.TableSpec, list[str]]] = {
            "expected": (
                expected,
                specs.TRANSFORMED,
                ["mapping_version", "mapping_source", "mapping_destination", "fate"],
            ),
            "observed": (observed, specs.MESSAGES, ["subject"]),
        }
        found: dict[str, Any] = {}
        for name, (settings, spec, columns) in work.items():
            of = (spark, warehouse, spec, settings.stream)
            plain = partial(scan, *of, [*columns, "cluster", "ts"])
            hour = F.date_trunc("hour", "ts").alias("hour")
            grouped = partial(scan, *of, columns, F.col("cluster"), hour)
            audit = partial(run_audit, spark, settings, periods)
            costs = [(cost(plain), cost(grouped), cost(audit)) for _ in range(ROUNDS)]
            scans, by_hour, audits = (
                [min(kinds) for kinds in zip(*turns, strict=True)]
                for turns in zip(*costs, strict=True)
            )
            found[name] = {
                "scan_seconds": scans[0],
                "scan_by_hour_seconds": by_hour[0],
                "audit_seconds": audits[0],
                "scan_core_seconds": scans[1],
                "scan_by_hour_core_seconds": by_hour[1],
                "audit_core_seconds": audits[1],
                "ratio": audits[1] / scans[1],
                "ratio_by_hour": audits[1] / by_hour[1],
            }
    found["peak_python_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if options.json:
        print(json.dumps(found))
    else:
        for name in work:
            values = ", ".join(f"{key} {value:.2f}" for key, value in found[name].items())
            print(f"{name}: {values}")
    return 0 if all(found[name]["ratio"] <= BUDGET for name in work) else 1


if __name__ == "__main__":
    sys.exit(main())
