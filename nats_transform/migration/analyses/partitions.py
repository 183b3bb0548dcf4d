"""How `partition()` spreads the keys of an archive, and which keys move."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from nats_transform.errors import shown
from nats_transform.mappings.functions import Partition
from nats_transform.migration.analysis import Analysis, Draft
from nats_transform.migration.count import PARTS, Count, whole
from nats_transform.migration.database import Database, text
from nats_transform.migration.result import Balance
from nats_transform.words import plural

MOST_PARTITIONS = 4096
"""The balance is shown for up to this many partitions."""

NEARBY = 3
"""How many more and fewer partitions are tried, to suggest a better number."""

UNEVEN = 2.0
"""It is a finding if the busiest partition has more than this many times the average."""

_ENDS = """
CREATE TABLE keyed AS
SELECT way, number, share, g.way IS NOT NULL AS moves
FROM ways LEFT JOIN (FROM gains WHERE analysis = 'partitions') g USING (way, number)
WHERE side = 'after' AND partition IS NOT NULL AND result IS NOT NULL
"""
_KEYS = """
WITH keys AS (
  SELECT share, key, any_value(key_hash) AS hash, sum(percent::BIGINT * messages) AS parts,
         bool_or(moves) AS moves
  FROM outcomes JOIN keyed USING (way, number) WHERE side = 'after' GROUP BY share, key
)
SELECT share, count(*), count(*) FILTER (moves),
       arg_min({key: key, hash: hash, parts: parts::HUGEINT}, (-parts, key), 5)
FROM keys GROUP BY share
"""
_COUNTS = """
SELECT share, partitions, key_hash % partitions, sum(percent::BIGINT * messages)::HUGEINT
FROM outcomes JOIN keyed USING (way, number) JOIN tried USING (share)
WHERE side = 'after' GROUP BY ALL
"""


class Partitions(Analysis):
    """Counts the keys that change their partition."""

    name = "partitions"
    # An end whose partition has more of the messages than today, by way.
    gains = """
    WITH before AS (
      SELECT way, partition, sum(percent) AS percent
      FROM ways WHERE side = 'before' AND partition IS NOT NULL GROUP BY ALL
    )
    SELECT 0, 'moves', [a.share], a.way, a.number, a.percent - coalesce(b.percent, 0)
    FROM ways a LEFT JOIN before b USING (way, partition)
    WHERE a.side = 'after' AND a.partition IS NOT NULL AND a.result IS NOT NULL
      AND a.way IN (SELECT way FROM before) AND a.percent > coalesce(b.percent, 0)
    """

    def findings(self, database: Database, layer: int) -> Iterator[Draft]:
        moved = {about[0]: count for _, about, count in database.counts(self.name)}
        for share, (keys, moved_keys, balance) in database.once(_spreads).items():
            source, destination = database.shares[share]
            about = f"mapping {shown(source)} -> {shown(destination or '')}"
            if share in moved:
                of = f" of {keys:,}" if balance else ""
                message = f"{moved_keys:,}{of} keys move to another partition"
                yield "partition-moves", about, message, moved[share]
            if balance is None or balance.partitions < 2:
                continue
            empty = sum(not count for count in balance.counts)
            if empty:
                message = f"{empty} of {balance.partitions} partitions get no messages: "
                message += f"the subjects have only {plural(balance.keys, 'key')}"
                yield "partition-empty", about, message, Count()
            if balance.busiest > UNEVEN:
                message = f"the busiest partition has {balance.busiest:.2f} times the average"
                if better := balance.better:
                    message += f", and {better} partitions would spread better"
                most = int(max(balance.counts) * PARTS)
                yield "partition-imbalance", about, message, Count(most)


def balances(database: Database) -> tuple[Balance, ...]:
    """How the first `partition()` of each destination of the candidate spreads the messages."""
    measured = (balance for *_, balance in database.once(_spreads).values())
    return tuple(balance for balance in measured if balance is not None)


def _spreads(database: Database) -> dict[int, tuple[int, int, Balance | None]]:
    """For each share with a `partition()` its keys, those that move, and the balance.

    There is no balance of more than `MOST_PARTITIONS`, nor of no messages.
    """
    database.run(_ENDS)
    partitions = _partitions(database)
    tried = [
        (share, number)
        for share, partition in partitions.items()
        if (count := max(1, partition.count)) <= MOST_PARTITIONS
        for number in {count, *range(max(2, count - NEARBY), count + NEARBY + 1)}
    ]
    database.table("tried", tried, share=pa.int32(), partitions=pa.int64())
    counts: dict[int, dict[int, list[int]]] = {}
    for share, number in tried:
        counts.setdefault(share, {})[number] = [0] * number
    for share, number, partition, parts in database.rows(_COUNTS):
        counts[share][number][partition] = int(parts)
    spreads = {}
    for share, keys, moved, largest in sorted(
        database.rows(_KEYS), key=lambda row: database.shares[row[0]]
    ):
        count, balance = max(1, partitions[share].count), None
        if share in counts and any(counts[share][count]):
            busiest = {of: max(sums) * of / sum(sums) for of, sums in counts[share].items()}
            source, destination = database.shares[share]
            balance = Balance(
                source,
                destination or "",
                count,
                tuple(map(whole, counts[share][count])),
                keys,
                busiest.pop(count),
                tuple(
                    (text(row["key"]) or "", row["hash"] % count, whole(int(row["parts"])))
                    for row in largest
                ),
                tuple(sorted(busiest.items())),
            )
        spreads[share] = keys, moved, balance
    return spreads


def _partitions(database: Database) -> dict[int, Partition]:
    """The first `partition()` of each share of the candidate that has one."""
    known = {
        (mapping.source, transform.destination): transform.partition
        for mapping in database.questions[0].candidate.mappings
        for transform in mapping.transforms
        if transform.partition is not None
    }
    keyed = {share for (share,) in database.rows("SELECT DISTINCT share FROM keyed")}
    return {
        share: partition
        for share, (source, destination) in enumerate(database.shares)
        if share in keyed and (partition := known.get((source, destination or "")))
    }
