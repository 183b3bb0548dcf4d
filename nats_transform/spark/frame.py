"""What every compiled function starts from: a checked frame, and its subjects cut into tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from nats_transform.errors import NatsTransformError
from nats_transform.spark.bytes import View, fault

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
"""The columns that a compiled function adds."""

OURS = "__nats_"
"""What the names of columns start with that are there on the way only."""
FAULT = OURS + "fault"
COUNT = OURS + "count"
_SUBJECT = OURS + "subject"
_IS_TEXT = OURS + "is_text"
_TEXT = OURS + "text"
_TOKENS = OURS + "tokens"

_KINDS: Mapping[str, tuple[type[T.DataType], ...]] = {
    "subject": (T.StringType, T.BinaryType),
    "cluster": (T.StringType,),
    "stream": (T.StringType,),
    "seq": (T.LongType, T.IntegerType, T.ShortType, T.ByteType),
}


def check_columns(df: DataFrame, **roles: str | None) -> None:
    """Refuses a frame that cannot be compiled for.

    Args:
        df: one message a row.
        roles: the column of each role, `subject`, `cluster`, `stream` or `seq`; None for none.

    Raises:
        NatsTransformError: a column is missing, has the wrong type or is there already.
    """
    types = {field.name: field.dataType for field in df.schema.fields}
    for role, name in roles.items():
        if name is None:
            continue
        if name not in types:
            raise NatsTransformError(
                f"no column {name!r} for the {role}; the frame has {', '.join(df.columns)}"
            )
        if not isinstance(types[name], _KINDS[role]):
            raise NatsTransformError(
                f"column {name!r} is {types[name].simpleString()}; the {role} must be "
                f"{_KINDS[role][0].typeName()}"
            )
    taken = [name for name in df.columns if name in OUTPUT.names or name.startswith(OURS)]
    if taken:
        raise NatsTransformError(
            f"the frame already has {', '.join(taken)}: rename or drop these columns"
        )


def column(name: str) -> Column:
    """The column with this very name, whatever is in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def with_output(
    frame: DataFrame, columns: Sequence[str], output: Mapping[str, Column]
) -> DataFrame:
    """The frame with the columns it came with and those of `OUTPUT`, no others.

    Spark would move a filter on one of these ahead of all the steps that make it, and put in place
    of each column what it is made of: more copies with each step, in the end too many to plan with.
    It moves nothing ahead of what two looks may see differently, such as the number of a task.
    """
    made = [F.when(F.spark_partition_id() >= 0, output[name]).alias(name) for name in OUTPUT.names]
    return frame.select(*[column(name) for name in columns], *made)


def add_view(df: DataFrame, subject: str, texts: Iterable[str]) -> tuple[DataFrame, View]:
    """The frame with its subjects as text and tokens, `FAULT` and `COUNT`; and their view.

    `FAULT` is why a subject is no legal literal one, `COUNT` how many tokens a legal one has.

    Args:
        df: one message a row.
        subject: its column.
        texts: the sources and destinations that subjects will be compared with.
    """
    # One select for each step: what later steps use more than once is computed once.
    is_ascii = all(text.isascii() for text in texts)
    is_text = F.col(_IS_TEXT) if is_ascii else F.lit(False)
    view = View(is_text, F.col(_TEXT), F.col(_TOKENS), is_ascii)
    frame = df.select("*", column(subject).cast("string").alias(_SUBJECT))
    frame = frame.select("*", F.is_valid_utf8(_SUBJECT).alias(_IS_TEXT))
    frame = frame.select("*", view.of(F.col(_SUBJECT)).alias(_TEXT))
    frame = frame.select("*", F.split(_TEXT, r"\.", -1).alias(_TOKENS))
    frame = frame.select("*", fault(F.col(_SUBJECT), view.tokens).alias(FAULT))
    count = F.when(F.col(FAULT).isNull(), F.size(view.tokens))
    return frame.select("*", count.alias(COUNT)), view
