"""One pass over a table: all that its suite judges, in a few thousand numbers.

The checks of a day may read it once, so no expectation looks at rows. `prepare_messages` and
`prepare_transformed` add Columns that say of each row what a check needs; `measure_messages` and
`measure_transformed` add them up in one Spark job. Rows that break a rule are fetched as examples
in a second look, which is taken only if there are any.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from nats_transform import AccountMappings, Fate
from nats_transform import spark as compiled
from nats_transform.functions import Left, Literal, Partition, Random, Right, Token, Wildcard
from nats_transform.mapping import DRAWS
from nats_transform.subject import decode, encode

MAX_SUBJECT = 4096 - 24
"""Bytes of the longest subject that can be published under the server's default limits.

The arguments of a PUB line, the subject and two sizes, must fit in `max_control_line`, which is
4096 (`overMaxControlLineLimit` in nats-server `server/parser.go`). The 24 are two sizes of ten
digits and the blanks between; a reply subject would take its length away too.
"""

SAMPLED_ROWS = 2_000
"""About how many messages the scalar path replays; all of a small day."""

KEYED_ROWS = 10_000
"""About how many rows the keys have that must each stay in one partition: all rows of some keys."""

MAX_NUMBERS = 4096
"""Rows of a `partition(n)` are counted by number up to this n; above it only the range is."""

EXAMPLES = 5
"""How many of the rows that break a rule are shown."""

_CHECK = "__check_"
_FLAG = _CHECK + "flag_"
_HASH = _CHECK + "hash"
_TABLE_HASH = _CHECK + "table_hash"
_BROKEN = _CHECK + "broken"
_NUMBER = _CHECK + "number"
_KEY = _CHECK + "key"
_CONTRADICTS = _CHECK + "contradicts"
_SAMPLED = _CHECK + "sampled"

_PIECES = ((0, 22), (22, 21), (43, 21))  # (first bit, bits): their sums fit a long to 2**41 rows
_DAY_NS = 86_400 * 10**9
_WORD = 6  # bits: a word of a bitmap holds 64 sequences, a block 64 words
_ONES = 2**64 - 1

StreamDay = tuple[str | None, date | None]
Range = tuple[int, int]
Rule = tuple[str, str]
"""The source of a mapping and one of its destinations."""


@dataclass(frozen=True, slots=True)
class Flag:
    """The rows that break a rule: how many, and some of them."""

    rows: int = 0
    examples: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Bag:
    """How many rows, and the sum of their 64-bit hashes modulo 2**64, if they were hashed."""

    rows: int = 0
    total: int | None = 0

    def __add__(self, other: Bag) -> Bag:
        if self.total is None or other.total is None:
            return Bag(self.rows + other.rows, None)
        return Bag(self.rows + other.rows, (self.total + other.total) & _ONES)

    @property
    def digest(self) -> str | None:
        """The sum as 16 hexadecimal digits."""
        return None if self.total is None else f"{self.total:016x}"


@dataclass(frozen=True, slots=True)
class Sequences:
    """The sequences of a stream on a day.

    Attributes:
        ranges: those present, as ascending inclusive ranges that do not touch.
        repeated: rows beyond the first of each sequence.
    """

    ranges: tuple[Range, ...]
    repeated: int

    @property
    def gaps(self) -> tuple[Range, ...]:
        """The missing sequences between the first and the last."""
        pairs = zip(self.ranges, self.ranges[1:], strict=False)
        return tuple((before[1] + 1, after[0] - 1) for before, after in pairs)


@dataclass(frozen=True, slots=True)
class MessagesMeasures:
    """What one pass over rows of `messages` found.

    Attributes:
        days: rows of each day, with their digest.
        sequences: which there are, of each day.
        flags: the rules about single rows, by name.
    """

    days: Mapping[StreamDay, Bag]
    sequences: Mapping[StreamDay, Sequences]
    flags: Mapping[str, Flag]

    @property
    def archive(self) -> Bag:
        """All rows."""
        return _sum(self.days.values())


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
        numbers: rows by partition number as it is written, of each rule where it could be found.
        keys: of some keys, rows by partition number, by the hash of the key.
        key_share: one key in so many is in `keys`.
        sample: some rows as they were written.
    """

    days: Mapping[StreamDay, Bag]
    table: Bag
    endings: Mapping[Ending, int]
    flags: Mapping[str, Flag]
    numbers: Mapping[Rule, Mapping[str, int]]
    keys: Mapping[Rule, Mapping[int, Mapping[str, int]]]
    key_share: int
    sample: tuple[dict[str, Any], ...]

    @property
    def archive(self) -> Bag:
        """All rows, with the digest of the columns that `messages` has."""
        return _sum(self.days.values())

    @property
    def fates(self) -> Counter[str | None]:
        """Rows of each fate."""
        counted: Counter[str | None] = Counter()
        for ending, rows in self.endings.items():
            counted[ending.fate] += rows
        return counted


