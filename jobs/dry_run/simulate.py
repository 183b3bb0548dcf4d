"""What streams would hold of an archive under a candidate mapping, into `simulated_streams`.

Each message is published again with its own draw: the account mappings, the streams that capture
it, their ingress transforms, republish, mirrors and sources, and the limits of messages per
subject. Streams are taken to be empty at first, and mirrors and sources to keep up: they get a
message before a limit discards it upstream.

The table holds one simulation for each archive; those before it are in its older snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from graphlib import CycleError, TopologicalSorter
from operator import or_
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.dry_run.settings import SimulatedStream
from jobs.errors import JobError
from jobs.warehouse import specs, staging, tables
from nats_transform.draw import mapping_key, message_entropy
from nats_transform.kernel import Program
from nats_transform.mapping import AccountMappings
from nats_transform.network import Arrival, Network, Via
from nats_transform.stream import StreamConfig
from nats_transform.subject import decode, encode

SIMULATED = replace(
    specs.table_spec(
        "simulated_streams",
        {
            "archive": T.StringType(),
            "day": T.DateType(),
            "stream": T.StringType(),
            "seq": T.LongType(),
            "stored_subject": T.StringType(),
            "via": T.StringType(),
            "origin_stream": T.StringType(),
            "origin_seq": T.LongType(),
            "archive_seq": T.LongType(),
            "subject": T.StringType(),
            "mapped_subject": T.StringType(),
            "ts": T.TimestampType(),
            "republished_subject": T.StringType(),
        },
        raw=("subject", "mapped_subject", "stored_subject", "republished_subject"),
        about={
            "archive": "The stream whose messages were published again.",
            "stream": "The stream that would hold the message.",
            "seq": "The sequence of the message there.",
            "stored_subject": "The subject that it is stored under.",
            "via": "How it got there: `capture`, `republish`, `mirror` or `source`.",
            "origin_stream": "The stream that it came from; null if it was captured.",
            "origin_seq": "Its sequence in that stream; null if it was captured.",
            "archive_seq": "The sequence of the message in the archive.",
            "mapped_subject": "The subject that the mappings gave it.",
            "republished_subject": "The subject that it is republished under; null if it is not.",
        },
    ),
    partitions=("archive", "day"),
)


class SimulationError(JobError):
    """The configuration of the streams does not decide which messages they hold."""


def simulate(
    warehouse: tables.Warehouse,
    archive: str,
    messages: DataFrame,
    mappings: AccountMappings,
    streams: Sequence[StreamConfig],
    *,
    seed: int = 0,
    properties: Mapping[str, str],
) -> tuple[tuple[SimulatedStream, ...], int]:
    """Simulate the streams; return the counts of each and the snapshot with their messages.

    Args:
        warehouse: the warehouse with the table.
        archive: the stream of the messages.
        messages: the messages as they were published.
        mappings: the mappings of the account.
        streams: the streams of the account.
        seed: decides every draw, as in `transform`.
        properties: the properties of the snapshot.

    Raises:
        SimulationError: streams that refuse messages and feed each other, or mirror.
        WarehouseError: the table cannot be written.
    """
    table = tables.open_table(warehouse, SIMULATED, create=True)
    came = arrivals(messages, mappings, streams, seed)
    refusing = any(stream.discard_new_per_subject for stream in streams)
    if refusing:
        # Each stream that refuses takes several looks at what came to it.
        came = came.persist(StorageLevel.DISK_ONLY)
    try:
        total = dict.fromkeys([stream.name for stream in streams], 0)
        if refusing:
            total |= {row[0]: row[1] for row in came.groupBy("stream").count().collect()}
        seen = Observation("simulation")
        rows = stored(came, streams).observe(
            seen,
            *(
                F.count_if((F.col("stream") == name) & (F.col("is_held") == kept)).alias(
                    f"{number} {kept}"
                )
                for number, name in enumerate(total)
                for kept in (True, False)
            ),
        )
        ours = rows.where("is_held").withColumn("archive", F.lit(archive))
        staged = staging.stage(ours, table, SIMULATED)
    finally:
        if refusing:
            came.unpersist()
    counts = seen.get
    found = []
    for number, (name, all_of_them) in enumerate(total.items()):
        held, discarded = int(counts[f"{number} True"]), int(counts[f"{number} False"])
        refused = all_of_them - held - discarded if refusing else 0
        found.append(SimulatedStream(name, held, discarded, refused))
    snapshot = staging.publish(table, staged, archive, replace=True, properties=properties)
    return tuple(found), snapshot


_ARRIVALS = pa.list_(
    pa.struct(
        [
            # Numbers of the message's arrivals: its own, all it came by, and those whose sequences
            # it and its origin have.
            ("node", pa.int32()),
            ("path", pa.list_(pa.int32())),
            ("numbered", pa.int32()),
            ("origin_numbered", pa.int32()),
            ("origin_stream", pa.string()),
            ("through", pa.list_(pa.string())),
            ("stream", pa.string()),
            ("stored_subject", pa.binary()),
            ("via", pa.string()),
            ("position", pa.int32()),
            ("republished_subject", pa.binary()),
            ("before", pa.int64()),
        ]
    )
)
_KEPT = ("day", "archive_seq", "ts", "subject", "mapped_subject")
_ARRIVED = (
    "day date, archive_seq bigint, ts timestamp, subject binary, mapped_subject binary, "
    "arrivals array<struct<node: int, path: array<int>, numbered: int, origin_numbered: int, "
    "origin_stream: string, through: array<string>, stream: string, stored_subject: binary, "
    "via: string, position: int, republished_subject: binary, before: bigint>>"
)


def arrivals(
    messages: DataFrame, mappings: AccountMappings, streams: Sequence[StreamConfig], seed: int = 0
) -> DataFrame:
    """One row for each message and each stream that it reaches, before any limit applies.

    Args:
        messages: of one archive, as they were published.
        mappings: the mappings of the account.
        streams: the streams of the account.
        seed: decides every draw.
    """
    # As bytes, because Python would not take text that is not UTF-8.
    published = messages.select(
        "stream",
        "seq",
        "day",
        "ts",
        F.col("subject").cast("binary"),
        F.col("cluster").cast("binary"),
    )
    follow = partial(_follow, Network(streams), mappings.program(seed))
    rows = published.mapInArrow(follow, _ARRIVED)
    return rows.select(*_KEPT, F.inline("arrivals"))


def _follow(
    network: Network, program: Program, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches with what comes to streams, in a worker."""
    starts = {stream.name: max(stream.first_seq, 1) - 1 for stream in network.streams}
    draws = network.draws
    for batch in batches:
        mapped = program.run(
            batch["subject"], cluster=batch["cluster"], stream=batch["stream"], seq=batch["seq"]
        ).subjects
        if draws:
            found = [
                None
                if subject is None
                else _described(
                    network.arrivals(decode(subject), _entropy(archive, seq, program.seed)), starts
                )
                for subject, archive, seq in zip(
                    mapped.to_pylist(),
                    batch["stream"].to_pylist(),
                    batch["seq"].to_pylist(),
                    strict=True,
                )
            ]
            arrivals = pa.array(found, _ARRIVALS)
        else:
            # The same for all messages of a subject.
            subjects = mapped.dictionary_encode()
            distinct = [
                _described(network.arrivals(decode(subject)), starts)
                for subject in subjects.dictionary.to_pylist()
            ]
            arrivals = pa.array(distinct, _ARRIVALS).take(subjects.indices)
        kept = [batch["day"], batch["seq"], batch["ts"], batch["subject"], mapped]
        yield pa.RecordBatch.from_arrays([*kept, arrivals], names=[*_KEPT, "arrivals"])


