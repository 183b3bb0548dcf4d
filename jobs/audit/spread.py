"""How messages spread: over the partitions of a destination, and each key over destinations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.audit.settings import KeyStickiness, PartitionBalance
from nats_transform import Mapping
from nats_transform.audit import Period, is_audited

MOST_PARTITIONS = 1024
"""The balance of more partitions is not worth a row each."""

MOST_BALANCES = 50
"""Destinations whose partitions are counted: each is one more case of a column."""


def partition_balances(rows: DataFrame, periods: Sequence[Period]) -> Iterator[PartitionBalance]:
    """The balance of the first `partition()`s whose place in the mapped subject is fixed.

    Args:
        rows: transformed messages.
        periods: the mapping versions that made them.
    """
    found = (_numbered(mapping) for period in periods for mapping in period.mappings.mappings)
    ends = list(dict.fromkeys(end for ends in found for end in ends))[:MOST_BALANCES]
    if not ends:
        return
    tokens = F.split("mapped_subject", r"\.")
    number = F.lit(None).cast("string")
    for source, destination, place, _ in ends:
        is_end = (F.col("mapping_source") == source) & (F.col("mapping_destination") == destination)
        number = F.when(is_end, F.try_element_at(tokens, F.lit(place))).otherwise(number)
    # Without a filter: of a replay Spark would push it down, and with it a copy of the replay.
    groups = rows.groupBy("mapping_source", "mapping_destination", number.alias("number"))
    counted = {
        (row["mapping_source"], row["mapping_destination"], int(row["number"])): row["count"]
        for row in groups.count().collect()
        if row["number"] is not None
    }
    for source, destination, _, partitions in ends:
        counts = tuple(counted.get((source, destination, n), 0) for n in range(partitions))
        mean = sum(counts) / partitions
        yield PartitionBalance(
            source=source,
            destination=destination,
            partitions=partitions,
            counts=counts,
            busiest=max(counts) / mean if mean else 0.0,
        )


def _numbered(mapping: Mapping) -> Iterator[tuple[str, str, int, int]]:
    """Source, destination, place of the number in the subject, and count of partitions."""
    for _, share in mapping.ends():
        if share.destination is None or share.transform is None:
            continue
        partition, place = share.transform.partition, share.transform.partition_place
        if partition and place and place > 0 and 1 < partition.count <= MOST_PARTITIONS:
            yield mapping.source, share.destination, place, partition.count


def expected_keys(
    rows: DataFrame, periods: Sequence[Period], wildcard: int
) -> Iterator[KeyStickiness]:
    """How many keys of each mapping with weights saw more than one end.

    Args:
        rows: transformed messages.
        periods: the mapping versions that made them.
        wildcard: number of the source's wildcard that is the key.
    """
    key = F.lit(None).cast("string")
    tokens = F.split("subject", r"\.")
    mappings = {m.source: m for p in periods for m in p.mappings.mappings if is_audited(m)}
    for mapping in mappings.values():
        if wildcard <= len(mapping.filter.wildcards):
            place = mapping.filter.wildcards[wildcard - 1]
            is_source = F.col("mapping_source") == mapping.source
            key = F.when(is_source, F.try_element_at(tokens, F.lit(place + 1))).otherwise(key)
    end = F.xxhash64(F.coalesce("mapping_destination", F.lit("")))
    return keys_of(rows.select("mapping_source", key.alias("key"), end.alias("end")), wildcard)


def keys_of(rows: DataFrame, wildcard: int) -> Iterator[KeyStickiness]:
    """From rows of mapping_source, key and a number for the end; rows without a key are skipped."""
    each = rows.groupBy("mapping_source", "key").agg(
        F.min("end").alias("first"), F.max("end").alias("last")
    )
    sums = each.groupBy("mapping_source").agg(
        F.count("key").alias("keys"),
        F.count_if(F.col("key").isNotNull() & (F.col("first") != F.col("last"))).alias("split"),
    )
    for row in sorted(sums.collect(), key=lambda row: row["mapping_source"] or ""):
        if row["keys"]:
            yield KeyStickiness(
                source=row["mapping_source"],
                wildcard=wildcard,
                keys=row["keys"],
                split=row["split"],
            )