def _sum(bags: Iterable[Bag]) -> Bag:
    return reduce(lambda one, other: one + other, bags, Bag())


# --- messages -------------------------------------------------------------------------------------


def prepare_messages(rows: DataFrame, *, row_hash: Column | None = None) -> DataFrame:
    """The rows of `messages` and what the checks need to know of each.

    Args:
        rows: of any streams and days.
        row_hash: a 64-bit hash of the row; without it there is no digest.
    """
    needed = [F.col(name).isNull() for name in ("stream", "seq", "ts", "ts_ns", "day")]
    return rows.select(
        "*",
        _or_null(row_hash).alias(_HASH),
        *_flags(
            missing=reduce(or_, needed),
            misdated=_is_misdated(),
            illegal=_is_illegal("subject") | F.col("subject").isNull(),
            too_long=_is_too_long("subject"),
        ),
    )


def measure_messages(prepared: DataFrame) -> MessagesMeasures:
    """The measures of prepared rows of `messages`; one pass over them.

    Sequences become bitmaps, 64 of them in one word and 64 words in one block, so that duplicates
    and gaps are exact and what leaves Spark is a row for each 4,096 messages.
    """
    words = prepared.groupBy("stream", "day", F.shiftright("seq", _WORD).alias("word")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.bit_or(_bit("seq")).alias("bits"),
        F.count_if(_is_broken(prepared)).alias(_BROKEN),
        *_hash_sums(_HASH),
    )
    is_full = F.col("bits") == -1
    blocks = words.groupBy("stream", "day", F.shiftright("word", _WORD).alias("block")).agg(
        F.sum("rows").alias("rows"),
        F.sum(F.bit_count("bits")).alias("present"),
        F.bit_or(F.when(is_full, _bit("word")).otherwise(0)).alias("full"),
        F.collect_list(F.when(~is_full, F.struct("word", "bits"))).alias("partly"),
        *(F.sum(name).alias(name) for name in (_BROKEN, *_sum_names(_HASH))),
    )
    days: dict[StreamDay, Bag] = defaultdict(Bag)
    found: dict[StreamDay, list[dict[str, Any]]] = defaultdict(list)
    broken = 0
    for row in _collect(blocks):
        day = (row["stream"], row["day"])
        days[day] += Bag(row["rows"], _total(row, _HASH))
        broken += row[_BROKEN]
        if row["block"] is not None:
            found[day].append(row)
    return MessagesMeasures(
        days=dict(days),
        sequences={day: _sequences(rows) for day, rows in found.items()},
        flags=_look(prepared, broken, ["stream", "day", "seq", "ts", "ts_ns", "subject"]),
    )


def _bit(number: str) -> Column:
    """The bit of a number in its word."""
    return F.call_function("shiftleft", F.lit(1).cast("long"), (F.col(number) % 64).cast("int"))


