"""What transforms cost beside the things people could use instead, in one run.

    python benchmarks/transform.py [--messages N] [--payload BYTES...] [--only GROUP...]

Every line is the median of `--rounds` that are taken in turn, so that a busy moment hits all.
Seconds of the wall clock and, since a busy machine changes them less, of the processor: of this
process, the JVM and Spark's Python workers. Groups: `noop`, `parquet`, `rules`, `keys`, `growth`,
`server`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlparse

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from frames import HEADERS, archive, read
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.files.engine import PROCESS_BYTES
from jobs.jetstream.process import nats_server
from jobs.maintain import maintain
from jobs.session import SessionOnDemand, Spark, spark_session
from jobs.settings.maintain import MaintenanceSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.transform import TransformSettings
from jobs.transform import transform
from jobs.warehouse import specs, tables
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.mappings.functions import fnv1a
from nats_transform.spark import apply

CORES = 2
GROUPS = ("noop", "parquet", "rules", "keys", "growth", "server")
BY_PAYLOAD = ("noop", "parquet", "server")
"""The others are measured with the first payload only."""
MIXED = AccountMappings(
    [
        Mapping(
            "orders.*.*",
            [
                Destination("orders.v2.$2.$1", 50),
                Destination("orders.p.{{partition(16,2)}}.$1.$2", 30),
                Destination("orders.s.$1.{{splitfromleft(2,5)}}", 20),
                Destination("east.orders.$1.$2", 100, "east"),
            ],
        )
    ]
)
SERVER_MAPPINGS = """
mappings {
  "orders.*.*": [
    { destination: "orders.v2.$2.$1", weight: 50 }
    { destination: "orders.p.{{partition(16,2)}}.$1.$2", weight: 30 }
    { destination: "orders.s.$1.{{splitfromleft(2,5)}}", weight: 20 }
  ]
}
"""
SERVER_MESSAGES = 1_000_000
"""As many go through the server; its time is scaled to the others' number."""


@dataclass
class Line:
    """One line of the table; the other lines of its group are compared with its first."""

    group: str
    name: str
    work: Callable[[], object]
    messages: int
    tidy: Callable[[], object] = lambda: None
    """Is not measured."""


