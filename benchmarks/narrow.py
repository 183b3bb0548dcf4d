"""What a transform costs that leaves times, headers and payloads to `messages`.

Run: python benchmarks/narrow.py [--messages N] [--rounds N]

For payloads of 1 KiB and, five times as many messages, of 64 bytes, one day is transformed in this
process with all columns and with `columns: outcomes`, in turn, checks included. Reported are
processor seconds, medians of the rounds. Fails if a narrow table takes more than a quarter of those
of the full one with 1 KiB, or more than 0.6 with 64 bytes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from checks import MAPPINGS, SPARK, metered

from jobs.ingest import ingest
from jobs.settings.ingest import IngestSettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import transform

BUDGETS = {1024: (0.25, 1), 64: (0.6, 5)}
"""By the size of payloads: the most that a narrow table may take, and messages for one of N."""
STREAM = "S"


def make(folder: Path, messages: int, payload: int) -> Warehouse:
    """Ingests one day with random payloads, whose subjects the mappings cover evenly."""
    dump, random = folder / "dump.parquet", np.random.default_rng(1)
    kinds = ("orders.eu.c{}", "cart.c{}.a", "telemetry.berlin.temp.t{}", "beat")
    schema = pa.schema(
        {
            "seq": pa.int64(),
            "ts": pa.timestamp("us", "UTC"),
            "subject": pa.string(),
            "data": pa.binary(),
        }
    )
    with pq.ParquetWriter(dump, schema) as writer:
        for start in range(0, messages, 50_000):
            numbers = range(start, min(messages, start + 50_000))
            noise = random.bytes(payload * len(numbers))
            columns = (
                [n + 1 for n in numbers],
                [1_772_323_200 * 10**6 + n * 10_000 for n in numbers],
                [kinds[n % 4].format(n * 7919 % 50_000) for n in numbers],
                [noise[n * payload : (n + 1) * payload] for n in range(len(numbers))],
            )
            fields = zip(columns, schema.types, strict=True)
            writer.write_table(pa.table([pa.array(*one) for one in fields], schema=schema))
    warehouse = Warehouse(dir=folder / "warehouse")
    ingest(SPARK, IngestSettings(stream=STREAM, parquet=str(dump), warehouse=warehouse))
    return warehouse


def measure(warehouse: Warehouse, columns: Literal["all", "outcomes"]) -> float:
    """The processor seconds of a transform."""
    settings = TransformSettings(
        stream=STREAM, mapping=Path("-"), warehouse=warehouse, columns=columns
    )
    with metered() as cost:
        assert transform(SPARK, settings, MAPPINGS).refused is None
    return cost.cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    is_over = False
    for payload, (budget, times) in BUDGETS.items():
        messages = times * options.messages
        with tempfile.TemporaryDirectory(prefix="nats-transform-") as folder:
            warehouse = make(Path(folder), messages, payload)
            seconds: dict[Literal["all", "outcomes"], list[float]] = {"all": [], "outcomes": []}
            for _ in range(options.rounds):
                for columns, measured in seconds.items():
                    measured.append(measure(warehouse, columns))
        full, narrow = map(statistics.median, seconds.values())
        is_over |= narrow > budget * full
        print(
            f"{messages:,} messages of {payload} bytes: all columns {full:.2f} s of "
            f"processor, outcomes {narrow:.2f}, {narrow / full:.2f} of it (at most {budget})",
            flush=True,
        )
    sys.exit(is_over)


if __name__ == "__main__":
    main()
