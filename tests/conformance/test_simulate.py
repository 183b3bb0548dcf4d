"""Simulated streams: a real nats-server stores the same messages under the same sequences."""

from __future__ import annotations

import random
import time
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from jobs.dry_run.simulate import PUBLISHED, Simulation
from jobs.jetstream.process import nats_server
from nats_transform import (
    AccountMappings,
    InvalidStream,
    InvalidTransform,
    StreamConfig,
    parse_stream,
)
from nats_transform.config import load_mappings
from nats_transform.kernel import compile_mappings
from tests.cases import load
from tests.conformance.client import Client
from tests.support.archive import columns, message
from tests.support.files import written

pytestmark = pytest.mark.server

MAPPINGS = """mappings {
  "orders.*.*": "shop.$1.$2"
  "config.*.*": "$KV.A.$1.$2"
  "single.*.*": "once.$1"
}
"""


ONE = {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}
STREAMS: list[dict[str, Any]] = load("networks.yaml")["simulated"]
SUBJECTS = [
    subject
    for n in range(12)
    for subject in (
        f"orders.{('eu', 'us', 'fr')[n % 3]}.{n % 5}",
        f"config.{('a', 'b')[n % 2]}.{n // 4}",
        f"single.{n % 4}.{n}",
        f"shop.direct.{n}",
        "nowhere",
    )
]

COUNTS = {"AGAIN": 17, "AUDIT": 3, "KV_A": 6, "HELD_UP": 6, "FROM_HELD": 14}


class Held(NamedTuple):
    """A message that a stream holds.

    Attributes:
        seq: its sequence there.
        subject: that it is stored under.
        message: the sequence of the message in the archive.
        origin: the stream it came from, and its sequence there.
    """

    seq: int
    subject: str
    message: int
    origin: tuple[str, int] | None


class Publication(NamedTuple):
    """A message to publish; `padding` makes its body longer."""

    subject: str
    headers: tuple[tuple[str, str], ...] = ()
    padding: int = 0

    def body(self, number: int) -> bytes:
        return f"{number} ".encode() + b"x" * self.padding


def with_id(number: object) -> tuple[tuple[str, str], ...]:
    return ("Other", ""), ("Nats-Msg-Id", f"{number}")


