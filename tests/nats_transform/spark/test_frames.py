"""`nats_transform.spark` on DataFrames: equal to the scalar library, however Spark divides work.

What the kernel makes of each subject is tested in `tests/nats_transform/kernel`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial, reduce
from io import StringIO
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from nats_transform import NatsTransformError, Outcome, parse_stream
from nats_transform.mappings.subject import decode, encode
from nats_transform.spark import OUTPUT, apply, digest, ingress, republish, take
from tests.cases import load
from tests.nats_transform.kernel import generate
from tests.nats_transform.kernel.comparing import Message
from tests.support import rules
from tests.support.programs import printed_in_python
from tests.support.refused import refused

pytestmark = pytest.mark.spark

MIXED = rules.mappings(
    {
        "orders.*.*": [
            ("orders.v2.$2.$1", 50),
            ("orders.p.{{partition(16,2)}}.$1.$2", 30),
            ("orders.s.$1.{{splitfromleft(2,5)}}", 20),
            ("east.orders.$1.$2", 100, "east"),
        ]
    }
)
FUNCTIONS = rules.mappings(
    {
        "f.*.*.>": [
            ("a.{{split(1,-)}}.{{slicefromleft(2,3)}}.>", 20),
            ("b.{{splitfromright(1,2)}}.{{slicefromright(2,4)}}.>", 20),
            ("c.{{left(1,2)}}.{{right(2,2)}}.{{random(9)}}.>", 20),
            ("d.$1.$2.>", 40),
        ]
    }
)
STREAM = parse_stream(*load("networks.yaml")["frames"])


def three_steps(frame: DataFrame) -> DataFrame:
    """What STREAM republishes of what it takes and stores."""
    for step in (
        partial(take, STREAM.sources[0]),
        partial(apply, STREAM),
        partial(republish, STREAM),
    ):
        made = step(frame.select("stream", "seq", "subject"), seed=5)
        frame = made.drop("subject").withColumnRenamed("mapped_subject", "subject")
    return frame


def messages(spark: SparkSession, count: int = 4000) -> DataFrame:
    """Messages of one stream, some of them matched by none of the mappings."""
    number = F.col("id")
    key = F.concat(F.lit("k-"), F.hex(F.xxhash64("id")))
    shapes = [
        F.concat(F.lit("orders.eu."), key),
        F.concat(F.lit("a"), F.pmod(number, F.lit(1000)).cast("string"), F.lit(".q."), key),
        F.concat(F.lit("f.x-y--z."), key, F.lit(".tail.of.it")),
        F.concat(F.lit("other."), key),
    ]
    return spark.range(1, count + 1).select(
        F.lit("S").alias("stream"),
        number.alias("seq"),
        F.element_at(F.array(*shapes), (F.pmod(number, F.lit(4)) + 1).cast("int")).alias("subject"),
        F.when(number % 5 == 0, "east").alias("cluster"),
    )


def odd_messages(spark: SparkSession, messages: Sequence[Message], kind: str) -> DataFrame:
    """Messages of any bytes: a string column of Spark takes them as they are."""

    def raw(text: str | None) -> bytearray | None:
        return None if text is None else bytearray(encode(text))

    rows = [
        (row, raw(m.subject), raw(m.cluster), m.stream, m.seq) for row, m in enumerate(messages)
    ]
    schema = "row int, subject binary, cluster binary, stream string, seq long"
    frame = spark.createDataFrame(rows, schema)
    return frame.withColumns(
        {"subject": F.col("subject").cast(kind), "cluster": F.col("cluster").cast("string")}
    )


def test_equals_the_scalar_library(spark: SparkSession, seed: int) -> None:
    """Mappings and streams made at random, and messages of any bytes; all in one query."""
    random = Random(seed)
    mappings, source = generate.account(random), generate.stream_source(random)
    config = next(filter(None, iter(lambda: generate.stream(random), 0)))
    steps: list[tuple[str, Callable[..., DataFrame], Callable[..., Outcome]]] = [
        ("string", partial(apply, mappings), mappings.replay),
        ("binary", partial(apply, mappings), mappings.replay),
        ("binary", partial(ingress, config), config.replay),
        ("string", partial(republish, config), config.replay_republish),
        ("binary", partial(take, source), source.replay),
    ]
    sources = [m.source for m in mappings.mappings] + [one.source for one in source.filters]
    sources += [one.source for one in (config.subject_transform, config.republish) if one]
    given = generate.messages(random, sources, 1000)
    made = [
        step(odd_messages(spark, given, kind), seed=7)
        .withColumn("subject", F.col("subject").cast("string"))
        .withColumn("step", F.lit(number))
        for number, (kind, step, _) in enumerate(steps)
    ]
    texts = ("mapped_subject", "mapping_source", "mapping_destination")
    rows = (
        reduce(DataFrame.unionByName, made)
        .withColumns({name: F.col(name).cast("binary") for name in texts})
        .drop("subject", "cluster")
        .collect()
    )
    assert len(rows) == len(steps) * len(given)
    for row in rows:
        subject, origin, destination = (
            None if row[name] is None else decode(bytes(row[name])) for name in texts
        )
        found = Outcome(subject, row["fate"], origin, destination, row["draw"], row["reason"])
        message, replay = given[row["row"]], steps[row["step"]][2]
        where = {"cluster": message.cluster} if row["step"] < 2 else {}
        assert found == replay(
            message.subject, **where, stream=message.stream, seq=message.seq, seed=7
        ), message


def test_partitions_and_order_of_files_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    digests = set()
    for parts in (1, 3, 17):
        folder = str(tmp_path / str(parts))
        messages(spark).repartition(parts, F.xxhash64("seq")).write.parquet(folder)
        files = sorted(map(str, Path(folder).glob("*.parquet")), reverse=parts == 3)
        frame = apply(MIXED, spark.read.parquet(*files), seed=5).repartition(parts)
        digests.add(digest.digest(frame))
    assert len(digests) == 1


def test_a_stream_of_files(spark: SparkSession, tmp_path: Path) -> None:
    batch = messages(spark)
    batch.repartition(3).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(batch.schema).parquet(str(tmp_path / "in"))
    query = (
        apply(MIXED, stream, seed=5)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("maxFilesPerTrigger", 1)
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    assert digest.digest(spark.read.parquet(str(tmp_path / "out"))) == digest.digest(
        apply(MIXED, batch, seed=5)
    )


UNFIT: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "missing": (lambda df: df.drop("seq"), "frame-without-column"),
    "mistyped": (lambda df: df.withColumn("seq", F.lit("1")), "frame-column-type"),
    "subject-is-int": (lambda df: df.withColumn("subject", F.lit(1)), "frame-column-type"),
    "there-already": (lambda df: df.withColumn("fate", F.lit("x")), "frame-has-columns"),
}


@pytest.mark.parametrize(("change", "code"), UNFIT.values(), ids=UNFIT)
def test_columns_that_will_not_do(
    spark: SparkSession, change: Callable[[DataFrame], DataFrame], code: str
) -> None:
    with refused(NatsTransformError, code):
        apply(MIXED, change(messages(spark)))


def test_a_filter_behind_it_maps_nothing_twice(spark: SparkSession) -> None:
    frame = apply(FUNCTIONS, messages(spark, 400))
    mapped = [row["seq"] for row in frame.collect() if row["fate"] == "mapped"]
    assert len(mapped) == 100
    kept = frame.where("fate = 'mapped' AND mapped_subject IS NOT NULL").select("seq", "fate")
    assert [row["seq"] for row in kept.collect()] == mapped
    shown = StringIO()
    with redirect_stdout(shown):
        kept.explain()
    assert shown.getvalue().count("ArrowEvalPython") == 1


def test_columns_of_other_names(spark: SparkSession) -> None:
    names = {"subject": "a.b", "stream": "`x`", "seq": "n o", "cluster": "select"}
    frame = messages(spark).withColumnsRenamed(names)
    plain = apply(MIXED, messages(spark))
    renamed = apply(MIXED, frame, **names)
    assert renamed.columns == [*frame.columns, *OUTPUT.names]
    assert [field.dataType for field in renamed.schema.fields[-6:]] == [
        *[T.StringType()] * 5,
        T.IntegerType(),
    ]
    assert renamed.select(*OUTPUT.names).collect() == plain.select(*OUTPUT.names).collect()


def test_no_column_of_clusters(spark: SparkSession) -> None:
    frame = messages(spark, 400).drop("cluster").withColumn("seq", F.col("seq").cast("short"))
    made = apply(MIXED, frame, cluster=None, seed=3).collect()
    assert {row["mapping_destination"] for row in made if row["fate"] == "mapped"} == {
        d.subject for d in MIXED.mappings[0].destinations if d.cluster is None
    }


CONNECT = """
import sys
from jobs.session import spark_session
from jobs.settings.spark import SparkSettings
from nats_transform.spark import digest
from nats_transform.spark import apply
from tests.nats_transform.spark.test_frames import MIXED, messages, three_steps

spark = spark_session(SparkSettings(remote="local[2]"))
assert "connect" in type(spark).__module__
print("digest", digest.digest(apply(MIXED, messages(spark), seed=5)))
print("digest", digest.digest(three_steps(messages(spark))))
spark.stop()
"""


@pytest.mark.slow
def test_spark_connect_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """In a process of its own: PySpark's functions are for one kind of session in each."""
    root = Path(__file__).parents[3]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
    # The `python3` on PATH is another one, which has nothing that we need.
    other = tmp_path / "python3"
    other.symlink_to("/bin/false")
    environment |= {"PYTHONPATH": str(root), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment["SPARK_TESTING"] = "1"  # the Connect server takes any free port, not 15002
    printed = printed_in_python(CONNECT, cwd=tmp_path, env=environment)
    found = [line.split()[1] for line in printed.splitlines() if line.startswith("digest ")]
    frames = [apply(MIXED, messages(spark), seed=5), three_steps(messages(spark))]
    assert found == [str(digest.digest(frame)) for frame in frames]
    assert frames[1].where("subject LIKE 'live.%'").count() == 1000
