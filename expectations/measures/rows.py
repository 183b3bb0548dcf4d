"""The rules that every row must obey, and the rows that break them.

`flags` adds a Column for each rule about single rows. Rows that break a rule are fetched as
examples in a second look, which is taken only if there are any.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nats_transform import Fate
from nats_transform.mapping import DRAWS
from nats_transform.subject import decode

MAX_SUBJECT = 4096 - 24
"""Bytes of the longest subject that can be published under the server's default limits.

The arguments of a PUB line, the subject and two sizes, must fit in `max_control_line`, which is
4096 (`overMaxControlLineLimit` in nats-server `server/parser.go`). The 24 are two sizes of ten
digits and the blanks between; a reply subject would take its length away too.
"""

EXAMPLES = 5
"""How many of the rows that break a rule are shown."""

CHECK = "__check_"
"""How the names of the columns start that checks add to a table."""

_FLAG = CHECK + "flag_"
BROKEN = CHECK + "broken"
CONTRADICTS = CHECK + "contradicts"

_DAY_NS = 86_400 * 10**9
_WITHOUT_SUBJECT = (Fate.LOST.value, Fate.FILTERED.value, Fate.INVALID.value)

StreamDay = tuple[str | None, date | None]


@dataclass(frozen=True, slots=True)
class Flag:
    """The rows that break a rule: how many, and some of them."""

    rows: int = 0
    examples: tuple[dict[str, Any], ...] = ()


def is_misdated() -> Column:
    """Whether the three times of a message disagree; `ts_ns` is the exact one."""
    # Multiplied up, because Spark divides as floating point, which loses nanoseconds of our time.
    past_micros = F.col("ts_ns") - F.try_multiply(F.unix_micros("ts"), F.lit(1000))
    past_midnight = F.col("ts_ns") - F.try_multiply(F.unix_date("day").cast("long"), F.lit(_DAY_NS))
    agree = past_micros.between(0, 999) & past_midnight.between(0, _DAY_NS - 1)
    return ~F.coalesce(agree, F.lit(False))


def is_illegal(column: str) -> Column:
    """Whether a subject is no legal literal one: `nats_transform.subject.literal_fault`."""
    subject = F.col(column)
    dotted = F.concat(F.lit("."), subject, F.lit("."))
    # Few subjects have a `*` or `>` at all, so few are copied to look at their tokens.
    is_empty = subject.contains("..") | subject.startswith(".") | subject.endswith(".")
    is_wild = (subject.contains("*") & dotted.contains(".*.")) | (
        subject.contains(">") & dotted.contains(".>.")
    )
    return is_empty | (subject == "") | is_wild


def is_too_long(column: str) -> Column:
    return F.octet_length(F.col(column)) > MAX_SUBJECT


def is_incoherent() -> Column:
    """Whether the columns that tell the outcome contradict one another."""
    fate = F.col("fate")
    has_subject = F.col("mapped_subject").isNotNull()
    has_mapping = F.col("mapping_source").isNotNull()
    coherent = (
        F.when(fate == Fate.MAPPED.value, has_subject & has_mapping)
        .when(fate == Fate.UNMATCHED.value, has_subject & ~has_mapping)
        .otherwise(fate.isin(*_WITHOUT_SUBJECT) & ~has_subject)
    )
    has_reason = F.col("reason").isNotNull() == (fate == Fate.INVALID.value)
    return ~F.coalesce(coherent & has_reason, F.lit(False)) | contradicts_itself()


def contradicts_itself() -> Column:
    """The part of `is_incoherent` that needs every row; groups of rows tell the rest."""
    moved = F.col("mapping_source").isNull() & (F.col("mapped_subject") != F.col("subject"))
    drawn = ~F.col("draw").between(0, DRAWS - 1)
    return F.coalesce(moved, F.lit(False)) | F.coalesce(drawn, F.lit(False))


def is_coherent(group: Mapping[str, Any]) -> bool:
    """Whether the rows of a group are coherent, as far as the group shows it."""
    fate, has_subject = group["fate"], group["has_subject"]
    if group["has_reason"] != (fate == Fate.INVALID.value):
        return False
    if fate in (Fate.MAPPED.value, Fate.UNMATCHED.value):
        has_mapping = group["mapping_source"] is not None
        return bool(has_subject) and has_mapping == (fate == Fate.MAPPED.value)
    return fate in _WITHOUT_SUBJECT and not has_subject


def flags(**rules: Column) -> list[Column]:
    return [F.coalesce(rule, F.lit(False)).alias(_FLAG + name) for name, rule in rules.items()]


def _flag_names(prepared: DataFrame) -> list[str]:
    return [name for name in prepared.columns if name.startswith(_FLAG)]


def is_broken(prepared: DataFrame) -> Column:
    """Whether a row breaks any rule: one count for all, because a good table has none."""
    names = [name for name in _flag_names(prepared) if name != _FLAG + "incoherent"]
    if CONTRADICTS in prepared.columns:
        names.append(CONTRADICTS)
    return reduce(or_, [F.col(name) for name in names])


def binary(name: str) -> Column:
    return F.col(name).cast("binary").alias(name)


def collected(rows: DataFrame) -> list[dict[str, Any]]:
    """The rows as Python has them; text comes as bytes, because it need not be UTF-8."""
    texts = [name for name, kind in rows.dtypes if kind == "string"]
    found = rows.withColumns({name: binary(name) for name in texts}).collect()
    return [row.asDict() | {name: as_text(row[name]) for name in texts} for row in found]


def as_text(cell: Any) -> Any:
    return decode(bytes(cell)) if isinstance(cell, bytes | bytearray) else cell


def look(prepared: DataFrame, broken: int, columns: Sequence[str]) -> dict[str, Flag]:
    """The flags with some rows of each; Spark is asked only if some row is flagged."""
    names = _flag_names(prepared)
    counts = dict.fromkeys(names, 0)
    examples: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if broken:
        (found,) = prepared.agg(*(F.count_if(name).alias(name) for name in names)).collect()
        counts = found.asDict()
    for name in (name for name in names if counts[name]):
        flagged = prepared.filter(F.col(name)).select(*columns).limit(EXAMPLES)
        examples[name] = collected(flagged)
    return {name.removeprefix(_FLAG): Flag(counts[name], tuple(examples[name])) for name in names}