def archived(
    published: Sequence[str | Publication], *, step: timedelta = timedelta()
) -> pa.RecordBatch:
    """The subjects as messages of an archive, each so much later than the one before."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    rows = []
    for number, one in enumerate(published, 1):
        one = Publication(one) if isinstance(one, str) else one
        now, data = start + number * step, one.body(number)
        rows.append(message(number, one.subject, now, headers=one.headers, data=data))
    found = columns(rows)
    return pa.RecordBatch.from_pydict({name: found[name] for name in PUBLISHED})


def simulated(
    subjects: Sequence[str | Publication],
    mappings: AccountMappings,
    streams: Sequence[StreamConfig],
) -> tuple[dict[str, list[Held]], dict[int, dict[str, int]], set[str]]:
    """What streams hold, the last sequence that each message leaves in each, and those followed."""
    simulation = Simulation(streams, compile_mappings(mappings))
    held: dict[str, list[Held]] = defaultdict(list)
    last: dict[int, dict[str, int]] = defaultdict(dict)
    # In two batches, because one goes on where the other ends.
    published, half = archived(subjects), len(subjects) // 2
    parts = [simulation.stored(part) for part in (published[:half], published[half:])]
    rows = pa.Table.from_batches(parts).combine_chunks()
    is_held = simulation.is_held(rows.to_batches()[0])
    rows = rows.append_column("is_held", pa.array(is_held)).sort_by("seq")
    for row in rows.to_pylist():
        origin = (row["origin_stream"], row["origin_seq"]) if row["origin_stream"] else None
        if row["is_held"]:
            subject = row["stored_subject"]
            held[row["stream"]].append(Held(row["seq"], subject, row["archive_seq"], origin))
        last[row["archive_seq"]][row["stream"]] = row["seq"]
    names = {
        one.name for one, is_ours in zip(streams, simulation.is_followed, strict=True) if is_ours
    }
    return held, last, names


def stored(client: Client, config: StreamConfig) -> Iterator[Held]:
    """What a stream of the server holds."""
    name = config.name
    state = client.request(f"$JS.API.STREAM.INFO.{name}")["state"]
    # A stream that lost its first messages starts later.
    wanted = range(max(1, state["first_seq"]), state["last_seq"] + 1)
    answers = client.request_all((f"$JS.API.STREAM.MSG.GET.{name}", {"seq": n}) for n in wanted)
    for answer in answers:
        if "message" not in answer:
            assert answer["error"]["err_code"] == 10037, answer
            continue
        message = answer["message"]
        lines = b64decode(message.get("hdrs", "")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        origin = None
        if config.mirror is not None:
            origin = config.mirror.name, message["seq"]
        elif config.sources:
            stream, seq, *_ = headers["Nats-Stream-Source"].split(" ")
            origin = stream, int(seq)
        elif "Nats-Stream" in headers:
            origin = headers["Nats-Stream"], int(headers["Nats-Sequence"])
        number = int(b64decode(message["data"]).split()[0])
        yield Held(message["seq"], message["subject"], number, origin)


def wait_for(client: Client, expected: dict[str, int]) -> dict[str, int]:
    """The last sequences, once they are as expected or have not moved for half a minute."""
    last, moved = None, time.monotonic()
    while True:
        infos = client.request_all((f"$JS.API.STREAM.INFO.{name}", None) for name in expected)
        found = {info["config"]["name"]: info["state"]["last_seq"] for info in infos}
        if found != last:
            last, moved = found, time.monotonic()
        if found == expected or time.monotonic() > moved + 30:
            return found


def in_order(held: Sequence[Held]) -> list[Held]:
    """The messages by where they came from, without the sequence that chance gave them."""
    unnumbered = [one._replace(seq=0) for one in held]
    return sorted(unnumbered, key=lambda one: (one.origin or ("", 0), one.message))


def differences(
    config: str, raw: Sequence[dict[str, Any]], subjects: Sequence[str | Publication], tmp: Path
) -> tuple[list[str], dict[str, list[Held]]]:
    """Where the server and the simulation part; and what the streams hold."""
    streams = [parse_stream(one) for one in raw]
    mappings = load_mappings(written(tmp / "server.conf", config))
    ours, last, followed = simulated(subjects, mappings, streams)
    told = []
    with nats_server(config) as server, Client(server.url) as client:
        for one in raw:
            client.api(f"STREAM.CREATE.{one['name']}", one)
        streams = [stream for stream in streams if stream.name in followed]
        now = {stream.name: max(stream.first_seq, 1) - 1 for stream in streams}
        for number, subject in enumerate(subjects, 1):
            one = Publication(subject) if isinstance(subject, str) else subject
            client.publish(one.subject, one.body(number), headers=one.headers)
            client.flush()
            # Sources and mirrors are to have it before a limit takes it away from them.
            now |= {name: seq for name, seq in last[number].items() if name in followed}
            found = wait_for(client, now)
            if found != now:
                return [f"after {subject!r} ({number}): last {found}, ours {now}"], ours
        for stream in streams:
            theirs = list(stored(client, stream))
            mine = ours.get(stream.name, [])
            if len(stream.sources) > 1:
                # Between sources there is no order.
                theirs, mine = in_order(theirs), in_order(mine)
            if theirs != mine:
                told.append(f"{stream.name}: {theirs}, ours {mine}")
    return told, ours


def test_a_real_server_stores_the_same(tmp_path: Path) -> None:
    told, held = differences(MAPPINGS, STREAMS, SUBJECTS, tmp_path)
    assert not told, "\n".join(told)
    # The case is worth something only if limits take some, and leave every stream some.
    assert held.keys() == {one["name"] for one in STREAMS} - {"ECHOED"}
    assert {name: len(held[name]) for name in COUNTS} == COUNTS


def limited(chance: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Streams with limits of every kind, and mirrors and streams that source them, with others."""
    for number in range(count):
        name = f"L{number}"
        yield {"name": name, "subjects": [f"{name}.>"], **limits(chance)}
        if chance.random() < 0.4:
            # A mirror that refuses is no case: it depends on timing.
            found = limits(chance, "max_msg_size", "duplicate_window")
            found |= {"discard": "old", "discard_new_per_subject": False}
            yield {"name": f"M{number}", "mirror": {"name": name}, **found}
        if chance.random() < 0.4:
            found = limits(chance, "max_msg_size", "max_bytes")
            yield {"name": f"S{number}", "sources": [{"name": name}], **found}


def limits(chance: random.Random, *left_out: str) -> dict[str, Any]:
    """Some limits of a stream that bite with a few dozen messages."""
    found: dict[str, Any] = {"storage": chance.choice(["file", "memory"])}
    if chance.random() < 0.6:
        found["max_msgs"] = chance.randint(1, 12)
    if chance.random() < 0.5:
        found["max_bytes"] = chance.randint(100, 1500)
    if chance.random() < 0.5:
        found["max_msgs_per_subject"] = chance.randint(1, 4)
    if chance.random() < 0.2:
        found["max_msg_size"] = chance.randint(40, 120)
    if chance.random() < 0.5:
        found["discard"] = "new"
        found["discard_new_per_subject"] = "max_msgs_per_subject" in found and chance.random() < 0.5
    if chance.random() < 0.3:
        found["duplicate_window"] = 10**12
    return {name: value for name, value in found.items() if name not in left_out}


