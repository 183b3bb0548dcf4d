"""The traffic of a small shop with a factory: what the demo publishes and archives.

Subjects, one line for each kind of message and its share of the traffic:

    orders.<region>.<customer>.created      35 %
    orders.<region>.<customer>.paid         20 %
    telemetry.<area><line>.<device>.<metric> 25 %
    heartbeat.<service>.<instance>          15 %
    inventory.<warehouse>.adjusted           5 %, which the demo's mapping leaves alone
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CLUSTER_HEADER = "Shop-Cluster"
SUBJECTS = ("orders.>", "telemetry.>", "heartbeat.>", "inventory.>")
CLUSTERS = ("east", "central", "west")
_REGIONS = ("de", "fr", "nl", "se", "uk", "us")
_SERVICES = ("cart", "checkout", "mail", "search", "stock")
_METRICS = ("current", "humidity", "pressure", "temperature", "vibration")
_KINDS = ("created", "paid", "telemetry", "heartbeat", "inventory")
_KIND_SHARES = (35, 20, 25, 15, 5)
_CUSTOMERS = 20_000
_BATCH = 50_000  # messages of a dump that are in memory at once


DUMP = pa.schema(
    {
        "seq": pa.int64(),
        "ts": pa.timestamp("us", tz="UTC"),
        "subject": pa.string(),
        "headers": pa.list_(pa.struct({"name": pa.string(), "value": pa.string()})),
        "data": pa.binary(),
    }
)
"""The columns of a dump."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message, without its place in a stream.

    Attributes:
        subject: where it is published.
        headers: names and values in order; one of them names the cluster.
        data: a JSON object.
    """

    subject: str
    headers: tuple[tuple[str, str], ...]
    data: bytes


def messages(count: int, seed: int) -> Iterator[Message]:
    """The first `count` messages that a seed gives; the same ones every time."""
    rng = random.Random(seed)  # noqa: S311 - traffic, not a secret
    for number in range(count):
        kind = rng.choices(_KINDS, _KIND_SHARES)[0]
        cluster = rng.choices(CLUSTERS, (45, 30, 25))[0]
        # Some customers order more than others, as they do.
        customer = f"c{int(_CUSTOMERS * rng.random() ** 2):05d}"
        region = rng.choice(_REGIONS)
        body: dict[str, object]
        match kind:
            case "created":
                subject = f"orders.{region}.{customer}.created"
                body = {
                    "order": number,
                    "items": rng.randint(1, 9),
                    "cents": rng.randint(99, 9999),
                }
            case "paid":
                subject = f"orders.{region}.{customer}.paid"
                body = {"order": number, "method": rng.choice(("card", "debit", "invoice"))}
            case "telemetry":
                area, line = rng.choice("abcd"), rng.randint(1, 12)
                metric = rng.choice(_METRICS)
                subject = f"telemetry.{area}{line:02d}x.dev{rng.randint(1, 400)}.{metric}"
                body = {"value": round(rng.gauss(50, 9), 3)}
            case "heartbeat":
                subject = f"heartbeat.{rng.choice(_SERVICES)}.{rng.randint(1, 5)}"
                body = {"up": rng.randint(1, 10**6)}
            case _:
                subject = f"inventory.w{rng.randint(1, 6)}.adjusted"
                body = {"sku": rng.randint(1000, 9999), "by": rng.randint(-20, 20)}
        headers = (
            (CLUSTER_HEADER, cluster),
            ("Content-Type", "application/json"),
            ("Trace-Id", f"{rng.getrandbits(64):016x}"),
        )
        yield Message(subject, headers, json.dumps(body).encode())


def write_dump(path: Path, start: datetime, end: datetime, count: int, seed: int) -> None:
    """Write a Parquet dump with `count` messages, spread evenly over a time.

    One row for each message: `seq` from 1, `ts`, `subject`, `headers` and `data`.
    """
    step = (end - start) / count
    traffic = messages(count, seed)
    with pq.ParquetWriter(path, DUMP, compression="zstd") as writer:
        for first in range(0, count, _BATCH):
            batch = list(islice(traffic, _BATCH))
            times = [start + (first + number) * step for number in range(len(batch))]
            writer.write_table(dump_rows(first + 1, times, batch))


def dump_rows(seq: int, times: Sequence[datetime], batch: Sequence[Message]) -> pa.Table:
    """The rows of a dump for some messages.

    Args:
        seq: the sequence of the first; the others follow it.
        times: when they were stored.
    """
    headers = [header for message in batch for header in message.headers]
    pairs = pa.StructArray.from_arrays(
        [pa.array(column, pa.string()) for column in zip(*headers, strict=True)], ["name", "value"]
    )
    ends = accumulate((len(message.headers) for message in batch), initial=0)
    columns = [
        pa.array(range(seq, seq + len(batch))),
        pa.array(times, DUMP.field("ts").type),
        pa.array(message.subject for message in batch),
        pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs),
        pa.array((message.data for message in batch), pa.binary()),
    ]
    return pa.table(columns, schema=DUMP)