def _entropy(archive: str, seq: int, seed: int) -> Callable[[str], int]:
    return lambda place: message_entropy(archive, seq, mapping_key(seed, place))


def _described(arrivals: Sequence[Arrival], starts: Mapping[str, int]) -> list[dict[str, Any]]:
    """The arrivals of one message as values; without those that go round without end."""
    paths: list[list[int]] = []
    numbered: list[int] = []
    rows = []
    for node, one in enumerate(arrivals):
        before = [] if one.origin is None else paths[one.origin]
        paths.append([*before, node])
        # A mirror keeps the sequences of what it mirrors.
        is_mirrored = one.via is Via.MIRROR and one.origin is not None
        numbered.append(numbered[one.origin or 0] if is_mirrored else node)
        if one.repeats:
            continue
        rows.append(
            {
                "node": node,
                "path": paths[node],
                "numbered": numbered[node],
                "origin_numbered": None if one.origin is None else numbered[one.origin],
                "origin_stream": None if one.origin is None else arrivals[one.origin].stream,
                "through": [arrivals[number].stream for number in before],
                "stream": one.stream,
                "stored_subject": None if one.subject is None else encode(one.subject),
                "via": one.via.value,
                "position": one.position,
                "republished_subject": (
                    None if one.republished is None else encode(one.republished.subject)
                ),
                "before": starts[one.stream],
            }
        )
    return rows


def stored(came: DataFrame, streams: Sequence[StreamConfig]) -> DataFrame:
    """The arrivals that streams store, with `seq`, `origin_seq` and `is_held`.

    A row that is not held was discarded by a limit when a newer message came.

    Raises:
        SimulationError: streams that refuse messages and feed each other, or mirror.
    """
    refusing = [stream for stream in streams if stream.discard_new_per_subject]
    accepted = came
    for stream in _upstream_first(came, refusing):
        accepted = _refuse(accepted, stream)
    return _limited(_numbered(accepted), [s for s in streams if s not in refusing])