@pytest.mark.parametrize(
    ("number", "streams", "messages"),
    [(0, 12, 120), *(pytest.param(n, 30, 600, marks=pytest.mark.slow) for n in range(1, 11))],
)
def test_limits_are_those_of_a_real_server(
    tmp_path: Path, seed: int, number: int, streams: int, messages: int
) -> None:
    chance = random.Random(seed + number)
    configs = list(limited(chance, streams))
    published = [
        Publication(
            f"L{chance.randrange(streams)}.{chance.choice('abcde')}",
            chance.choice([(), (("Other", "a"),), with_id("same"), with_id(chance.randrange(20))]),
            chance.choice([0, 0, 5, 40, 100]),
        )
        for _ in range(messages)
    ]
    told, held = differences("mappings {}", configs, published, tmp_path)
    assert not told, "\n".join(told)
    assert len(held) > streams / 2


FILTERS = [">", "a.>", "*.x.*", "*.*.1", "b.*.*", "a.x.2"]
TRANSFORMS = [
    ("a.*.*", "b.$2.$1"),
    ("*.x.*", "a.x.{{partition(2,2)}}"),
    ("*.*.1", "c.$1.$2"),
    ("*.*.*", "{{right(1,1)}}.x.$3"),
    ("b.>", "a.>"),
    ("*.*.*", "$1.$1.{{splitfromleft(2,1)}}"),
]


def generated(chance: random.Random, count: int) -> Iterator[dict[str, Any]]:
    """Streams, each fed by one before it so that the order is sure, with limits here and there."""
    names = ["O"]
    yield {"name": "O", "subjects": ["a.>", "b.>", "c.>"]}
    refusing = 0
    while len(names) < count:
        name = f"S{len(names)}"
        config: dict[str, Any] = {"name": name}
        kind = chance.choice(["mirror", "sources", "sources", "republish"])
        if kind == "mirror":
            config["mirror"] = upstream(chance, chance.choice(names))
        elif kind == "sources":
            config["sources"] = [upstream(chance, chance.choice(names))]
        else:
            # What this one republishes, the next takes.
            source, _ = chance.choice(TRANSFORMS)
            rest = ">" if source.endswith(">") else "$1.9"
            destination = f"{name}.$1.{{{{left(2,1)}}}}" if "*.*" in source else f"{name}.{rest}"
            config["sources"] = [{"name": chance.choice(names)}]
            config["republish"] = {"src": source, "dest": destination}
        if chance.random() < 0.3:
            config["subject_transform"] = transform(chance)
        limit = chance.choice(["none", "none", "old", "new"])
        if limit == "new" and kind == "sources" and refusing < 2:
            refusing += 1
            config |= {**ONE, "max_msgs_per_subject": chance.randint(1, 3)}
        elif limit == "old":
            config["max_msgs_per_subject"] = chance.randint(1, 3)
        try:
            parse_stream(config)
        except (InvalidStream, InvalidTransform):
            continue
        names.append(name)
        yield config
        if kind == "republish":
            names.append(f"S{len(names)}")
            yield {"name": names[-1], "subjects": [f"{name}.>"], "max_msgs_per_subject": 2}


def transform(chance: random.Random) -> dict[str, str]:
    source, destination = chance.choice(TRANSFORMS)
    return {"src": source, "dest": destination}


def upstream(chance: random.Random, name: str) -> dict[str, Any]:
    """A mirror or stream source with a filter, with transforms, or with neither."""
    match chance.choice(["all", "filter", "transforms"]):
        case "filter":
            return {"name": name, "filter_subject": chance.choice(FILTERS)}
        case "transforms":
            count = chance.choice([1, 1, 2])
            return {"name": name, "subject_transforms": [transform(chance) for _ in range(count)]}
        case _:
            return {"name": name}


def drawn(
    chance: random.Random, mappings: AccountMappings
) -> tuple[list[dict[str, Any]], list[str]]:
    """Streams, and subjects to publish; more than three of the streams hold some of them."""
    while True:
        streams = list(generated(chance, 12))
        subjects = [
            ".".join(chance.choice(tokens) for tokens in ("abc", ["x", "y", "z-q"], "123"))
            for _ in range(50)
        ]
        held, _, _ = simulated(subjects, mappings, [parse_stream(one) for one in streams])
        if len(held) > 3:
            return streams, subjects


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_generated_streams(tmp_path: Path, seed: int, number: int) -> None:
    config = 'mappings { "c.y.*": "a.y.$1" }'
    mappings = load_mappings(written(tmp_path / "server.conf", config))
    streams, subjects = drawn(random.Random(seed + number), mappings)
    told, _ = differences(config, streams, subjects, tmp_path)
    assert not told, f"{streams} of {subjects}: " + "\n".join(told)
