"""Mappings compiled to Spark Columns: DataFrame in, DataFrame out.

Everything is built-in functions on Columns that are made through the API, never from SQL text, so
no subject, literal or delimiter can be read as code. Nothing touches the session: the result works
under Spark Connect and in Structured Streaming.

Subjects are looked at as Latin-1 text, one character a byte, because mapping functions count bytes
and Spark's string functions do not keep bytes that are not UTF-8. Of an ASCII subject that view is
the subject itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from nats_transform.draw import mapping_key
from nats_transform.errors import NatsTransformError
from nats_transform.functions import (
    Left,
    Literal,
    Partition,
    Random,
    Right,
    SliceFromLeft,
    SliceFromRight,
    Split,
    SplitFromLeft,
    SplitFromRight,
    Tail,
    Token,
    Wildcard,
)
from nats_transform.mapping import (
    EMPTY_DESTINATION,
    EMPTY_RESULT,
    AccountMappings,
    Fate,
    Share,
)
from nats_transform.subject import (
    ANY_TAIL,
    ANY_TOKEN,
    EMPTY_TOKEN,
    NO_SUBJECT,
    SEPARATOR,
    WILDCARD_TOKEN,
    Filter,
    encode,
)

OUTPUT = T.StructType(
    [
        T.StructField("mapped_subject", T.StringType()),
        T.StructField("fate", T.StringType()),
        T.StructField("reason", T.StringType()),
        T.StructField("mapping_source", T.StringType()),
        T.StructField("mapping_destination", T.StringType()),
        T.StructField("draw", T.IntegerType()),
    ]
)
"""The columns that `apply` adds."""

_OURS = "__nats_"
_ASCII = _OURS + "ascii"
_VIEW = _OURS + "view"
_TOKENS = _OURS + "tokens"
_RULE = _OURS + "rule"
_KEY = _OURS + "key"
_DRAW = _OURS + "draw"
_SHARE = _OURS + "share"
_RESULT = _OURS + "result"

# A UTF-8 sequence, or else a single byte, as Latin-1 text: what Go takes for one character.
_UTF8_CHARACTER = (
    r"[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    r"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]"
    r"|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2}|[\x80-\xff]"
)


def apply(
    mappings: AccountMappings,
    df: DataFrame,
    *,
    subject: str = "subject",
    cluster: str | None = "cluster",
    stream: str = "stream",
    seq: str = "seq",
    seed: int = 0,
) -> DataFrame:
    """The frame and what becomes of each message: as `AccountMappings.replay`, bit for bit.

    Added columns: `mapped_subject` (null unless the fate is mapped or unmatched), `fate`, `reason`
    (null unless the fate is invalid), `mapping_source`, `mapping_destination` and `draw` (null
    where nothing was drawn).

    Args:
        mappings: of one account.
        df: one message a row.
        subject: column of the published subject, string or binary.
        cluster: column of the cluster's name, null for none; None if there is no such column.
        stream: column of the stream's name.
        seq: column of the sequence in the stream.
        seed: the seed of the run.

    Raises:
        NatsTransformError: a column is missing, has the wrong type or is there already.
    """
    _check_columns(df, subject=subject, cluster=cluster, stream=stream, seq=seq)
    raw = _column(subject).cast("string")
    # One select for each step: what later steps use more than once is computed once.
    frame = df.select("*", _is_ascii(raw).alias(_ASCII))
    frame = frame.select("*", _view(raw).alias(_VIEW))
    frame = frame.select("*", F.split(_VIEW, r"\.", -1).alias(_TOKENS))
    frame = frame.select("*", _fault(raw).alias("reason"))
    frame = frame.select("*", _match(mappings).alias(_RULE))
    keys = [F.lit(mapping_key(seed, mapping.source)) for mapping in mappings.mappings]
    frame = frame.select("*", _pick(_RULE, keys, "long").alias(_KEY))
    chance = (_column(stream), _column(seq).cast("long"), F.col(_KEY))
    frame = frame.select("*", F.pmod(F.xxhash64(*chance), F.lit(100)).cast("int").alias(_DRAW))
    place = F.lit(None).cast("string") if cluster is None else _column(cluster)
    shares = _Shares(mappings)
    frame = frame.select("*", shares.choose(place).alias(_SHARE))
    frame = frame.select("*", shares.results(chance).alias(_RESULT))
    frame = frame.withColumn("reason", F.coalesce("reason", shares.fault()))
    fate = (
        F.when(F.col("reason").isNotNull(), Fate.INVALID.value)
        .when(F.col(_RULE).isNull(), Fate.UNMATCHED.value)
        .when(shares.is_lost(), Fate.LOST.value)
        .otherwise(Fate.MAPPED.value)
    )
    frame = frame.select("*", fate.alias("fate"))
    real = F.encode(_RESULT, "ISO-8859-1").cast("string")
    if shares.are_ascii:
        real = F.when(F.col(_ASCII), F.col(_RESULT)).otherwise(real)
    mapped = F.when(F.col("fate") == Fate.MAPPED.value, real).when(
        F.col("fate") == Fate.UNMATCHED.value, raw
    )
    sources = [_text(mapping.source) for mapping in mappings.mappings]
    return frame.select(
        *[_column(name) for name in df.columns],
        mapped.alias("mapped_subject"),
        "fate",
        "reason",
        _pick(_RULE, sources, "string").alias("mapping_source"),
        shares.destinations().alias("mapping_destination"),
        F.when(shares.is_drawn(), F.col(_DRAW)).alias("draw"),
    )


def _check_columns(
    df: DataFrame, *, subject: str, cluster: str | None, stream: str, seq: str
) -> None:
    wanted: list[tuple[str, str | None, tuple[type[T.DataType], ...]]] = [
        ("subject", subject, (T.StringType, T.BinaryType)),
        ("cluster", cluster, (T.StringType,)),
        ("stream", stream, (T.StringType,)),
        ("seq", seq, (T.LongType, T.IntegerType, T.ShortType, T.ByteType)),
    ]
    types = {field.name: field.dataType for field in df.schema.fields}
    for role, name, kinds in wanted:
        if name is None:
            continue
        if name not in types:
            raise NatsTransformError(
                f"no column {name!r} for the {role}; the frame has {', '.join(df.columns)}"
            )
        if not isinstance(types[name], kinds):
            raise NatsTransformError(
                f"column {name!r} is {types[name].simpleString()}; the {role} must be "
                f"{kinds[0].typeName()}"
            )
    taken = [name for name in df.columns if name in OUTPUT.names or name.startswith(_OURS)]
    if taken:
        raise NatsTransformError(
            f"the frame already has {', '.join(taken)}: rename or drop these columns"
        )


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _text(text: str) -> Column:
    """A literal of any bytes: one that is not UTF-8 cannot travel as a string."""
    data = encode(text)
    try:
        return F.lit(data.decode("utf-8"))
    except UnicodeDecodeError:
        return F.lit(data).cast("string")


def _latin1(text: str) -> str:
    """Literal text as it looks in the view."""
    return encode(text).decode("latin-1")


def _is_ascii(raw: Column) -> Column:
    # A stray byte above 0x7f counts as one character, so the lengths alone do not tell.
    return F.is_valid_utf8(raw) & (F.length(raw) == F.octet_length(raw))


def _view(raw: Column) -> Column:
    return F.when(F.col(_ASCII), raw).otherwise(F.decode(raw.cast("binary"), "ISO-8859-1"))


def _fault(raw: Column) -> Column:
    """Why a subject is not a legal literal one; null if it is."""
    wildcards = F.array_contains(_TOKENS, ANY_TOKEN) | F.array_contains(_TOKENS, ANY_TAIL)
    return (
        F.when(raw.isNull(), NO_SUBJECT)
        .when(F.array_contains(_TOKENS, ""), EMPTY_TOKEN)
        .when(wildcards, WILDCARD_TOKEN)
    )


def _match(mappings: AccountMappings) -> Column:
    """The index of the first mapping that covers a legal subject; null if there is none."""
    found = F.when(F.col("reason").isNotNull(), F.lit(None).cast("int"))
    for index, mapping in enumerate(mappings.mappings):
        found = found.when(_covers(mapping.filter), index)
    return found


def _covers(filter: Filter) -> Column:
    size = F.size(_TOKENS)
    if filter.is_open:
        fixed, covered = filter.tokens[:-1], size >= len(filter.tokens)
    else:
        fixed, covered = filter.tokens, size == len(filter.tokens)
    for position, token in enumerate(fixed):
        if not token.startswith(ANY_TOKEN):
            covered = covered & (_token_at(position) == _latin1(token))
    return covered


def _pick(index: str, values: Sequence[Column], kind: str) -> Column:
    """The value at the index in a column; null where that is null."""
    null = F.lit(None).cast(kind)
    chain = F.when(F.col(index).isNull(), null)
    for position, value in enumerate(values):
        chain = chain.when(F.col(index) == position, value)
    return chain


def _flag(index: str, flags: Sequence[bool]) -> Column:
    """Whether the flag at the index in a column is set."""
    chosen = [position for position, flag in enumerate(flags) if flag]
    return F.coalesce(F.col(index).isin(chosen), F.lit(False)) if chosen else F.lit(False)


class _Shares:
    """The shares of all mappings in all clusters, numbered, and what depends on the number."""

    def __init__(self, mappings: AccountMappings) -> None:
        self._mappings = mappings.mappings
        self._scopes = [
            (rule, mapping, cluster)
            for rule, mapping in enumerate(mappings.mappings)
            for cluster in (None, *mapping.clusters)
        ]
        self._shares = [s for _, m, c in self._scopes for s in m.shares(c)]
        self._rules = [rule for rule, m, c in self._scopes for _ in m.shares(c)]
        self._drawn = [m.is_drawn(c) for _, m, c in self._scopes for _ in m.shares(c)]
        self.are_ascii = all(
            share.destination is None or share.destination.isascii() for share in self._shares
        )

    def choose(self, cluster: Column) -> Column:
        """The number of the share that a message gets."""
        scoped: list[Column] = []
        first = 0
        for mapping in self._mappings:
            by_cluster: Column | None = None
            general = self._by_draw(first, mapping.shares())
            first += len(mapping.shares())
            for name in mapping.clusters:
                chosen = self._by_draw(first, mapping.shares(name))
                first += len(mapping.shares(name))
                is_there = cluster == _text(name)
                by_cluster = (
                    F.when(is_there, chosen)
                    if by_cluster is None
                    else by_cluster.when(is_there, chosen)
                )
            scoped.append(general if by_cluster is None else by_cluster.otherwise(general))
        return _pick(_RULE, scoped, "int")

    def _by_draw(self, first: int, shares: Sequence[Share]) -> Column:
        *others, last = enumerate(shares, first)
        chosen = F.lit(last[0])
        for number, share in reversed(others):
            chosen = F.when(F.col(_DRAW) < share.below, number).otherwise(chosen)
        return chosen

    def results(self, chance: tuple[Column, ...]) -> Column:
        """The view of the subject that the share makes; null if it makes none."""
        values = []
        for rule, share in zip(self._rules, self._shares, strict=True):
            if share.transform is None:
                values.append(F.lit(None).cast("string"))
                continue
            # As in AccountMappings: a literal source that is tried first has no tokens.
            has_tokens = rule > 0 or not self._mappings[0].filter.is_literal
            tokens = [
                _compile(token, F.col(_VIEW) if has_tokens else F.lit(""), chance)
                for token in share.transform.tokens
            ]
            values.append(_joined(*tokens))
        return _pick(_SHARE, values, "string")

    def fault(self) -> Column:
        """Why the result of a share is invalid; null if it is not."""
        crashes = [s.destination is not None and s.transform is None for s in self._shares]
        can_be_empty = [
            s.transform is not None and s.transform.can_make_empty_token for s in self._shares
        ]
        has_empty = F.array_contains(F.split(_RESULT, r"\.", -1), "")
        return F.when(_flag(_SHARE, crashes), EMPTY_DESTINATION).when(
            _flag(_SHARE, can_be_empty) & has_empty, EMPTY_RESULT
        )

    def is_lost(self) -> Column:
        return _flag(_SHARE, [share.destination is None for share in self._shares])

    def is_drawn(self) -> Column:
        return _flag(_SHARE, self._drawn)

    def destinations(self) -> Column:
        values = [
            F.lit(None).cast("string") if s.destination is None else _text(s.destination)
            for s in self._shares
        ]
        return _pick(_SHARE, values, "string")


def _token_at(position: int) -> Column:
    return F.get(_TOKENS, F.lit(position))


def _compile(token: Token, whole: Column, chance: tuple[Column, ...]) -> Column:
    """The text that a destination token stands for.

    Args:
        token: of the destination.
        whole: the view that `partition(n)` hashes.
        chance: the columns whose hash decides each `random()`.
    """
    match token:
        case Literal(text):
            return F.lit(_latin1(text))
        case Tail(position):
            from_right = F.lit(position) - F.size(_TOKENS)
            return F.call_function("substring_index", _VIEW, F.lit(SEPARATOR), from_right)
        case Wildcard(position):
            return _token_at(position)
        case Partition(0):
            return F.lit("0")
        case Partition(count, positions):
            key = F.concat(*map(_token_at, positions)) if positions else whole
            return F.pmod(_fnv1a(key), F.lit(count)).cast("string")
        case Random(0):
            return F.lit("0")
        case Random(count, slot):
            bits = F.xxhash64(*chance, F.lit(slot).cast("long"))
            return F.pmod(bits, F.lit(abs(count)).cast("long")).cast("string")
        case Split(position, delimiter):
            return _split(_token_at(position), _latin1(delimiter))
        case _:
            return _cut(token, _token_at(token.position))


def _split(text: Column, delimiter: str) -> Column:
    if not delimiter:
        return F.regexp_replace(text, f"(?s)({_UTF8_CHARACTER})(?=.)", "$1.")
    parts = F.split(text, _quoted(delimiter), -1)
    joined = F.array_join(F.array_remove(parts, ""), SEPARATOR)
    leads = F.startswith(text, F.lit(delimiter * 2)) & (joined != "")
    return F.when(leads, F.concat(F.lit(SEPARATOR), joined)).otherwise(joined)


def _quoted(text: str) -> str:
    """A regular expression that matches this Latin-1 text and nothing else."""
    return "".join(c if c.isalnum() or ord(c) > 0x7F else "\\" + c for c in text)


def _cut(token: Token, text: Column) -> Column:
    """A token's text under a function that counts bytes from one of its ends."""
    length = F.length(text)
    match token:
        case Left(_, size):
            cut = F.left(text, F.lit(size))
        case Right(_, size):
            cut = F.right(text, F.lit(size))
        case SplitFromLeft(_, size):
            cut = _joined(F.left(text, F.lit(size)), F.right(text, length - size))
        case SplitFromRight(_, size):
            cut = _joined(F.left(text, length - size), F.right(text, F.lit(size)))
        case SliceFromLeft(_, size):
            cut = _slices(text, size)
        case SliceFromRight(_, size):
            first = F.pmod(length - 1, F.lit(size)) + 1
            cut = _joined(F.left(text, first), _slices(F.right(text, length - first), size))
        case _:
            raise TypeError(f"no Column for {token!r}")
    return F.when(length > size, cut).otherwise(text) if size > 0 else text


def _joined(*texts: Column) -> Column:
    return F.concat_ws(SEPARATOR, *texts)


def _slices(text: Column, size: int) -> Column:
    return F.regexp_replace(text, f"(?s)(.{{{size}}})(?=.)", "$1.")


def _fnv1a(key: Column) -> Column:
    """The 32-bit FNV-1a hash of Latin-1 text, one byte a character."""
    basis = F.lit(2166136261)
    folded = F.aggregate(
        F.split(key, ""),
        basis,
        lambda value, byte: (value.bitwiseXOR(F.ascii(byte)) * 16777619).bitwiseAND(
            F.lit(0xFFFFFFFF)
        ),
    )
    return F.when(key == "", basis).otherwise(folded)
