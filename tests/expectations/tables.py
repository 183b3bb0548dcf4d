"""Small tables to check, made without Spark by the scalar path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

from expectations.transformed import MeasureTransformed
from jobs.files.transform import WORDS
from jobs.warehouse.specs import MESSAGES, TRANSFORMED
from nats_transform import AccountMappings
from nats_transform.digest import Digest
from tests.support import rules
from tests.support.archive import Row, columns, message
from tests.support.digest import digest_of

STREAM = "SHOP"
FIRST_DAY = date(2026, 11, 1)
PER_DAY = 1_000
SEED = 7
VERSION = "0f" * 32
CLUSTERS = ("east", "west", None)

MAPPINGS = rules.mappings(
    {
        "orders.*.*": "orders.{{partition(8,2)}}.$1.$2",
        "cart.*": [
            *(("cart.v1.$1", 70), ("cart.v2.$1", 30)),
            *(("cart.east.$1", 50, "east"), ("cart.far.$1", 50, "east")),
        ],
        "beat": [("beat", 25), ("pulse", 25)],  # half is lost: the source itself is listed
        "log.*": "log.{{split(1,-)}}",
    }
)


def messages(days: int = 2) -> list[Row]:
    """Messages of every kind: mapped with and without a draw, unmatched, lost and invalid."""
    rows = []
    for seq in range(1, days * PER_DAY + 1):
        day, place = divmod(seq - 1, PER_DAY)
        start = datetime.combine(FIRST_DAY, datetime.min.time(), UTC) + timedelta(days=day)
        ts = start + timedelta(seconds=place * 60, microseconds=place)
        subject = (
            f"orders.eu.c{seq * 7919 % 211}",
            f"cart.{seq % 50}",
            "beat",
            f"log.a-{seq % 9}" if seq % 35 else "log.-",
            f"other.{seq % 4}",
        )[(0, 0, 1, 1, 1, 2, 3, 4)[seq % 8]]
        row = message(
            seq,
            subject,
            ts,
            stream=STREAM,
            cluster=CLUSTERS[seq % 3],
            headers=[("Nats-Msg-Id", str(seq))],
            data=f"payload {seq}".encode(),
        )
        rows.append(row | {"ts_ns": row["ts_ns"] + seq % 1000})
    return rows


def transformed(
    rows: Sequence[Row], mappings: AccountMappings = MAPPINGS, seed: int = SEED
) -> list[Row]:
    """What the scalar path makes of messages."""
    made = []
    for row in rows:
        outcome = mappings.replay(
            row["subject"], row["cluster"], stream=row["stream"], seq=row["seq"], seed=seed
        )
        made.append(
            row
            | {
                "mapped_subject": outcome.subject,
                "fate": outcome.fate.value,
                "reason": outcome.reason,
                "mapping_source": outcome.mapping_source,
                "mapping_destination": outcome.mapping_destination,
                "draw": outcome.draw,
                "mapping_version": VERSION,
            }
        )
    return made


def archive_digest(rows: Sequence[Row]) -> Digest:
    """The digest of the columns that `messages` has."""
    return digest_of(rows, MESSAGES.rows)


def table_digest(rows: Sequence[Row]) -> str:
    """The digest of all columns of `transformed_messages`."""
    return str(digest_of(rows, TRANSFORMED.rows))


def batches(rows: Sequence[Row], size: int = 700) -> Iterator[pa.RecordBatch]:
    """The rows as tasks read them."""
    spec = TRANSFORMED if "fate" in rows[0] else MESSAGES
    for start in range(0, len(rows), size):
        found = columns(rows[start : start + size])
        for name in found.keys() & {"subject", "mapped_subject", "mapping_destination"}:
            found[name] = found[name].view(pa.string())
        for name in found.keys() & WORDS:
            found[name] = found[name].dictionary_encode()
        yield pa.RecordBatch.from_pydict({n: found[n] for n in spec.rows.names})


def measure(
    mappings: AccountMappings = MAPPINGS,
    messages: int = 1,
    version: str | None = VERSION,
    seed: int = SEED,
) -> MeasureTransformed:
    """Measures transformed messages; of so few every row is in every sample."""
    return MeasureTransformed(mappings, messages, seed=seed, version=version)


Change = Callable[[list[Row]], object]
