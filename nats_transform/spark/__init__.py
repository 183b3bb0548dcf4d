"""Mappings and streams compiled to Spark Columns: DataFrame in, DataFrame out.

Everything is built-in functions on Columns that are made through the API, never from SQL text, so
no subject, literal or delimiter can be read as code. Nothing touches the session: the result works
under Spark Connect and in Structured Streaming.

- `frame` checks the columns and cuts subjects into tokens;
- `matching` finds the mapping of a subject, by number;
- `shares` finds the destination that cluster and draw choose, by number;
- `destination` makes the new subject;
- `lookup` holds what depends on those numbers; `bytes` and `fnv` are functions on subjects;
- `stream` does with the same parts what a stream does; `size` refuses what is too large.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nats_transform.draw import mapping_key
from nats_transform.mapping import (
    DRAWS,
    EMPTY_DESTINATION,
    EMPTY_RESULT,
    AccountMappings,
    Fate,
)
from nats_transform.spark.bytes import has_empty_token
from nats_transform.spark.destination import Message, add_inputs, has_partitions, new_subject
from nats_transform.spark.frame import (
    COUNT,
    FAULT,
    OURS,
    OUTPUT,
    add_view,
    check_columns,
    column,
    with_output,
)
from nats_transform.spark.lookup import pick
from nats_transform.spark.matching import add_rule
from nats_transform.spark.shares import Shares
from nats_transform.spark.size import check_size
from nats_transform.spark.stream import ingress, republish, take
from nats_transform.stream import StreamConfig

__all__ = ["OUTPUT", "apply", "ingress", "republish", "take"]

_RULE = OURS + "rule"
_KEY = OURS + "key"
_DRAW = OURS + "draw"
_SCOPE = OURS + "scope"
_SHARE = OURS + "share"
_RESULT = OURS + "result"
_REASON = OURS + "reason"
_INPUT = OURS + "input"


def apply(
    mappings: AccountMappings | StreamConfig,
    df: DataFrame,
    *,
    subject: str = "subject",
    cluster: str | None = "cluster",
    stream: str = "stream",
    seq: str = "seq",
    seed: int = 0,
) -> DataFrame:
    """The frame and what becomes of each message: as `replay` of the mappings, bit for bit.

    Added columns: `mapped_subject` (null unless the fate is mapped or unmatched), `fate`, `reason`
    (null unless the fate is invalid), `mapping_source`, `mapping_destination` and `draw` (null
    where nothing was drawn).

    Args:
        mappings: of one account; or a stream configuration, whose `ingress` is applied then.
        df: one message a row. Filter it here: Spark moves no filter on the result ahead of this.
        subject: column of the published subject, string or binary.
        cluster: column of the cluster's name, null for none; None if there is no such column.
        stream: column of the stream's name.
        seq: column of the sequence in the stream.
        seed: the seed of the run.

    Raises:
        NatsTransformError: a column is missing, has the wrong type or is there already.
        TooLarge: more than Spark can plan, see `size`.
    """
    if isinstance(mappings, StreamConfig):
        return ingress(mappings, df, subject=subject, stream=stream, seq=seq, seed=seed)
    check_columns(df, subject=subject, cluster=cluster, stream=stream, seq=seq)
    filters = [mapping.filter for mapping in mappings.mappings]
    shares = Shares(mappings)
    check_size(filters, shares.templates)
    rule, share = F.col(_RULE), F.col(_SHARE)
    texts = [
        text
        for mapping in mappings.mappings
        for text in (mapping.source, *[d.subject for d in mapping.destinations])
    ]
    # One select for each step: what later steps use more than once is computed once.
    frame, view = add_view(df, subject, texts)
    frame = add_rule(frame, filters, view, F.col(COUNT), _RULE)
    keys = [mapping_key(seed, mapping.source) for mapping in mappings.mappings]
    frame = frame.select("*", pick(keys, rule, "bigint").alias(_KEY))
    chance = (column(stream), column(seq).cast("long"), F.col(_KEY))
    draw = F.pmod(F.xxhash64(*chance), F.lit(DRAWS).cast("long")).cast("int")
    where = F.lit(None).cast("string") if cluster is None else column(cluster)
    frame = frame.select("*", draw.alias(_DRAW), shares.scope(where, rule).alias(_SCOPE))
    chosen = F.when(rule.isNotNull(), shares.number(F.col(_SCOPE), F.col(_DRAW)))
    frame = frame.select("*", chosen.alias(_SHARE))
    message = Message(view, share, chance)
    frame = add_inputs(frame, shares.templates, message, _INPUT)
    result = new_subject(shares.templates, message, _INPUT)
    reason = F.coalesce(F.col(FAULT), F.when(shares.crashes(share), EMPTY_DESTINATION))
    # A partition number ends Spark's code generation for the row, see `fnv`: stay in one select.
    if shares.can_make_empty_token or not has_partitions(shares.templates):
        frame = frame.select("*", result.alias(_RESULT))
        result = F.col(_RESULT)
    if shares.can_make_empty_token:
        is_empty = shares.can_be_empty(share) & has_empty_token(result)
        reason = F.coalesce(reason, F.when(is_empty, EMPTY_RESULT))
    frame = frame.select("*", reason.alias(_REASON))
    is_valid = F.col(_REASON).isNull()
    subjects = F.when(is_valid & rule.isNull(), column(subject).cast("string")).when(
        is_valid & ~shares.loses(share), view.real(result)
    )
    fate = (
        F.when(~is_valid, Fate.INVALID.value)
        .when(rule.isNull(), Fate.UNMATCHED.value)
        .when(shares.loses(share), Fate.LOST.value)
        .otherwise(Fate.MAPPED.value)
    )
    source = pick([mapping.source for mapping in mappings.mappings], rule, "string")
    return with_output(
        frame,
        df.columns,
        {
            "mapped_subject": subjects,
            "fate": fate,
            "reason": F.col(_REASON),
            "mapping_source": F.when(rule.isNotNull(), source),
            "mapping_destination": F.when(rule.isNotNull(), shares.destination(share)),
            "draw": F.when(rule.isNotNull() & shares.is_drawn(share), F.col(_DRAW)),
        },
    )
