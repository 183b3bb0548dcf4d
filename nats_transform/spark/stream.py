"""What a stream does to a subject, compiled to Spark Columns.

As `nats_transform.stream` and `stream_source`: a mirror or stream source takes a message and may
rename it (`take`), the ingress transform decides what it is stored under (`ingress`), and a stored
message may be republished (`republish`). Each adds the columns of `OUTPUT`, of which `draw` is
always null: to take a step after another, rename or drop those of the first and name its result as
the subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from nats_transform.draw import mapping_key
from nats_transform.mapping import Fate
from nats_transform.spark.bytes import View, fault
from nats_transform.spark.destination import Message, add_inputs, new_subject, template
from nats_transform.spark.frame import (
    COUNT,
    FAULT,
    OURS,
    add_view,
    check_columns,
    column,
    with_output,
)
from nats_transform.spark.lookup import pick
from nats_transform.spark.matching import add_rule
from nats_transform.spark.size import check_size
from nats_transform.stream import INGRESS, REPUBLISH, UNPUBLISHABLE, StreamConfig
from nats_transform.stream_source import StreamFilter, StreamSource
from nats_transform.transform import Transform

_TAKER = OURS + "taker"
_RENAMER = OURS + "renamer"
_RULE = OURS + "rule"
_INPUT = OURS + "input"
_RESULT = OURS + "result"
_REASON = OURS + "reason"
_BLANK = "[\t\n\f\r ]"


def ingress(
    config: StreamConfig,
    df: DataFrame,
    *,
    subject: str = "subject",
    stream: str = "stream",
    seq: str = "seq",
    seed: int = 0,
) -> DataFrame:
    """The frame and what each message is stored under: as `StreamConfig.replay`, bit for bit.

    Args:
        config: of the stream that the messages reach.
        df: one message a row.
        subject: column of the subject, string or binary.
        stream: column of the name of the stream that the message is in.
        seq: column of the sequence there.
        seed: the seed of the run.

    Raises:
        NatsTransformError: a column is missing, has the wrong type or is there already.
    """
    step = _Step(
        rules=_rules(config.ingress_transform),
        subscribes=False,
        otherwise=Fate.UNMATCHED,
        publishes=False,
        key=mapping_key(seed, INGRESS),
    )
    return _compiled(step, df, subject, stream, seq)


def take(
    source: StreamSource,
    df: DataFrame,
    *,
    subject: str = "subject",
    stream: str = "stream",
    seq: str = "seq",
    seed: int = 0,
) -> DataFrame:
    """The frame and what a mirror or stream source makes of it: as `StreamSource.replay`.

    Args:
        source: one of a stream's `sources`, or its `mirror`.
        df: messages of the other stream, one a row; whether they are is not looked at.
        subject: column of the subject they are stored under, string or binary.
        stream: column of the stream's name.
        seq: column of the sequence in the stream.
        seed: the seed of the run.

    Raises:
        NatsTransformError: a column is missing, has the wrong type or is there already.
    """
    step = _Step(
        rules=() if source.takes_nothing else source.filters,
        subscribes=True,
        otherwise=Fate.FILTERED if source.filters else Fate.UNMATCHED,
        publishes=False,
        key=mapping_key(seed, source.place),
    )
    return _compiled(step, df, subject, stream, seq)


def republish(
    config: StreamConfig,
    df: DataFrame,
    *,
    subject: str = "subject",
    stream: str = "stream",
    seq: str = "seq",
    seed: int = 0,
) -> DataFrame:
    """The frame and what is republished: as `StreamConfig.replay_republish`, bit for bit.

    Args:
        config: of the stream that stores the messages.
        df: one message a row.
        subject: column of the subject it is stored under, string or binary.
        stream: column of the name of the stream that the message is in.
        seq: column of the sequence there.
        seed: the seed of the run.

    Raises:
        NatsTransformError: a column is missing, has the wrong type or is there already.
    """
    step = _Step(
        rules=_rules(config.republish_transform),
        subscribes=False,
        otherwise=Fate.FILTERED,
        publishes=True,
        key=mapping_key(seed, REPUBLISH),
    )
    return _compiled(step, df, subject, stream, seq)


@dataclass(frozen=True, slots=True)
class _Step:
    """One thing that a stream does.

    Attributes:
        rules: the filters in their order, each with the transform that goes with it or without.
        subscribes: whether a filter must take a message first, see `StreamSource.take`.
        otherwise: the fate of a message that no rule applies to.
        publishes: whether a result that nobody can publish is suppressed.
        key: of the draws.
    """

    rules: Sequence[StreamFilter]
    subscribes: bool
    otherwise: Fate
    publishes: bool
    key: int


def _rules(transform: Transform | None) -> Sequence[StreamFilter]:
    if transform is None:
        return []
    return [StreamFilter(transform.source, transform.destination, transform.filter, transform)]


def _compiled(step: _Step, df: DataFrame, subject: str, stream: str, seq: str) -> DataFrame:
    check_columns(df, subject=subject, stream=stream, seq=seq)
    rules, rule = step.rules, F.col(_RULE)
    templates = [template(one.transform.tokens) if one.transform else None for one in rules]
    check_size([one.filter for one in rules], templates)
    texts = [text for one in rules for text in (one.source, one.destination)]
    frame, view = add_view(df, subject, texts)
    frame = _add_rule(frame, step, view)
    chance = (column(stream), column(seq).cast("long"), F.lit(step.key).cast("long"))
    message = Message(view, rule, chance)
    frame = add_inputs(frame, templates, message, _INPUT)
    result = new_subject(templates, message, _INPUT)
    reason = F.col(FAULT)
    if step.publishes:
        frame = frame.select("*", result.alias(_RESULT))
        result = F.col(_RESULT)
        is_illegal = fault(result, F.split(result, r"\.", -1)).isNotNull()
        is_suppressed = rule.isNotNull() & (is_illegal | F.rlike(result, F.lit(_BLANK)))
        reason = F.coalesce(reason, F.when(is_suppressed, UNPUBLISHABLE))
    frame = frame.select("*", reason.alias(_REASON))
    is_valid = F.col(_REASON).isNull()
    renames = rule.isNotNull() & pick([t is not None for t in templates], rule, "boolean")
    keeps = rule.isNotNull() if step.otherwise is Fate.FILTERED else F.lit(True)
    subjects = F.when(is_valid & renames, view.real(result)).when(
        is_valid & keeps, column(subject).cast("string")
    )
    fate = (
        F.when(~is_valid, Fate.INVALID.value)
        .when(rule.isNull(), step.otherwise.value)
        .otherwise(Fate.MAPPED.value)
    )
    source = pick([one.source for one in rules], rule, "string")
    destination = pick([one.destination for one in rules], rule, "string")
    return with_output(
        frame,
        df.columns,
        {
            "mapped_subject": subjects,
            "fate": fate,
            "reason": F.col(_REASON),
            "mapping_source": F.when(rule.isNotNull(), source),
            "mapping_destination": F.when(rule.isNotNull(), destination),
            "draw": F.lit(None).cast("int"),
        },
    )


def _add_rule(frame: DataFrame, step: _Step, view: View) -> DataFrame:
    """The frame with the number of the rule that applies, or null."""
    filters = [rule.filter for rule in step.rules]
    if not step.subscribes:
        return add_rule(frame, filters, view, F.col(COUNT), _RULE)
    # Where filters cross, one rule may take a message and another rename it.
    renaming = [number for number, rule in enumerate(step.rules) if rule.transform]
    frame = add_rule(frame, filters, view, F.col(COUNT), _TAKER, subscribes=True)
    frame = add_rule(frame, [filters[number] for number in renaming], view, F.col(COUNT), _RENAMER)
    taker, renamer = F.col(_TAKER), F.col(_RENAMER)
    first = F.when(renamer.isNotNull(), pick(renaming, renamer, "int"))
    return frame.select("*", F.when(taker.isNotNull(), F.coalesce(first, taker)).alias(_RULE))
