"""What streams do, in Spark: the table of the semantics and generated configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from nats_transform import (
    AccountMappings,
    Fate,
    InvalidStream,
    NatsTransformError,
    Outcome,
    StreamConfig,
    StreamSource,
    Transform,
    parse_stream,
)
from nats_transform.spark import OUTPUT, apply, ingress, republish, take
from nats_transform.stream_source import StreamMirror, SubjectTransform
from tests import cases
from tests.nats_transform.spark.conftest import Case, Message, collected, messages_frame, outcome
from tests.nats_transform.spark.test_differential import destinations, sources, subjects_of

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Step:
    """One thing that a stream does, compiled and not, and messages for it."""

    compiled: Callable[..., DataFrame]
    replay: Callable[..., Outcome] = field(repr=False)
    messages: Sequence[Message] = field(repr=False)


def ingress_of(config: StreamConfig, messages: Sequence[Message]) -> Step:
    return Step(partial(ingress, config), config.replay, messages)


def republish_of(config: StreamConfig, messages: Sequence[Message]) -> Step:
    return Step(partial(republish, config), config.replay_republish, messages)


def take_of(source: StreamSource, messages: Sequence[Message]) -> Step:
    return Step(partial(take, source), source.replay, messages)


def compare(spark: SparkSession, steps: Sequence[Step], seed: int = 0) -> Counter[Fate]:
    """Asserts that Spark gives what the scalar path gives; returns the fates that it saw."""
    messages = messages_frame(spark, [Case(AccountMappings([]), step.messages) for step in steps])
    frames = [
        step.compiled(messages.where(F.col("case") == number), seed=seed)
        for number, step in enumerate(steps)
    ]
    rows = collected(reduce(DataFrame.unionByName, frames))
    assert len(rows) == sum(len(step.messages) for step in steps)
    for row in rows:
        step = steps[row["case"]]
        message = step.messages[row["row"]]
        wanted = step.replay(message.subject, stream=message.stream, seq=message.seq, seed=seed)
        assert outcome(row) == wanted, (step.compiled, seed, message)
    return Counter(Fate(row["fate"]) for row in rows)


def test_table_of_streams(spark: SparkSession) -> None:
    steps: list[Step] = []
    for case in cases.load("streams.yaml"):
        if "refused" in case:
            continue
        config = parse_stream(case["config"])
        for place, subjects in case.get("take", {}).items():
            source = config.mirror if place == "mirror" else config.sources[place]
            assert source is not None
            steps.append(take_of(source, messages_of(subjects)))
        if "ingress" in case:
            steps.append(ingress_of(config, messages_of(case["ingress"])))
        if "republish" in case:
            steps.append(republish_of(config, messages_of(case["republish"])))
    assert len(steps) > 20
    assert set(compare(spark, steps)) == {Fate.MAPPED, Fate.UNMATCHED, Fate.FILTERED, Fate.INVALID}


def messages_of(subjects: dict[str, Any]) -> list[Message]:
    return [Message(subject) for subject in [*subjects, "other", "a..b", "a.*", None]]


@st.composite
def subject_transforms(draw: Callable[[Any], Any]) -> SubjectTransform:
    """A filter with a destination, or without one."""
    source = draw(st.just("") | sources()) if draw(st.integers(0, 19)) == 0 else draw(sources())
    destination = draw(st.just("") | destinations(source or ">") | destinations(source or ">"))
    try:
        if destination:
            Transform(source, destination)
        return SubjectTransform(src=source, dest=destination)
    except (NatsTransformError, ValueError):  # a ValueError: bytes that JSON cannot hold
        return SubjectTransform(src="a.*", dest="")


@st.composite
def stream_sources(draw: Callable[[Any], Any]) -> StreamSource:
    """A mirror or stream source, with filters that may cross or cover each other."""
    kind = draw(st.sampled_from([StreamSource, StreamMirror]))
    if draw(st.integers(0, 9)) == 0:
        return kind(name="O", filter_subject=draw(st.sampled_from(["", "a.*", "*.b", "*a.>"])))
    return kind(
        name="O", subject_transforms=draw(st.lists(subject_transforms(), min_size=1, max_size=6))
    )


@st.composite
def stream_configs(draw: Callable[[Any], Any]) -> StreamConfig:
    """A stream with an ingress transform and a republish, if the server takes it."""
    transform, republish = draw(subject_transforms()), draw(subject_transforms())
    try:
        return parse_stream(
            {
                "name": "S",
                "subjects": ["no.such.subject"],
                "subject_transform": transform.model_dump(by_alias=True),
                "republish": republish.model_dump(by_alias=True),
            }
        )
    except InvalidStream:
        return parse_stream(
            {
                "name": "S",
                "subject_transform": {"src": "a.*", "dest": "b.{{random(9)}}.{{split(1,-)}}"},
                "republish": {"src": "a.>", "dest": "b.{{partition(9)}}.>"},
            }
        )


@st.composite
def generated_steps(draw: Callable[[Any], Any]) -> list[Step]:
    config, source = draw(stream_configs()), draw(stream_sources())
    republished = config.republish_pair[0]
    return [
        ingress_of(config, draw(messages([config.subject_transform.source]))),
        republish_of(config, draw(messages([republished] if republished else []))),
        take_of(source, draw(messages([rule.source for rule in source.filters]))),
    ]


def messages(filters: Sequence[str]) -> st.SearchStrategy[list[Message]]:
    one = st.builds(
        Message,
        subject=subjects_of([filter or ">" for filter in filters]),
        stream=st.sampled_from(["S", "é", None]),
        seq=st.integers(0, 2**40) | st.none(),
    )
    return st.lists(one, min_size=MESSAGES, max_size=MESSAGES)


MESSAGES = 100


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a shrunk example takes too long
)
@given(generated_steps(), st.integers(0, 3) | st.sampled_from([-1, 2**70]))
def test_generated(spark: SparkSession, steps: list[Step], seed: int) -> None:
    assert compare(spark, steps, seed).total() == 3 * MESSAGES


def test_many_rules_of_a_source(spark: SparkSession) -> None:
    """The first that renames applies, behind the first that takes: as with crossing filters."""
    rules = [
        SubjectTransform(src=f"r{n}.*" if n % 2 else f"*.r{n}", dest=f"to.{n}.$1" if n % 3 else "")
        for n in range(400)
    ]
    source = StreamSource(
        name="O", subject_transforms=[*rules, SubjectTransform(src="*a", dest="x")]
    )
    subjects = [f"r{n}.r{m}" for n in range(0, 400, 7) for m in range(0, 400, 41)]
    found = compare(spark, [take_of(source, [Message(s) for s in [*subjects, "*a", "ba"]])])
    assert min(found[Fate.MAPPED], found[Fate.FILTERED]) > 100


def test_apply_takes_a_stream(spark: SparkSession) -> None:
    """Without a cluster column, and with columns of other names."""
    config = parse_stream({"name": "S", "subject_transform": {"src": "S", "dest": "{{random(9)}}"}})
    frame = spark.range(50).select(
        F.lit("S").alias("where"), F.col("id").alias("n"), F.lit("S").alias("what")
    )
    names = {"subject": "what", "stream": "where", "seq": "n"}
    made = apply(config, frame, seed=4, **names)
    assert made.columns == ["where", "n", "what", *OUTPUT.names]
    assert [T.dataType for T in made.schema.fields[3:]] == [T.dataType for T in OUTPUT.fields]
    assert made.collect() == ingress(config, frame, seed=4, **names).collect()
    assert {r["mapped_subject"] for r in made.collect()} == {
        config.replay("S", stream="S", seq=n, seed=4).subject for n in range(50)
    }
    with pytest.raises(NatsTransformError, match="no column 'seq' for the seq"):
        take(StreamSource(name="O"), frame.withColumnsRenamed({"where": "stream"}), subject="what")


def test_one_step_after_another(spark: SparkSession) -> None:
    """A message of ORDERS is sourced, stored and republished, each time under another subject."""
    config = parse_stream(
        {
            "name": "EU",
            "sources": [
                {
                    "name": "ORDERS",
                    "subject_transforms": [
                        {"src": "orders.eu.*", "dest": "eu.{{partition(3,1)}}.$1"},
                        {"src": "orders.all.>", "dest": ""},
                    ],
                }
            ],
            "subject_transform": {"src": "eu.>", "dest": "stored.eu.>"},
            "republish": {"src": "stored.>", "dest": "live.>"},
        }
    )
    frame = spark.createDataFrame(
        [("ORDERS", 1, "orders.eu.7"), ("ORDERS", 2, "orders.all.x.y"), ("ORDERS", 3, "orders.us")],
        "stream string, seq long, subject string",
    )

    def next_step(made: DataFrame) -> DataFrame:
        return made.select("stream", "seq", F.col("mapped_subject").alias("subject"))

    taken = take(config.sources[0], frame).where("mapped_subject IS NOT NULL")
    stored = apply(config, next_step(taken))
    found = republish(config, next_step(stored)).orderBy("seq")
    assert [(r["subject"], r["fate"], r["mapped_subject"]) for r in found.collect()] == [
        ("stored.eu.0.7", "mapped", "live.eu.0.7"),
        ("orders.all.x.y", "filtered", None),
    ]