def _sequences(blocks: Sequence[Mapping[str, Any]]) -> Sequences:
    ranges: list[Range] = []

    def add(first: int, last: int) -> None:
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))

    for row in sorted(blocks, key=lambda row: int(row["block"])):
        first_word = row["block"] << _WORD
        full = row["full"] & _ONES
        if full == _ONES:
            add(first_word << _WORD, ((first_word + 64) << _WORD) - 1)
            continue
        words = {word: bits & _ONES for word, bits in row["partly"]}
        words |= {first_word + place: _ONES for place in range(64) if full >> place & 1}
        for word in sorted(words):
            for first, last in runs_of_ones(words[word]):
                add((word << _WORD) + first, (word << _WORD) + last)
    return Sequences(tuple(ranges), sum(row["rows"] - row["present"] for row in blocks))


def runs_of_ones(bits: int) -> Iterable[Range]:
    """The runs of ones in a whole number, as (first, last) places, the lowest bit being 0."""
    place = 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        bits >>= ones
        yield place + zeros, place + zeros + ones - 1
        place += zeros + ones


# --- transformed_messages -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """Where the number and the key of a destination's first partition function are.

    Attributes:
        rule: the source of the mapping, and the destination that has the function.
        count: of partitions.
        place: of the number among the tokens of the mapped subject, 1-based, from the end if
            negative; None if functions on both sides of it make now one token, now two.
        key: 0-based places of the key's tokens in the subject; none stands for the whole subject.
    """

    rule: Rule
    count: int
    place: int | None
    key: tuple[int, ...]


def partition_rules(mappings: AccountMappings) -> list[PartitionRule]:
    """One rule for each destination with a partition function."""
    rules = []
    for mapping in mappings.mappings:
        for share in (s for c in (None, *mapping.clusters) for s in mapping.shares(c)):
            tokens = share.transform.tokens if share.transform else ()
            for index, token in enumerate(tokens):
                if isinstance(token, Partition) and share.destination is not None:
                    rule = (mapping.source, share.destination)
                    place = _place(tokens, index)
                    rules.append(PartitionRule(rule, max(token.count, 1), place, token.positions))
                    break
    return rules


def _place(tokens: Sequence[Token], index: int) -> int | None:
    single = (Literal, Wildcard, Partition, Random, Left, Right)
    if all(isinstance(token, single) for token in tokens[:index]):
        return index + 1
    if all(isinstance(token, single) for token in tokens[index:]):
        return index - len(tokens)
    return None


def prepare_transformed(
    rows: DataFrame,
    mappings: AccountMappings,
    *,
    messages: int,
    version: str | None = None,
    archive_hash: Column | None = None,
    table_hash: Column | None = None,
) -> DataFrame:
    """The rows of `transformed_messages` and what the checks need to know of each.

    Args:
        rows: of any streams and days.
        mappings: they were written with.
        messages: about how many rows there are; it sets how large a part the samples are.
        version: the mapping version they should name; not looked at if None.
        archive_hash: a 64-bit hash of the columns that `messages` has; without it there is no
            digest of them.
        table_hash: a 64-bit hash of all columns; without it there is no digest of them.
    """
    differs = F.lit(False)
    if version is not None:
        differs = ~F.col("mapping_version").eqNullSafe(version)
    rules = partition_rules(mappings)
    sampled = max(1, messages // SAMPLED_ROWS)
    keys = max(1, messages // KEYED_ROWS)
    return rows.select(
        "*",
        _or_null(archive_hash).alias(_HASH),
        _or_null(table_hash).alias(_TABLE_HASH),
        *_flags(
            misdated=_is_misdated(),
            incoherent=_is_incoherent(),
            misversioned=differs,
            illegal=_is_illegal("mapped_subject"),
            too_long=_is_too_long("mapped_subject"),
        ),
        _contradicts_itself().alias(_CONTRADICTS),
        (F.pmod(F.xxhash64("seq"), F.lit(sampled)) == 0).alias(_SAMPLED),
        *_partition_columns(rules, keys),
    )


def _partition_columns(rules: Sequence[PartitionRule], sample: int) -> list[Column]:
    """The partition number as it is written and, of one key in `sample`, the hash of the key.

    Rules that look alike share a branch: a CASE over a thousand rules would cost more than the
    transform.
    """
    layouts: dict[tuple[int, tuple[int, ...]], list[Rule]] = defaultdict(list)
    for rule in rules:
        if rule.place is not None and rule.count <= MAX_NUMBERS:
            layouts[rule.place, rule.key].append(rule.rule)
    of_destination: dict[str, set[Any]] = defaultdict(set)
    for layout, alike in layouts.items():
        for _, destination in alike:
            of_destination[destination].add(layout)
    number, key = F.when(F.lit(False), ""), F.when(F.lit(False), F.lit(0).cast("long"))
    for (place, positions), alike in layouts.items():
        is_here = _is_rule(alike, {d for d, found in of_destination.items() if len(found) == 1})
        text = _token(F.col("mapped_subject"), place)
        tokens = [_token(F.col("subject"), position + 1) for position in positions]
        hashed = F.xxhash64(*tokens) if tokens else F.xxhash64("subject")
        # What is longer than any number is cut, or garbage would make a group of every row.
        number = number.when(is_here, F.left(text, F.lit(len(str(MAX_NUMBERS)) + 1)))
        key = key.when(is_here, hashed)
    is_kept = F.pmod(key, F.lit(sample)) == 0
    return [
        number.alias(_NUMBER),
        F.when(is_kept, key).alias(_KEY, metadata={"one_in": sample}),
    ]


def _is_rule(rules: Sequence[Rule], telling: Collection[str]) -> Column:
    """Whether a row's mapping is one of some rules; a destination in `telling` says it alone."""
    alone = [_literal(destination) for _, destination in rules if destination in telling]
    found = F.col("mapping_destination").isin(alone) if alone else F.lit(False)
    for source, destination in rules:
        if destination not in telling:
            found |= (F.col("mapping_source") == _literal(source)) & (
                F.col("mapping_destination") == _literal(destination)
            )
    # A message that became invalid has a destination too, and no subject to find a number in.
    return found & F.col("mapped_subject").isNotNull()


