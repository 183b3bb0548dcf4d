"""Mappings compiled to Spark Columns: DataFrame in, DataFrame out.

Everything is built-in functions on Columns that are made through the API, never from SQL text, so
no subject, literal or delimiter can be read as code. Nothing touches the session: the result works
under Spark Connect and in Structured Streaming.

- `matching` finds the mapping of a subject, by number;
- `shares` finds the destination that cluster and draw choose, by number;
- `destination` makes the new subject;
- `lookup` holds what depends on those numbers; `bytes` and `fnv` are functions on subjects.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from nats_transform.draw import mapping_key
from nats_transform.errors import NatsTransformError
from nats_transform.mapping import (
    DRAWS,
    EMPTY_DESTINATION,
    EMPTY_RESULT,
    AccountMappings,
    Fate,
)
from nats_transform.spark.bytes import View, fault, has_empty_token
from nats_transform.spark.destination import Message, add_inputs, has_partitions, new_subject
from nats_transform.spark.lookup import pick
from nats_transform.spark.matching import add_rule
from nats_transform.spark.shares import Shares

__all__ = ["OUTPUT", "apply"]

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
_SUBJECT = _OURS + "subject"
_IS_TEXT = _OURS + "is_text"
_TEXT = _OURS + "text"
_TOKENS = _OURS + "tokens"
_FAULT = _OURS + "fault"
_COUNT = _OURS + "count"
_RULE = _OURS + "rule"
_KEY = _OURS + "key"
_DRAW = _OURS + "draw"
_SCOPE = _OURS + "scope"
_SHARE = _OURS + "share"
_RESULT = _OURS + "result"
_REASON = _OURS + "reason"
_INPUT = _OURS + "input"


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
    shares = Shares(mappings)
    rule, share = F.col(_RULE), F.col(_SHARE)
    # One select for each step: what later steps use more than once is computed once.
    is_ascii = all(
        text.isascii()
        for mapping in mappings.mappings
        for text in (mapping.source, *[d.subject for d in mapping.destinations])
    )
    is_text = F.col(_IS_TEXT) if is_ascii else F.lit(False)
    view = View(is_text, F.col(_TEXT), F.col(_TOKENS), is_ascii)
    frame = df.select("*", _column(subject).cast("string").alias(_SUBJECT))
    frame = frame.select("*", F.is_valid_utf8(_SUBJECT).alias(_IS_TEXT))
    frame = frame.select("*", view.of(F.col(_SUBJECT)).alias(_TEXT))
    frame = frame.select("*", F.split(_TEXT, r"\.", -1).alias(_TOKENS))
    frame = frame.select("*", fault(F.col(_SUBJECT), view.tokens).alias(_FAULT))
    count = F.when(F.col(_FAULT).isNull(), F.size(view.tokens))
    frame = frame.select("*", count.alias(_COUNT))
    filters = [mapping.filter for mapping in mappings.mappings]
    frame = add_rule(frame, filters, view, F.col(_COUNT), _RULE)
    keys = [mapping_key(seed, mapping.source) for mapping in mappings.mappings]
    frame = frame.select("*", pick(keys, rule, "bigint").alias(_KEY))
    chance = (_column(stream), _column(seq).cast("long"), F.col(_KEY))
    draw = F.pmod(F.xxhash64(*chance), F.lit(DRAWS).cast("long")).cast("int")
    where = F.lit(None).cast("string") if cluster is None else _column(cluster)
    frame = frame.select("*", draw.alias(_DRAW), shares.scope(where, rule).alias(_SCOPE))
    chosen = F.when(rule.isNotNull(), shares.number(F.col(_SCOPE), F.col(_DRAW)))
    frame = frame.select("*", chosen.alias(_SHARE))
    message = Message(view, share, chance)
    frame = add_inputs(frame, shares.templates, message, _INPUT)
    result = new_subject(shares.templates, message, _INPUT)
    reason = F.coalesce(F.col(_FAULT), F.when(shares.crashes(share), EMPTY_DESTINATION))
    # A partition number ends Spark's code generation for the row, see `fnv`: stay in one select.
    if shares.can_make_empty_token or not has_partitions(shares.templates):
        frame = frame.select("*", result.alias(_RESULT))
        result = F.col(_RESULT)
    if shares.can_make_empty_token:
        is_empty = shares.can_be_empty(share) & has_empty_token(result)
        reason = F.coalesce(reason, F.when(is_empty, EMPTY_RESULT))
    frame = frame.select("*", reason.alias(_REASON))
    is_valid = F.col(_REASON).isNull()
    return frame.select(
        *[_column(name) for name in df.columns],
        F.when(is_valid & rule.isNull(), _column(subject).cast("string"))
        .when(is_valid & ~shares.loses(share), view.real(result))
        .alias("mapped_subject"),
        F.when(~is_valid, Fate.INVALID.value)
        .when(rule.isNull(), Fate.UNMATCHED.value)
        .when(shares.loses(share), Fate.LOST.value)
        .otherwise(Fate.MAPPED.value)
        .alias("fate"),
        F.col(_REASON).alias("reason"),
        F.when(rule.isNotNull(), pick([m.source for m in mappings.mappings], rule, "string")).alias(
            "mapping_source"
        ),
        F.when(rule.isNotNull(), shares.destination(share)).alias("mapping_destination"),
        F.when(rule.isNotNull() & shares.is_drawn(share), F.col(_DRAW)).alias("draw"),
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
