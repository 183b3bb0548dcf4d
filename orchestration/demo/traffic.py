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
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
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


def write_dump(path: Path, days: list[date], count: int, seed: int) -> None:
    """Write a Parquet dump with `count` messages for each of some days.

    One row for each message: `seq` from 1, `ts` spread over its day, `subject`, `headers` and
    `data`.
    """
    seq = 0
    with pq.ParquetWriter(path, DUMP, compression="zstd") as writer:
        for place, day in enumerate(days):
            start = datetime.combine(day, time(), UTC)
            step = timedelta(days=1) / count
            rows = []
            for number, message in enumerate(messages(count, seed + place + 1)):
                seq += 1
                rows.append(
                    {
                        "seq": seq,
                        "ts": start + number * step,
                        "subject": message.subject,
                        "headers": [{"name": n, "value": v} for n, v in message.headers],
                        "data": message.data,
                    }
                )
            writer.write_table(pa.Table.from_pylist(rows, DUMP))