def _literal(text: str) -> Column:
    # As bytes, because it need not be UTF-8.
    return F.lit(encode(text)).cast("string")


def _token(subject: Column, place: int) -> Column:
    """A token of a subject, 1-based, from the end if negative."""
    if place < 0:
        return F.substring_index(F.substring_index(subject, ".", place), ".", 1)
    return F.substring_index(F.substring_index(subject, ".", place), ".", -1)


def measure_transformed(prepared: DataFrame) -> TransformedMeasures:
    """The measures of prepared rows of `transformed_messages`; one pass over them.

    Rows are counted by ending and partition number. Sampled keys and sampled messages are more
    columns of the same grouping, null for all other rows, so they cost no pass of their own.
    """
    # One struct: as columns of their own, null in almost every row, these doubled the pass.
    sampled = F.struct("seq", "draw", *map(_binary, ("subject", "mapped_subject", "reason")))
    groups = prepared.groupBy(
        *("stream", *_OF_ENDING, _NUMBER, _KEY),
        F.col("mapped_subject").isNotNull().alias("has_subject"),
        F.col("reason").isNotNull().alias("has_reason"),
        F.when(F.col(_SAMPLED), sampled).alias(_SAMPLED),
    ).agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(_is_broken(prepared)).alias(_BROKEN),
        *_hash_sums(_HASH),
        *_hash_sums(_TABLE_HASH),
    )
    days: dict[StreamDay, Bag] = defaultdict(Bag)
    table = Bag()
    found: Counter[Ending] = Counter()
    numbers: dict[Rule, Counter[str]] = defaultdict(Counter)
    keys: dict[Rule, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    sample: list[dict[str, Any]] = []
    broken = 0
    for row in _collect(groups):
        rows = row["rows"]
        days[row["stream"], row["day"]] += Bag(rows, _total(row, _HASH))
        table += Bag(rows, _total(row, _TABLE_HASH))
        found[Ending(*(row[name] for name in _OF_ENDING))] += rows
        if row[_NUMBER] is not None:
            rule = (row["mapping_source"], row["mapping_destination"])
            numbers[rule][row[_NUMBER]] += rows
            if row[_KEY] is not None:
                keys[rule][row[_KEY]][row[_NUMBER]] += rows
        if row[_SAMPLED] is not None:
            message = {name: _text(cell) for name, cell in row[_SAMPLED].asDict().items()}
            of_group = {name: row[name] for name in ("stream", *_OF_ENDING)}
            sample.append(of_group | message)
        broken += row[_BROKEN] or not _is_coherent(row)
    return TransformedMeasures(
        days=dict(days),
        table=table,
        endings=found,
        flags=_look(prepared, broken, [*_OF_MESSAGE, "day", *compiled.OUTPUT.names]),
        numbers=numbers,
        keys=keys,
        key_share=prepared.schema[_KEY].metadata["one_in"],
        sample=tuple(sample),
    )


_OF_ENDING = ("day", "cluster", "fate", "mapping_source", "mapping_destination")
_OF_MESSAGE = ("stream", "seq", "subject", "cluster")


def recomputed(
    rows: DataFrame, mappings: AccountMappings, table_hash: Column, *, seed: int = 0
) -> Bag:
    """All rows with the digest they get when Spark computes their outcomes again.

    A pass that costs as much as the transform without its writing, so the checks of every day do
    without it. The rows are cut and ordered anew, and nothing of that may show in the digest.

    Args:
        rows: of `transformed_messages`.
        mappings: they were written with.
        table_hash: a 64-bit hash of all columns.
        seed: they were written with.
    """
    archive = rows.drop(*compiled.OUTPUT.names)
    again = compiled.apply(mappings, archive.repartition(7, F.xxhash64("seq")), seed=seed)
    found = again.select(table_hash.alias(_TABLE_HASH)).agg(
        F.count(F.lit(1)).alias("rows"), *_hash_sums(_TABLE_HASH)
    )
    (row,) = _collect(found)
    return Bag(row["rows"], _total(row, _TABLE_HASH) if row["rows"] else 0)


# --- rules about one row --------------------------------------------------------------------------


def _is_misdated() -> Column:
    """Whether the three times of a message disagree; `ts_ns` is the exact one."""
    # Multiplied up, because Spark divides as floating point, which loses nanoseconds of our time.
    past_micros = F.col("ts_ns") - F.try_multiply(F.unix_micros("ts"), F.lit(1000))
    past_midnight = F.col("ts_ns") - F.try_multiply(F.unix_date("day").cast("long"), F.lit(_DAY_NS))
    agree = past_micros.between(0, 999) & past_midnight.between(0, _DAY_NS - 1)
    return ~F.coalesce(agree, F.lit(False))


def _is_illegal(column: str) -> Column:
    """Whether a subject is no legal literal one: `nats_transform.subject.literal_fault`."""
    subject = F.col(column)
    dotted = F.concat(F.lit("."), subject, F.lit("."))
    # Few subjects have a `*` or `>` at all, so few are copied to look at their tokens.
    is_empty = subject.contains("..") | subject.startswith(".") | subject.endswith(".")
    is_wild = (subject.contains("*") & dotted.contains(".*.")) | (
        subject.contains(">") & dotted.contains(".>.")
    )
    return is_empty | (subject == "") | is_wild


def _is_too_long(column: str) -> Column:
    return F.octet_length(F.col(column)) > MAX_SUBJECT


def _is_incoherent() -> Column:
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
    return ~F.coalesce(coherent & has_reason, F.lit(False)) | _contradicts_itself()


def _contradicts_itself() -> Column:
    """The part of `_is_incoherent` that needs every row; groups of rows tell the rest."""
    moved = F.col("mapping_source").isNull() & (F.col("mapped_subject") != F.col("subject"))
    drawn = ~F.col("draw").between(0, DRAWS - 1)
    return F.coalesce(moved, F.lit(False)) | F.coalesce(drawn, F.lit(False))


def _is_coherent(group: Mapping[str, Any]) -> bool:
    """Whether the rows of a group are not incoherent, but for what needs every row."""
    fate, has_subject = group["fate"], group["has_subject"]
    if group["has_reason"] != (fate == Fate.INVALID.value):
        return False
    if fate in (Fate.MAPPED.value, Fate.UNMATCHED.value):
        has_mapping = group["mapping_source"] is not None
        return bool(has_subject) and has_mapping == (fate == Fate.MAPPED.value)
    return fate in _WITHOUT_SUBJECT and not has_subject


_WITHOUT_SUBJECT = (Fate.LOST.value, Fate.FILTERED.value, Fate.INVALID.value)


# --- adding up ------------------------------------------------------------------------------------


def _or_null(hash64: Column | None) -> Column:
    return F.lit(None).cast("long") if hash64 is None else hash64


def _flags(**rules: Column) -> list[Column]:
    return [F.coalesce(rule, F.lit(False)).alias(_FLAG + name) for name, rule in rules.items()]


def _flag_names(prepared: DataFrame) -> list[str]:
    return [name for name in prepared.columns if name.startswith(_FLAG)]


def _is_broken(prepared: DataFrame) -> Column:
    """Whether a row breaks any rule: one count for all, because a good table has none."""
    names = [name for name in _flag_names(prepared) if name != _FLAG + "incoherent"]
    if _CONTRADICTS in prepared.columns:
        names.append(_CONTRADICTS)
    return reduce(or_, [F.col(name) for name in names])


def _sum_names(hash64: str) -> list[str]:
    return [f"{hash64}_{first}" for first, _ in _PIECES]


def _hash_sums(hash64: str) -> list[Column]:
    return [
        F.sum(F.shiftrightunsigned(hash64, first).bitwiseAND(F.lit((1 << bits) - 1))).alias(name)
        for (first, bits), name in zip(_PIECES, _sum_names(hash64), strict=True)
    ]


def _total(row: Mapping[str, Any], hash64: str) -> int | None:
    sums: list[int | None] = [row[name] for name in _sum_names(hash64)]
    total = 0
    for value, (first, _) in zip(sums, _PIECES, strict=True):
        if value is None:
            return None
        total += value << first
    return total & _ONES


def _binary(name: str) -> Column:
    return F.col(name).cast("binary").alias(name)


def _collect(rows: DataFrame) -> list[dict[str, Any]]:
    """The rows as Python has them; text comes as bytes, because it need not be UTF-8."""
    texts = [name for name, kind in rows.dtypes if kind == "string"]
    found = rows.withColumns({name: _binary(name) for name in texts}).collect()
    return [row.asDict() | {name: _text(row[name]) for name in texts} for row in found]


def _text(cell: Any) -> Any:
    return decode(bytes(cell)) if isinstance(cell, bytes | bytearray) else cell


def _look(prepared: DataFrame, broken: int, columns: Sequence[str]) -> dict[str, Flag]:
    """The flags with some rows of each; Spark is asked only if a row is flagged at all."""
    names = _flag_names(prepared)
    counts = dict.fromkeys(names, 0)
    examples: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if broken:
        (found,) = prepared.agg(*(F.count_if(name).alias(name) for name in names)).collect()
        counts = found.asDict()
    for name in (name for name in names if counts[name]):
        flagged = prepared.filter(F.col(name)).select(*columns).limit(EXAMPLES)
        examples[name] = _collect(flagged)
    return {name.removeprefix(_FLAG): Flag(counts[name], tuple(examples[name])) for name in names}
