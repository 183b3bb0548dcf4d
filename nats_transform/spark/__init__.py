"""Applies mappings and the transforms of streams to a Spark DataFrame and adds columns to it.

Spark's workers give whole columns to the compiled kernel (`nats_transform.kernel`) in an Arrow UDF.
They need nats-transform and pyarrow. Nothing is read from the session, so the result works under
Spark Connect and in Structured Streaming. The new subjects of one batch must stay below 2 GB. If a
worker says that they do not, lower `spark.sql.execution.arrow.maxRecordsPerBatch`.

`apply` applies the mappings of an account. A mirror or stream source takes a message and may rename
it (`take`), the ingress transform decides the stored subject (`ingress`), and a stored message may
be republished (`republish`). Each function adds the columns of `OUTPUT`. To apply two functions one
after the other, rename or drop the columns of the first, and name its result as the subject.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence

import pyarrow as pa

try:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as F
    from pyspark.sql import types as T
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{__name__} needs Spark: pip install 'nats-transform[spark]'", name=error.name
    ) from error

from nats_transform.errors import NatsTransformError
from nats_transform.kernel import (
    Program,
    compile_ingress,
    compile_mappings,
    compile_republish,
    compile_take,
)
from nats_transform.kernel.library import library
from nats_transform.kernel.messages import WIDE
from nats_transform.kernel.rules import State
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import encode
from nats_transform.spark.digest import column
from nats_transform.streams.source import StreamSource
from nats_transform.streams.stream import StreamConfig

__all__ = ["OUTPUT", "apply", "ingress", "republish", "take", "with_messages"]

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
"""The columns that each function adds."""

_OUTCOME = "__nats_outcome"
"""A column that is only used in between."""
_MAPPED = "mapped_subject string, state int, draw int"
_FIELDS = ("fate", "reason", "mapping_source", "mapping_destination")
"""The columns that depend only on the state."""

_KINDS: Mapping[str, tuple[type[T.DataType], ...]] = {
    "subject": (T.StringType, T.BinaryType),
    "stream": (T.StringType,),
    "seq": (T.LongType, T.IntegerType, T.ShortType, T.ByteType),
    "cluster": (T.StringType,),
}


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
    """The DataFrame with the outcome of each message, which equals that of `replay` bit for bit.

    Added columns: `mapped_subject` (null unless the fate is mapped or unmatched), `fate`, `reason`
    (null unless the fate is invalid), `mapping_source`, `mapping_destination` and `draw` (null if
    nothing was drawn).

    Args:
        mappings: the mappings of one account; or a stream configuration to apply its `ingress`.
        df: messages, one in each row. Filter it before the call, because Spark does not move a
            filter on the result ahead of this function.
        subject: the column of the published subject, string or binary.
        cluster: the column of the cluster's name, null for no name; None without such a column.
        stream: the column of the stream's name.
        seq: the column of the sequence in the stream.
        seed: the seed of the run.

    Raises:
        NatsTransformError: a column is missing, has the wrong type or is there already.
        KernelUnavailable: the kernel is not compiled.
    """
    if isinstance(mappings, StreamConfig):
        return ingress(mappings, df, subject=subject, stream=stream, seq=seq, seed=seed)
    return _applied(compile_mappings(mappings, seed), df, subject, stream, seq, cluster)


def ingress(
    config: StreamConfig,
    df: DataFrame,
    *,
    subject: str = "subject",
    stream: str = "stream",
    seq: str = "seq",
    seed: int = 0,
) -> DataFrame:
    """The DataFrame with the stored subject of each message, as `StreamConfig.replay` gives it.

    Args:
        config: the configuration of the stream that the messages reach.
        df: as for `apply`.
        subject: as for `apply`.
        stream: as for `apply`.
        seq: as for `apply`.
        seed: as for `apply`.

    Raises:
        NatsTransformError: for the same reasons as `apply`.
        KernelUnavailable: the kernel is not compiled.
    """
    return _applied(compile_ingress(config, seed), df, subject, stream, seq)


def take(
    source: StreamSource,
    df: DataFrame,
    *,
    subject: str = "subject",
    stream: str = "stream",
    seq: str = "seq",
    seed: int = 0,
) -> DataFrame:
    """The DataFrame with the outcomes of a mirror or stream source, as of `StreamSource.replay`.

    Args:
        source: one of a stream's `sources`, or its `mirror`.
        df: messages of the other stream, one in each row. It is not checked that they are its own.
        subject: as for `apply`.
        stream: as for `apply`.
        seq: as for `apply`.
        seed: as for `apply`.

    Raises:
        NatsTransformError: for the same reasons as `apply`.
        KernelUnavailable: the kernel is not compiled.
    """
    return _applied(compile_take(source, seed), df, subject, stream, seq)


def republish(
    config: StreamConfig,
    df: DataFrame,
    *,
    subject: str = "subject",
    stream: str = "stream",
    seq: str = "seq",
    seed: int = 0,
) -> DataFrame:
    """The DataFrame with the republished subjects, as `StreamConfig.replay_republish` gives them.

    Args:
        config: the configuration of the stream that stores the messages.
        df: as for `apply`.
        subject: the column of the stored subject.
        stream: as for `apply`.
        seq: as for `apply`.
        seed: as for `apply`.

    Raises:
        NatsTransformError: for the same reasons as `apply`.
        KernelUnavailable: the kernel is not compiled.
    """
    return _applied(compile_republish(config, seed), df, subject, stream, seq)


def _applied(
    program: Program,
    df: DataFrame,
    subject: str,
    stream: str,
    seq: str,
    cluster: str | None = None,
) -> DataFrame:
    library()  # refused here, in one line, instead of by a worker
    roles = {"subject": subject, "stream": stream, "seq": seq}
    if cluster is not None:
        roles["cluster"] = cluster
    _check_columns(df, roles)

    def mapped(subject: pa.Array, stream: pa.Array, seq: pa.Array, *cluster: pa.Array) -> pa.Array:
        where = cluster[0] if cluster else None
        outcomes = program.run(subject, stream=stream, seq=seq, cluster=where)
        columns = [outcomes.subjects.view(pa.string()), outcomes.states, outcomes.draws]
        return pa.StructArray.from_arrays(columns, names=["mapped_subject", "state", "draw"])

    # Spark would call a function of which it knows that it gives the same each time once for a
    # filter on the result, and once more for the result.
    kernel = F.arrow_udf(mapped, _MAPPED).asNondeterministic()  # type: ignore[attr-defined]
    outcome = F.col(_OUTCOME)
    of_state = F.get(_table(program.states), outcome["state"])
    columns = {name: of_state[name].cast("string") for name in _FIELDS}
    columns |= {name: outcome[name] for name in ("mapped_subject", "draw")}
    return df.select("*", kernel(*map(column, roles.values())).alias(_OUTCOME)).select(
        *map(column, df.columns), *(columns[name].alias(name) for name in OUTPUT.names)
    )


def _table(states: Sequence[State]) -> Column:
    """The columns of each state, as an array that is made once; rows have only its number."""

    def packed(text: str | None) -> str | None:
        return None if text is None else b64encode(encode(text)).decode()

    texts = ((s.fate.value, s.reason, s.source, s.destination) for s in states)
    rows = [dict(zip(_FIELDS, map(packed, of_state), strict=True)) for of_state in texts]
    # One JSON text, because a literal for each would take minutes; as bytes, because text that is
    # not UTF-8 cannot travel as a string.
    fields = ", ".join(f"{name}: binary" for name in _FIELDS)
    return F.from_json(F.lit(json.dumps(rows)), f"array<struct<{fields}>>")


def _check_columns(df: DataFrame, roles: Mapping[str, str]) -> None:
    """Refuses a DataFrame from which messages cannot be read.

    Raises:
        NatsTransformError: a column is missing, has the wrong type or is there already.
    """
    types = {field.name: field.dataType for field in df.schema.fields}
    for role, name in roles.items():
        if name not in types:
            raise NatsTransformError(
                "frame-without-column", name=name, role=role, columns=", ".join(df.columns)
            )
        if not isinstance(types[name], _KINDS[role]):
            raise NatsTransformError(
                "frame-column-type",
                name=name,
                type=types[name].simpleString(),
                role=role,
                wanted=_KINDS[role][0].typeName(),
            )
    taken = [name for name in df.columns if name in (*OUTPUT.names, _OUTCOME)]
    if taken:
        raise NatsTransformError("frame-has-columns", columns=", ".join(taken))


def with_messages(outcomes: DataFrame, messages: DataFrame) -> DataFrame:
    """Rows of a narrow `transformed_messages` with their times, headers and payloads.

    Args:
        outcomes: rows that `transform` wrote with `columns: outcomes`.
        messages: the table `messages`. Give the same streams and days of both as filters.
    """
    keys = ["stream", "day", "seq"]
    return outcomes.drop(*WIDE).join(messages.select(*keys, *WIDE), keys)
