"""One pass over rows of `transformed_messages`: outcomes, partition numbers, keys and a sample."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations.measures.digests import aggregates_of, from_row
from expectations.measures.partitions import KEY, NUMBER, partition_columns, partitioned_ends
from expectations.measures.rows import (
    BROKEN,
    CHECK,
    CONTRADICTS,
    Flag,
    StreamDay,
    as_text,
    binary,
    collected,
    contradicts_itself,
    flags,
    is_broken,
    is_coherent,
    is_illegal,
    is_incoherent,
    is_misdated,
    is_too_long,
    look,
)
from nats_transform import AccountMappings
from nats_transform import spark as compiled
from nats_transform.audit import End
from nats_transform.digest import Digest

SAMPLED_ROWS = 2_000
"""About how many messages the scalar library replays; all of a small day.

They are chosen by a hash of the sequence. If one message in 1,000 came out wrong, 86 of 100 such
samples would show it.
"""

KEYED_ROWS = 10_000
"""About how many rows the keys have that must each stay in one partition: all rows of some keys."""

_ARCHIVE_HASH = CHECK + "archive_hash"
_TABLE_HASH = CHECK + "table_hash"
_ARCHIVE = CHECK + "archive_"
_TABLE = CHECK + "table_"
_SAMPLED = CHECK + "sampled"
_OF_ENDING = ("day", "cluster", "fate", "mapping_source", "mapping_destination")
_OF_MESSAGE = ("stream", "seq", "subject", "cluster")


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of messages of a cluster on a day: their fate, and what made it so."""

    day: date | None
    cluster: str | None
    fate: str | None
    source: str | None
    destination: str | None


@dataclass(frozen=True, slots=True)
class TransformedMeasures:
    """What one pass over rows of `transformed_messages` found.

    Attributes:
        days: rows of each day, with the digest of the columns that `messages` has.
        table: all rows, with the digest of all columns.
        endings: rows of each ending.
        flags: the rules about single rows, by name.
        numbers: rows by partition number as it is written, of each end where it could be found.
        keys: of some keys, rows by partition number, by the hash of the key.
        key_share: one key in so many is in `keys`.
        sample: some rows as they were written.
    """

    days: Mapping[StreamDay, Digest]
    table: Digest
    endings: Mapping[Ending, int]
    flags: Mapping[str, Flag]
    numbers: Mapping[End, Mapping[str, int]]
    keys: Mapping[End, Mapping[int, Mapping[str, int]]]
    key_share: int
    sample: tuple[dict[str, Any], ...]

    @property
    def archive(self) -> Digest:
        """All rows, with the digest of the columns that `messages` has."""
        return sum(self.days.values(), Digest())

    @property
    def fates(self) -> Counter[str | None]:
        """Rows of each fate."""
        counted: Counter[str | None] = Counter()
        for ending, rows in self.endings.items():
            counted[ending.fate] += rows
        return counted


def prepare_transformed(
    rows: DataFrame,
    mappings: AccountMappings,
    *,
    messages: int,
    version: str | None = None,
    archive_hash: Column,
    table_hash: Column,
) -> DataFrame:
    """The rows of `transformed_messages` and what the checks need to know of each.

    Args:
        rows: the rows of `transformed_messages`, of any streams and days.
        mappings: the mappings that the rows were written with.
        messages: about how many rows there are; it sets how large a part the samples are.
        version: the mapping version they should name; not looked at if None.
        archive_hash: a 64-bit hash of the columns that `messages` has.
        table_hash: a 64-bit hash of all columns.
    """
    differs = F.lit(False)
    if version is not None:
        differs = ~F.col("mapping_version").eqNullSafe(version)
    sampled = max(1, messages // SAMPLED_ROWS)
    keys = max(1, messages // KEYED_ROWS)
    return rows.select(
        "*",
        archive_hash.alias(_ARCHIVE_HASH),
        table_hash.alias(_TABLE_HASH),
        *flags(
            misdated=is_misdated(),
            incoherent=is_incoherent(),
            misversioned=differs,
            illegal=is_illegal("mapped_subject"),
            too_long=is_too_long("mapped_subject"),
        ),
        contradicts_itself().alias(CONTRADICTS),
        (F.pmod(F.xxhash64("seq"), F.lit(sampled)) == 0).alias(_SAMPLED),
        *partition_columns(partitioned_ends(mappings), keys),
    )


def measure_transformed(prepared: DataFrame) -> TransformedMeasures:
    """The measures of prepared rows of `transformed_messages`; one pass over them.

    Rows are counted by ending and partition number. Sampled keys and sampled messages are more
    columns of the same grouping, null for all other rows, so they cost no pass of their own.
    """
    # One struct: as columns of their own, null in almost every row, these doubled the pass.
    sampled = F.struct("seq", "draw", *map(binary, ("subject", "mapped_subject", "reason")))
    groups = prepared.groupBy(
        *("stream", *_OF_ENDING, NUMBER, KEY),
        F.col("mapped_subject").isNotNull().alias("has_subject"),
        F.col("reason").isNotNull().alias("has_reason"),
        F.when(F.col(_SAMPLED), sampled).alias(_SAMPLED),
    ).agg(
        F.count_if(is_broken(prepared)).alias(BROKEN),
        *aggregates_of(F.col(_ARCHIVE_HASH), _ARCHIVE),
        *aggregates_of(F.col(_TABLE_HASH), _TABLE),
    )
    days: dict[StreamDay, Digest] = defaultdict(Digest)
    table = Digest()
    found: Counter[Ending] = Counter()
    numbers: dict[End, Counter[str]] = defaultdict(Counter)
    keys: dict[End, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    sample: list[dict[str, Any]] = []
    broken = 0
    for row in collected(groups):
        archived = from_row(row, _ARCHIVE)
        days[row["stream"], row["day"]] += archived
        table += from_row(row, _TABLE)
        rows = archived.rows
        found[Ending(*(row[name] for name in _OF_ENDING))] += rows
        if row[NUMBER] is not None:
            end = End(row["mapping_source"], row["mapping_destination"])
            numbers[end][row[NUMBER]] += rows
            if row[KEY] is not None:
                keys[end][row[KEY]][row[NUMBER]] += rows
        if row[_SAMPLED] is not None:
            message = {name: as_text(cell) for name, cell in row[_SAMPLED].asDict().items()}
            of_group = {name: row[name] for name in ("stream", *_OF_ENDING)}
            sample.append(of_group | message)
        broken += row[BROKEN] or not is_coherent(row)
    return TransformedMeasures(
        days=dict(days),
        table=table,
        endings=found,
        flags=look(prepared, broken, [*_OF_MESSAGE, "day", *compiled.OUTPUT.names]),
        numbers=numbers,
        keys=keys,
        key_share=prepared.schema[KEY].metadata["one_in"],
        sample=tuple(sample),
    )
