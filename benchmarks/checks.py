"""What the checks of a day cost beside its transform.

Run: python benchmarks/checks.py [--messages N] [--json]

The transform job runs over one day that the ingest job put into a real warehouse, without its
checks and with them; then the suite of `messages` runs on the same day. All of it runs in this
process. Reported are the seconds that passed and the processor seconds, which a busy machine
disturbs less; the best of several rounds. Fails if a transform with its checks takes more than 1.35
times the processor seconds of one without.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha512
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from expectations.docs import keep
from jobs.ingest import ingest
from jobs.session import SessionOnDemand
from jobs.settings.ingest import IngestSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.transform import TransformSettings
from jobs.transform import transform
from jobs.verify_table import messages_check
from jobs.warehouse import specs, tables
from jobs.warehouse.accounting import Archived
from nats_transform import AccountMappings, Destination, Mapping

BUDGET = 1.35
ROUNDS = 3
PART = 100_000  # messages of a part of the dump
SPARK = SessionOnDemand(SparkSettings())  # it is not needed
STREAM = "SHOP"
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


@contextmanager
def metered() -> Iterator[Cost]:
    """Measures what this process uses."""
    cost, wall, cpu = Cost(), time.perf_counter(), time.process_time()
    yield cost
    cost.wall, cost.cpu = time.perf_counter() - wall, time.process_time() - cpu


def make(folder: Path, messages: int) -> None:
    """Ingests one day of a stream, with headers and payloads."""
    dump = folder / "dump.parquet"
    step = 86_400 * 10**6 // messages
    pair = pa.struct([("name", pa.string()), ("value", pa.string())])
    schema = pa.schema(
        [
            ("seq", pa.int64()),
            ("ts", pa.timestamp("us", "UTC")),
            ("subject", pa.string()),
            ("cluster", pa.string()),
            ("headers", pa.list_(pair)),
            ("data", pa.binary()),
        ]
    )
    with pq.ParquetWriter(dump, schema) as writer:
        for start in range(0, messages, PART):
            rows = [message(n, step) for n in range(start, min(messages, start + PART))]
            columns = zip(schema.names, zip(*rows, strict=True), strict=True)
            arrays = [pa.array(values, schema.field(name).type) for name, values in columns]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
    warehouse = tables.Warehouse(dir=folder / "warehouse")
    ingest(SPARK, IngestSettings(stream=STREAM, parquet=str(dump), warehouse=warehouse))


def message(number: int, step: int) -> tuple[object, ...]:
    """One message of the dump."""
    data = sha512(str(number).encode()).digest()
    kind, some = data[0] % 10, int.from_bytes(data[1:4]) % 50_000
    subject = "other.subject"
    if kind < 4:
        subject = f"orders.eu-{number % 7}.c{some}"
    elif kind < 6:
        subject = f"cart.c{some}.{number % 90}"
    elif kind < 8:
        subject = f"telemetry.ber{number % 500}.temp.max"
    elif kind < 9:
        subject = "beat"
    cluster = ("east", "west", "north")[number % 3]
    headers = [("Nats-Msg-Id", f"{number:X}"), ("Cluster", cluster)]
    return number + 1, 1_772_323_200 * 10**6 + number * step, subject, cluster, headers, data


def one_round(folder: Path, messages: int) -> dict[str, Cost]:
    """The cost of a transform without its checks, and of the checks of both tables."""
    warehouse = tables.Warehouse(dir=folder / "warehouse")
    costs: dict[str, Cost] = {}
    settings = TransformSettings(stream=STREAM, mapping=Path("-"), warehouse=warehouse)
    with metered() as costs["transform"]:
        transform(SPARK, settings.model_copy(update={"no_checks": True}), MAPPINGS)
    with metered() as costs["with checks"]:
        result = transform(SPARK, settings, MAPPINGS)
    assert result.report is not None
    with metered() as costs["data docs"]:
        keep(result.report, folder / "checks", name=STREAM)
    table = tables.open_table(warehouse, specs.MESSAGES)
    with metered() as costs["messages"]:
        archived = Archived.of(table, STREAM)
        check = messages_check(archived, list(archived.days))
        report = check.of(SPARK, table, tables.data_files(table, STREAM))
    for looked_at in (result.report, report):
        assert looked_at.success, str(looked_at)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nats-transform-") as folder:
        make(Path(folder), options.messages)
        rounds = [one_round(Path(folder), options.messages) for _ in range(ROUNDS)]
    best = {
        name: Cost(min(r[name].wall for r in rounds), min(r[name].cpu for r in rounds))
        for name in rounds[0]
    }
    share = best["with checks"] / best["transform"]
    if options.json:
        found = {name: vars(cost) for name, cost in best.items()}
        print(json.dumps({"messages": options.messages, **found, "share": vars(share)}))
    else:
        print(f"{options.messages:,} messages, best of {ROUNDS}")
        for name, cost in best.items():
            print(f"{name:22}{cost}")
        print(
            f"with checks: {share.wall:.2f} times the transform, {share.cpu:.2f} of its processor"
        )
    sys.exit(share.cpu > BUDGET)


if __name__ == "__main__":
    main()