def _upstream_first(arrived: DataFrame, refusing: Sequence[StreamConfig]) -> list[StreamConfig]:
    """The refusing streams in an order in which none gets messages from a later one."""
    if len(refusing) < 2:
        return list(refusing)
    by_name = {stream.name: stream for stream in refusing}
    ways = arrived.where(F.col("stream").isin(list(by_name))).select("stream", "through").distinct()
    order: TopologicalSorter[str] = TopologicalSorter({name: set[str]() for name in by_name})
    for stream, through in ways.collect():
        order.add(stream, *(name for name in through if name in by_name))
    try:
        return [by_name[name] for name in order.static_order()]
    except CycleError as error:
        circle = " and ".join(sorted(set(error.args[1])))
        raise SimulationError(
            f"streams {circle} feed each other and refuse messages (discard_new_per_subject): "
            "what they hold depends on timing; leave one of them out"
        ) from error


def _refuse(rows: DataFrame, stream: StreamConfig) -> DataFrame:
    """The rows without those that a stream refuses, and without what would come of them."""
    at = F.struct("archive_seq", "node")
    mine = rows.where(F.col("stream") == stream.name)
    of_subject = Window.partitionBy("stored_subject").orderBy("archive_seq", "node")
    stuck: dict[tuple[str, int], Column] = {}
    while True:
        waits = _any(condition for condition in stuck.values())
        came = mine.where(~waits).withColumn("rank", F.row_number().over(of_subject))
        over = came.where(F.col("rank") > stream.max_msgs_per_subject)
        # nats-server tries a refused message of a source again and again, and takes nothing
        # after it: `processInboundSourceMsg`.
        firsts = (
            over.where(F.col("via").isin(Via.MIRROR.value, Via.SOURCE.value))
            .groupBy("origin_stream", "position")
            .agg(F.min(at).alias("at"))
            .orderBy("at")
            .limit(1)
            .collect()
        )
        if not firsts:
            break
        # Only the first is sure: without what it holds up, others may find room.
        origin, position, (seq, node) = firsts[0]
        if position is None:
            # It comes past what it refuses by reconnecting, every ten seconds or so.
            raise SimulationError(
                f"stream {stream.name} mirrors {origin} and refuses messages of it "
                "(discard_new_per_subject): what it holds depends on timing; leave it out"
            )
        here = (F.col("origin_stream") == origin) & (F.col("position") == position)
        since = (F.col("archive_seq") > seq) | (
            (F.col("archive_seq") == seq) & (F.col("node") >= node)
        )
        stuck[origin, position] = F.coalesce(here, F.lit(False)) & since
    refused = mine.where(waits).select("archive_seq", "node")
    refused = refused.unionByName(over.select("archive_seq", "node")).select(
        F.col("archive_seq").alias("refused_seq"), F.col("node").alias("refused_node")
    )
    gone = (F.col("archive_seq") == F.col("refused_seq")) & F.array_contains(
        F.col("path"), F.col("refused_node")
    )
    return rows.join(refused, gone, "left_anti")


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions, F.lit(False))


def _numbered(rows: DataFrame) -> DataFrame:
    """The rows with `seq` in their stream and in the one they came from."""
    in_stream = Window.partitionBy("stream").orderBy("archive_seq", "node")
    number = F.col("before") + F.row_number().over(in_stream)
    rows = rows.withColumn("number", number)
    of_message = Window.partitionBy("archive_seq")
    numbers = F.map_from_entries(F.collect_list(F.struct("node", "number")).over(of_message))
    rows = rows.withColumn("numbers", numbers)
    seq, own = F.col("numbers")[F.col("numbered")], F.col("numbers")[F.col("origin_numbered")]
    return rows.withColumn("seq", seq).withColumn("origin_seq", own)


def _limited(rows: DataFrame, streams: Sequence[StreamConfig]) -> DataFrame:
    """The rows with `is_held`: whether their stream keeps them among those of the subject."""
    limits = {s.name: s.max_msgs_per_subject for s in streams if s.max_msgs_per_subject > 0}
    if not limits:
        return rows.withColumn("is_held", F.lit(True))
    latest = Window.partitionBy("stream", "stored_subject").orderBy(
        F.desc("archive_seq"), F.desc("node")
    )
    rank = F.row_number().over(latest)
    over = _any((F.col("stream") == name) & (F.col("rank") > n) for name, n in limits.items())
    return rows.withColumn("rank", rank).withColumn("is_held", ~over)