def messages(spark: SparkSession, count: int, payload: int, key: int = 12) -> DataFrame:
    """Messages of a day; nine of ten subjects are there once, a fifth comes from cluster east."""
    hash64 = F.xxhash64("id", F.lit(1))
    region = F.element_at(
        F.array(*map(F.lit, ("eu", "us", "apac", "latam"))),
        (F.pmod(hash64, F.lit(4)) + 1).cast("int"),
    )
    number = F.pmod(hash64, F.lit(5 * count)).cast("string")
    ts_ns = F.lit(1_772_323_200 * 10**9) + F.col("id") * F.lit(86_400 * 10**9 // count)
    noise = [
        F.lpad(F.hex(F.xxhash64("id", F.lit(part))), 16, "0")
        for part in range(max(payload // 8, 1))
    ]
    return spark.range(1, count + 1, numPartitions=4 * CORES).select(
        F.lit("ORDERS").alias("stream"),
        F.col("id").alias("seq"),
        F.timestamp_micros((ts_ns / 1000).cast("long")).alias("ts"),
        ts_ns.alias("ts_ns"),
        F.lit("2026-03-01").cast("date").alias("day"),
        F.concat(F.lit("orders."), region, F.lit("."), F.lpad(number, key, "c-0")).alias("subject"),
        F.when(F.pmod(hash64, F.lit(10)) < 2, "east")
        .when(F.pmod(hash64, F.lit(10)) < 8, "west")
        .alias("cluster"),
        F.lit(None).cast(HEADERS).alias("headers"),
        F.lit(None).cast("binary").alias("headers_raw"),
        F.unhex(F.concat(*noise)).alias("data"),
    )


def rules(count: int) -> AccountMappings:
    """Mappings of mixed shapes of which one in `count` covers what `rule_subjects` makes."""
    shapes = [
        ("r{0}.*.*", "x{0}.$2.$1"),
        ("r{0}.a.*", "y.$1.z{0}"),
        ("r{0}.>", "t{0}.>"),
        ("*.s{0}.*", "u.$1.$2.v{0}"),
    ]
    made = []
    for number in range(count):
        source, destination = shapes[number % 4]
        made.append(Mapping(source.format(number), [Destination(destination.format(number), 100)]))
    return AccountMappings(made)


def rule_subjects(frame: DataFrame, count: int) -> DataFrame:
    """The messages with subjects that the mappings of `rules(count)` cover evenly."""
    number = F.pmod(F.xxhash64("seq", F.lit(7)), F.lit(count))
    kind = F.pmod(number, F.lit(4))
    key = F.substring("subject", -12, 12)
    subject = (
        F.when(kind == 3, F.concat(F.lit("q.s"), number, F.lit("."), key))
        .when(kind == 1, F.concat(F.lit("r"), number, F.lit(".a."), key))
        .otherwise(F.concat(F.lit("r"), number, F.lit(".q."), key))
    )
    return frame.withColumn("subject", subject)


def noop(frame: DataFrame) -> None:
    """Computes every row and drops it."""
    frame.write.format("noop").mode("overwrite").save()


def mapped_in_python(subject: str, cluster: str | None, seq: int) -> str:
    """The mixed mapping as people write it by hand in a Python UDF; another draw, the same work."""
    _, region, key = subject.split(".")
    if cluster == "east":
        return f"east.orders.{region}.{key}"
    draw = hash(seq) % 100
    if draw < 20:
        return f"orders.s.{region}.{key[:5]}.{key[5:]}"
    if draw < 50:
        return f"orders.p.{fnv1a(key.encode()) % 16}.{region}.{key}"
    return f"orders.v2.{key}.{region}"


def mapped_in_arrow(subject: pa.Array, cluster: pa.Array, seq: pa.Array) -> pa.Array:
    """The mixed mapping in Arrow kernels; the FNV hash of the keys in NumPy, byte by byte."""
    import numpy as np

    parts = pc.split_pattern(subject, ".")
    region, key = pc.list_element(parts, 1), pc.list_element(parts, 2)
    width = 12
    data = (
        np.frombuffer(pc.cast(key, pa.binary()).combine_chunks().buffers()[2], np.uint8)
        if isinstance(key, pa.ChunkedArray)
        else np.frombuffer(key.buffers()[2], np.uint8)
    )
    data = data[: len(key) * width].reshape(len(key), width)
    value = np.full(len(key), 2166136261, np.uint32)
    for column in range(width):
        value = (value ^ data[:, column]) * np.uint32(16777619)
    number = pc.cast(pa.array(value % 16), pa.string())
    draw = pa.array(np.asarray(seq) * 2654435761 % 4294967296 % 100)
    east = pc.fill_null(pc.equal(cluster, "east"), False)
    return pc.case_when(
        pc.make_struct(east, pc.less(draw, 20), pc.less(draw, 50)),
        pc.binary_join_element_wise("east.orders", region, key, "."),
        pc.binary_join_element_wise(
            "orders.s",
            region,
            pc.utf8_slice_codeunits(key, 0, 5),
            pc.utf8_slice_codeunits(key, 5),
            ".",
        ),
        pc.binary_join_element_wise("orders.p", number, region, key, "."),
        pc.binary_join_element_wise("orders.v2", key, region, "."),
    )


_FNV_IN_SQL = (
    "list_reduce([2166136261::UBIGINT] || [ord(c)::UBIGINT FOR c IN string_split(key, '')], "
    "lambda h, b : (xor(h, b) * 16777619) % 4294967296)"
)


DUCKDB_AS_IT_COMES = "COMPRESSION zstd"
DUCKDB_AS_OURS = "COMPRESSION zstd, COMPRESSION_LEVEL 1, PARQUET_VERSION v2"  # DELTA encodings


def in_duckdb(source: str, target: str, options: str = DUCKDB_AS_IT_COMES) -> None:
    """The mixed mapping by hand in DuckDB; its own hash draws."""
    with duckdb.connect() as db:
        db.execute(f"SET threads = {CORES}")
        db.execute("SET preserve_insertion_order = false")
        db.execute(
            f"""COPY (
              WITH cut AS (
                SELECT *, split_part(subject, '.', 2) AS region, split_part(subject, '.', 3) AS key,
                  hash(stream, seq) % 100 AS drawn
                FROM read_parquet('{source}/*.parquet', hive_partitioning = false)
              )
              SELECT * EXCLUDE (region, key, drawn),
                CASE WHEN cluster = 'east' THEN 'east.orders.' || region || '.' || key
                  WHEN drawn < 20 THEN
                    'orders.s.' || region || '.' || key[:5] || '.' || key[6:]
                  WHEN drawn < 50 THEN
                    'orders.p.' || ({_FNV_IN_SQL} % 16)::VARCHAR || '.' || region || '.' || key
                  ELSE 'orders.v2.' || key || '.' || region END AS mapped_subject,
                'mapped' AS fate, NULL::VARCHAR AS reason, 'orders.*.*' AS mapping_source,
                CASE WHEN cluster = 'east' THEN 'east.orders.$1.$2'
                  WHEN drawn < 20 THEN 'orders.s.$1.{{{{splitfromleft(2,5)}}}}'
                  WHEN drawn < 50 THEN 'orders.p.{{{{partition(16,2)}}}}.$1.$2'
                  ELSE 'orders.v2.$2.$1' END AS mapping_destination,
                CASE WHEN cluster = 'east' THEN NULL ELSE drawn::INTEGER END AS draw,
                'version' AS mapping_version
              FROM cut WHERE subject LIKE 'orders.%'
            ) TO '{target}' (FORMAT parquet, {options})"""  # noqa: S608 - our own paths
        )


def in_polars(source: str, target: str, level: int | None = None) -> None:
    """The mixed mapping by hand in Polars; its own hash draws, keys have 12 bytes."""
    value = pl.lit(2166136261, pl.UInt64)
    for place in range(12):
        byte = pl.col("key").cast(pl.Binary).bin.slice(place, 1).bin.reinterpret(dtype=pl.UInt8)
        value = ((value ^ byte.cast(pl.UInt64)) * 16777619) & 0xFFFFFFFF
    parts = pl.col("subject").str.split_exact(".", 2)
    region, key = pl.col("region"), pl.col("key")
    east, drawn = pl.col("cluster") == "east", pl.col("drawn")
    frame = (
        pl.scan_parquet(f"{source}/*.parquet", hive_partitioning=False)
        .with_columns(parts.alias("parts"), (pl.col("seq").hash(1) % 100).alias("drawn"))
        .with_columns(
            pl.col("parts").struct.field("field_1").alias("region"),
            pl.col("parts").struct.field("field_2").alias("key"),
        )
        .with_columns(
            pl.when(east)
            .then(pl.concat_str(pl.lit("east.orders"), region, key, separator="."))
            .when(drawn < 20)
            .then(
                pl.concat_str(
                    pl.lit("orders.s"),
                    region,
                    key.str.slice(0, 5),
                    key.str.slice(5),
                    separator=".",
                )
            )
            .when(drawn < 50)
            .then(
                pl.concat_str(
                    pl.lit("orders.p"),
                    (value % 16).cast(pl.String),
                    region,
                    key,
                    separator=".",
                )
            )
            .otherwise(pl.concat_str(pl.lit("orders.v2"), key, region, separator="."))
            .alias("mapped_subject"),
            pl.lit("mapped").alias("fate"),
            pl.lit(None, pl.String).alias("reason"),
            pl.lit("orders.*.*").alias("mapping_source"),
            pl.when(east)
            .then(pl.lit("east.orders.$1.$2"))
            .when(drawn < 20)
            .then(pl.lit("orders.s.$1.{{splitfromleft(2,5)}}"))
            .when(drawn < 50)
            .then(pl.lit("orders.p.{{partition(16,2)}}.$1.$2"))
            .otherwise(pl.lit("orders.v2.$2.$1"))
            .alias("mapping_destination"),
            pl.when(east).then(None).otherwise(drawn.cast(pl.Int32)).alias("draw"),
            pl.lit("version").alias("mapping_version"),
        )
        .drop("parts", "region", "key", "drawn")
    )
    frame.sink_parquet(target, compression="zstd", compression_level=level)


def through_server(payload: int) -> float:
    """Seconds in which a nats-server maps and delivers `SERVER_MESSAGES` without storing them."""
    body = b"x" * payload
    chunk = b"".join(
        b"PUB orders.eu.c-0%09d %d\r\n%s\r\n" % (n, payload, body) for n in range(10_000)
    )
    with nats_server(SERVER_MAPPINGS) as server:
        address = urlparse(server.url)
        there = (address.hostname, address.port)
        with socket.create_connection(there) as reader, socket.create_connection(there) as writer:
            reader.recv(65536)
            writer.recv(65536)
            reader.sendall(b'CONNECT {"verbose":false}\r\nSUB > 1\r\nPING\r\n')
            while b"PONG" not in reader.recv(65536):
                pass
            writer.sendall(b'CONNECT {"verbose":false}\r\n')
            start = time.perf_counter()
            publisher = threading.Thread(
                target=lambda: [writer.sendall(chunk) for _ in range(SERVER_MESSAGES // 10_000)]
            )
            publisher.start()
            seen, rest = 0, b""
            while seen < SERVER_MESSAGES:
                data = rest + reader.recv(1 << 20)
                seen += data.count(b"MSG orders.")
                rest = data[-10:] if not data[-10:].count(b"MSG orders.") else b""
            publisher.join()
            return time.perf_counter() - start


def processes() -> dict[int, list[str]]:
    """Of this process and all that it started: the fields of `/proc/PID/stat` after the name."""
    found: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                found[int(folder.name)] = stat
    ours = {os.getpid()}
    while more := {pid for pid, stat in found.items() if int(stat[1]) in ours} - ours:
        ours |= more
    return {pid: found[pid] for pid in ours}


_used: dict[tuple[int, str], int] = {}  # ticks, by number and start of a process


def processor_seconds() -> float:
    """What this process and all that it started have used so far.

    Of a process that ended it counts what was seen last: Spark ends idle workers, and nobody waits
    for them.
    """
    for pid, stat in processes().items():
        _used[pid, stat[19]] = int(stat[11]) + int(stat[12])
    return sum(_used.values()) / os.sysconf("SC_CLK_TCK")


def peak_memory() -> dict[str, int]:
    """MiB of resident memory that a process of each program had at most."""
    found: dict[str, int] = {}
    for pid in processes():
        with contextlib.suppress(OSError, IndexError):
            status = Path(f"/proc/{pid}/status").read_text()
            name = status.split()[1] + (" (this process)" if pid == os.getpid() else "")
            peak = int(status.split("VmHWM:")[1].split()[0]) // 1024
            found[name] = max(found.get(name, 0), peak)
    return found


def lines(
    spark: SparkSession, folder: Path, count: int, payload: int, groups: Sequence[str]
) -> Iterator[Line]:
    """Everything that is measured in these groups."""
    warehouse = tables.Warehouse(dir=folder / "warehouse")
    table = tables.open_table(warehouse, specs.MESSAGES, create=True)
    staged = archive(messages(spark, count, payload), table, "ORDERS")
    settings = TransformSettings(stream="ORDERS", mapping=Path("-"), warehouse=warehouse)
    result = transform(spark, settings, MIXED)
    assert result.messages == count
    plain = read(spark, table, specs.MESSAGES)
    python = F.udf(mapped_in_python, "string")("subject", "cluster", "seq")
    arrow = F.arrow_udf(mapped_in_arrow, "string")("subject", "cluster", "seq")
    by_arrow = plain.withColumn("mapped_subject", arrow)
    by_python = plain.withColumn("mapped_subject", python)
    source = str(Path(staged.data_files[0].file_path.removeprefix("file://")).parent)
    other = str(folder / "other.parquet")

    def write(frame: DataFrame) -> None:
        frame.write.parquet(other)

    def drop() -> None:
        shutil.rmtree(other)

    def copy() -> None:
        output = tables.open_table(warehouse, specs.TRANSFORMED)
        write(read(spark, output, specs.TRANSFORMED))

    def forget() -> None:
        # What a run replaced is kept for days; ten million messages of 1 KiB are 10 GB.
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        maintain(MaintenanceSettings(warehouse=warehouse, retention=timedelta(0), now=tomorrow))

    def fresh(work: Callable[[str, str], None]) -> None:
        work(source, other)
        Path(other).unlink()

    def job(where: Spark, no_checks: bool = False) -> None:
        result = transform(where, settings.model_copy(update={"no_checks": no_checks}), MIXED)
        assert (result.messages, result.engine) == (
            count,
            "spark" if where is spark else "process",
        )

    yield Line("noop", "scan", lambda: noop(plain), count)
    yield Line("noop", "nats_transform.spark", lambda: noop(apply(MIXED, plain)), count)
    yield Line("noop", "Arrow UDF", lambda: noop(by_arrow), count)
    yield Line("noop", "Python UDF", lambda: noop(by_python), count)
    yield Line("parquet", "copy of the output", copy, count, tidy=drop)
    mapped = apply(MIXED, plain)
    here = SessionOnDemand(SparkSettings())
    yield Line("parquet", "nats_transform.spark", lambda: write(mapped), count, tidy=drop)
    yield Line("parquet", "whole job in Spark", lambda: job(spark), count, tidy=forget)
    if sum(file.file_size_in_bytes for file in tables.data_files(table)) <= PROCESS_BYTES:
        yield Line("parquet", "whole job in this process", lambda: job(here), count, tidy=forget)
        without = partial(job, here, no_checks=True)
        yield Line("parquet", "the same without checks", without, count, tidy=forget)
    for name, work in (
        ("DuckDB", in_duckdb),
        ("DuckDB, zstd 1 and DELTA", partial(in_duckdb, options=DUCKDB_AS_OURS)),
        ("Polars", in_polars),
        ("Polars, zstd 1", partial(in_polars, level=1)),
    ):
        yield Line("parquet", name, lambda work=work: fresh(work), count)  # type: ignore[misc]
    yield Line("parquet", "Arrow UDF", lambda: write(by_arrow), count, tidy=drop)
    yield Line("parquet", "Python UDF", lambda: write(by_python), count, tidy=drop)
    for many in (1, 100, 1000, 5000) if "rules" in groups else ():
        path = str(folder / f"rules{many}")
        rule_subjects(plain, many).write.mode("overwrite").parquet(path)
        frame = apply(rules(many), spark.read.parquet(path))
        yield Line("rules", f"{many} rules", lambda f=frame: noop(f), count)  # type: ignore[misc]
    for width in (8, 16, 40, 120) if "keys" in groups else ():
        path = str(folder / f"keys{width}")
        messages(spark, count, payload, width).write.mode("overwrite").parquet(path)
        mapping = Mapping("orders.*.*", [Destination("p.{{partition(16,2)}}.$1")])
        frame = apply(AccountMappings([mapping]), spark.read.parquet(path))
        yield Line("keys", f"{width} bytes", lambda f=frame: noop(f), count)  # type: ignore[misc]
    for times in (1, 16) if "growth" in groups else ():
        part = count // 16 * times
        path = str(folder / f"growth{times}")
        messages(spark, part, payload).write.mode("overwrite").parquet(path)
        frame = apply(MIXED, spark.read.parquet(path))
        yield Line("growth", f"{times}x messages", lambda f=frame: write(f), part, tidy=drop)  # type: ignore[misc]


def measure(
    spark: SparkSession,
    count: int,
    payload: int,
    rounds: int,
    groups: Sequence[str],
    names: re.Pattern[str],
) -> None:
    """Prints the table of so many messages with payloads of so many bytes."""
    with tempfile.TemporaryDirectory() as temporary:
        everything = lines(spark, Path(temporary), count, payload, groups)
        chosen = [line for line in everything if line.group in groups and names.search(line.name)]
        walls: list[list[float]] = [[] for _ in chosen]
        processors: list[list[float]] = [[] for _ in chosen]
        for turn in range(1, rounds + 1):  # the first warms up: a median shows it least
            for line, wall, processor in zip(chosen, walls, processors, strict=True):
                print(f"round {turn}: {line.group} {line.name}", file=sys.stderr)
                os.sync()  # else a line waits for the disk to take what the one before wrote
                start, used = time.perf_counter(), processor_seconds()
                line.work()
                wall.append(time.perf_counter() - start)
                processor.append(processor_seconds() - used)
                line.tidy()
    print(f"{count:,} messages with payloads of {payload:,} bytes\n")
    print("| group | what | seconds | to first | CPU seconds | to first | messages/s |")
    print("|---|---|---:|---:|---:|---:|---:|")
    first: dict[str, tuple[float, float]] = {}
    for line, wall, processor in zip(chosen, walls, processors, strict=True):
        seconds, used = statistics.median(wall), statistics.median(processor)
        base = first.setdefault(line.group, (seconds, used))
        print(
            f"| {line.group} | {line.name} | {seconds:.2f} | {seconds / base[0]:.2f} | {used:.2f} "
            f"| {used / base[1]:.2f} | {line.messages / seconds:,.0f} |"
        )
    if "server" in groups:
        took = statistics.median([through_server(payload) for _ in range(rounds)])
        print(
            f"| server | nats-server, no storage | {took * count / SERVER_MESSAGES:.2f} | | | "
            f"| {SERVER_MESSAGES / took:,.0f} |"
        )
    print(flush=True)
    print(f"peak memory in MiB, the JVM's heap has 2 GiB: {peak_memory()}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--payload", type=int, nargs="+", default=[64, 1024], help="bytes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=GROUPS, default=GROUPS, help="groups")
    parser.add_argument(
        "--names", type=re.compile, default=re.compile(""), help="pattern of the lines' names"
    )
    options = parser.parse_args()
    spark = spark_session(SparkSettings(master=f"local[{CORES}]", driver_memory="2g"))
    groups = options.only
    for payload in options.payload:
        measure(spark, options.messages, payload, options.rounds, groups, options.names)
        groups = [group for group in groups if group in BY_PAYLOAD]
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
