"""Streams: what a real nats-server stores, sources, mirrors and republishes is what we say."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import Any

import pytest

from jobs.jetstream.process import NatsServer
from nats_transform import InvalidStream, InvalidTransform, Outcome, StreamConfig, parse_stream
from nats_transform.mappings.subject import decode
from tests import cases
from tests.conformance.client import Client, Message
from tests.conformance.generate import Generator, agrees

pytestmark = pytest.mark.server

FIRST = ["a", "b", "c"]
SUBJECTS = 40
STREAMS_OF_EACH_KIND = 30
CONFIGS = 400
_INVALID_JSON = 10025
_INVALID_CONFIG = 10052
_OTHER_NAME = 10056


@pytest.fixture
def client(nats_server: NatsServer) -> Iterator[Client]:
    """A connection to a server without streams."""
    with Client(nats_server.url) as client:
        yield client
        names = client.request("$JS.API.STREAM.NAMES")["streams"] or []
        client.request_all((f"$JS.API.STREAM.DELETE.{name}", None) for name in names)


def create(client: Client, configs: Iterable[dict[str, Any]]) -> None:
    """Creates streams in memory."""
    answers = client.request_all(
        (f"$JS.API.STREAM.CREATE.{config['name']}", config | {"storage": "memory"})
        for config in configs
    )
    assert [answer["error"] for answer in answers if "error" in answer] == []


def wait_until_settled(client: Client, expected: int) -> None:
    """Waits until all streams together hold as many messages, or nothing moves any more."""
    still, last = 0, -1
    while still < 300:
        account = client.request("$JS.API.INFO")
        names: list[dict[str, Any]] = []
        while len(names) < account["streams"]:
            answer = client.request("$JS.API.STREAM.LIST", {"offset": len(names)})
            names += answer["streams"]
        messages = sum(stream["state"]["messages"] for stream in names)
        if messages == expected:
            return
        still = still + 1 if messages == last else 0
        last = messages
        time.sleep(0.1)


def stored(client: Client, names: Sequence[str]) -> dict[str, list[Message]]:
    """Every message of some streams, in order, under the subject it is stored."""
    infos = client.request_all((f"$JS.API.STREAM.INFO.{name}", None) for name in names)
    total = sum(info["state"]["messages"] for info in infos)
    number = client.subscribe("deliver")
    consumer = {"deliver_subject": "deliver", "ack_policy": "none", "mem_storage": True}
    client.request_all(
        (f"$JS.API.CONSUMER.CREATE.{name}", {"stream_name": name, "config": consumer})
        for name in names
    )
    result: dict[str, list[Message]] = defaultdict(list)
    for message in client.wait_for(total, number):
        # $JS.ACK.<stream>.<consumer>.<delivered>.<sequence in the stream>...
        result[message.reply.split(".")[2]].append(message)
    return result


def subject_of(message: Message) -> str:
    """The subject a message is stored under; an empty one is delivered as the consumer's own."""
    return "" if message.subject == "deliver" else message.subject


def after_ingress(config: StreamConfig, taken: Outcome) -> str | None:
    """What a message is stored under: an illegal subject passes the ingress as it is."""
    if taken.subject is None:
        return None
    ingress = config.ingress(taken.subject, None)
    return taken.subject if ingress.subject is None else ingress.subject


def publish_origin(client: Client, generator: Generator) -> list[str]:
    """Fills stream O with generated subjects, and gives them in order."""
    create(
        client, [{"name": "O", "subjects": [f"{x}{tail}" for x in FIRST for tail in ("", ".>")]}]
    )
    subjects: list[str] = []
    while len(subjects) < SUBJECTS:
        tokens = generator.subject(generator.filter(FIRST)).split(".")
        subject = ".".join([generator.choice(FIRST), *tokens[1:]])
        if subject not in subjects and not {"*", ">", ""} & set(tokens):
            subjects.append(subject)
    for position, subject in enumerate(subjects):
        client.publish(subject, str(position).encode())
    wait_until_settled(client, len(subjects))
    return subjects


def upstream(generator: Generator) -> dict[str, Any]:
    """A mirror or stream source of O with filters of any kind."""
    source: dict[str, Any] = {"name": "O"}
    if generator.random() < 0.25:
        source["filter_subject"] = generator.filter(FIRST)
        return source
    source["subject_transforms"] = []
    for _ in range(generator.choice([1, 1, 2, 3])):
        transform = generator.transform(FIRST)
        destination = "" if generator.random() < 0.2 else transform.destination
        filter = "" if transform.source == ">" else transform.source
        source["subject_transforms"].append({"src": filter, "dest": destination})
    return source


def accepted(generator: Generator, number: int, kind: str) -> dict[str, Any]:
    """A stream over O that we accept."""
    while True:
        config: dict[str, Any] = {"name": f"{kind}{number}"}
        if kind == "mirror":
            config["mirror"] = upstream(generator)
        elif kind == "sources":
            config["sources"] = [upstream(generator) for _ in range(generator.randint(1, 2))]
        else:
            config["sources"] = [{"name": "O"}]
        # A number drawn in one place would decide what the next makes of it.
        drawn = "andom" in str(config)
        if kind == "ingress" or (generator.random() < 0.3 and not drawn):
            transform = generator.transform(FIRST)
            config["subject_transform"] = {"src": transform.source, "dest": transform.destination}
        if kind == "ingress":
            transform = generator.transform(["x", "y", *FIRST], tokens=3)
            config["republish"] = {
                "src": transform.source,
                "dest": f"out.{number}.{transform.destination}",
                "headers_only": generator.random() < 0.5,
            }
        try:
            parse_stream(config)
        except (InvalidStream, InvalidTransform):
            continue
        return config


def by_position(stored: Iterable[tuple[int, str]]) -> dict[int, list[str]]:
    """The subjects that each published message ended under."""
    result: dict[int, list[str]] = defaultdict(list)
    for position, subject in stored:
        result[position].append(subject)
    return result


def all_agree(ours: list[str], theirs: list[str]) -> bool:
    """Whether one message ended under these subjects; two sources keep no order."""
    return len(ours) == len(theirs) and any(
        all(map(agrees, order, theirs)) for order in permutations(ours)
    )


def test_generated_mirrors_sources_and_ingress(client: Client, seed: int) -> None:
    generator = Generator(seed)
    subjects = publish_origin(client, generator)
    configs = {
        config["name"]: config
        for kind in ("mirror", "sources", "ingress")
        for config in (accepted(generator, n, kind) for n in range(STREAMS_OF_EACH_KIND))
    }
    republishing = client.subscribe("out.>")
    create(client, configs.values())

    expected: dict[str, list[tuple[int, str]]] = {}
    for name, raw in configs.items():
        config = parse_stream(raw)
        taken = []
        for source in config.upstreams:
            for position, subject in enumerate(subjects):
                outcome = source.take(subject, None)
                taken.append((position, after_ingress(config, outcome)))
        expected[name] = by_position((p, subject) for p, subject in taken if subject is not None)
    total = sum(len(made) for positions in expected.values() for made in positions.values())
    wait_until_settled(client, len(subjects) + total)

    differences = []
    found = stored(client, list(configs))
    republished = client.received(republishing)
    for name, ours in expected.items():
        theirs = by_position((int(message.body), subject_of(message)) for message in found[name])
        differences += [
            f"{configs[name]}: {subjects[p]!r}: {theirs.get(p)}, ours {ours.get(p)}"
            for p in ours.keys() | theirs.keys()
            if not all_agree(ours.get(p, []), theirs.get(p, []))
        ]
    differences += _republish_differences(configs, found, republished)
    assert not differences, "\n".join(differences)


def _republish_differences(
    configs: dict[str, dict[str, Any]],
    found: dict[str, list[Message]],
    republished: Sequence[Message],
) -> Iterator[str]:
    got = {(m.headers["Nats-Stream"], int(m.headers["Nats-Sequence"])): m for m in republished}
    for name, raw in configs.items():
        config = parse_stream(raw)
        last: dict[str, int] = {}
        for sequence, message in enumerate(found[name], 1):
            subject = subject_of(message)
            ours = config.republished(subject, None) if config.republish else None
            theirs = got.pop((name, sequence), None)
            if (ours is None) != (theirs is None):
                yield f"{raw}: {subject!r} republished as {theirs}, not {ours}"
            if ours is not None and theirs is not None:
                headers = ours.headers(
                    sequence,
                    last.get(subject, 0),
                    theirs.headers["Nats-Time-Stamp"],
                    len(message.body),
                )
                if not agrees(ours.subject, theirs.subject) or not (
                    headers.items() <= theirs.headers.items()
                ):
                    yield f"{raw}: {subject!r} republished as {theirs}, not {ours}"
                if theirs.body != (b"" if ours.headers_only else message.body):
                    yield f"{raw}: {subject!r} republished with the body {theirs.body!r}"
            last[subject] = sequence
    yield from (f"republished unasked: {message}" for message in got.values())


def try_to_create(client: Client, config: dict[str, Any]) -> tuple[dict[str, Any], int | None]:
    """The server's answer and its error code, if it refuses; the stream is gone again."""
    name = config["name"]
    # A name that is not one token cannot stand in the subject of the request, which the server
    # notices before it looks at the rest.
    odd = re.search(r"^$|[ .*>]", name)
    answer = client.request(f"$JS.API.STREAM.CREATE.{'other' if odd else name}", config)
    code = answer.get("error", {}).get("err_code")
    if code is None:
        client.request(f"$JS.API.STREAM.DELETE.{name}")
    return answer, _INVALID_CONFIG if odd and code == _OTHER_NAME else code


def test_stream_configurations_are_accepted_and_refused_alike(client: Client, seed: int) -> None:
    generator = Generator(seed)
    accepted_count = 0
    differences = []
    for number in range(CONFIGS):
        config = generator.stream_config(f"N{number}", broken=0.12)
        answer, theirs = try_to_create(client, config)
        try:
            parse_stream(config)
            ours: int | None = None
        except InvalidStream as error:
            ours = error.err_code or _INVALID_JSON
        if theirs is None:
            accepted_count += 1
        if ours != theirs:
            differences.append(f"{config}: {answer.get('error')}, ours {ours}")
    assert not differences, "\n".join(differences)
    assert 80 < accepted_count < CONFIGS - 80


TABLE = [pytest.param(case, id=case["id"]) for case in cases.load("streams.yaml")]


@pytest.mark.parametrize("case", TABLE)
def test_the_table_of_streams(client: Client, case: dict[str, Any]) -> None:
    config = case["config"]
    # A server of this version refuses fields it does not know; the ADR's example has one.
    for source in config.get("sources", []):
        source.pop("subject_transform_dest", None)
    answer, code = try_to_create(client, config | {"storage": "memory"})
    assert code == case.get("refused"), answer
    if "take" in case:
        check_taken(client, config, case["take"])
    if "ingress" in case:
        check_ingress(client, config, case["ingress"])
    if "republish" in case:
        check_republished(client, config, case)


def check_taken(client: Client, config: dict[str, Any], take: dict[Any, dict[str, Any]]) -> None:
    """What each mirror or source takes, alone in a stream without ingress."""
    for place, subjects in take.items():
        is_mirror = place == "mirror"
        one = config["mirror"] if is_mirror else config["sources"][place]
        taken = {"name": "TAKEN", **({"mirror": one} if is_mirror else {"sources": [one]})}
        create(client, [{"name": one["name"], "subjects": list(subjects)}])
        if reads := one.get("consumer"):
            durable = {"durable_name": reads["name"], "deliver_subject": reads["deliver_subject"]}
            body = {"stream_name": one["name"], "config": durable | {"ack_policy": "flow_control"}}
            client.api(f"CONSUMER.CREATE.{one['name']}.{reads['name']}", body)
        create(client, [taken])
        for subject in subjects:
            client.publish(subject, subject.encode())
        expected = {s: to for s, to in subjects.items() if to is not None}
        wait_until_settled(client, len(subjects) + len(expected))
        found = {decode(m.body): m.subject for m in stored(client, ["TAKEN"])["TAKEN"]}
        assert found == expected
        for name in ("TAKEN", one["name"]):
            client.request(f"$JS.API.STREAM.DELETE.{name}")


def check_ingress(client: Client, config: dict[str, Any], ingress: dict[str, str]) -> None:
    """What subjects are stored under, brought in by a source so that any can come."""
    fed = {"name": "FED", "sources": [{"name": "FEED"}]}
    if "subject_transform" in config:
        fed["subject_transform"] = config["subject_transform"]
    create(client, [{"name": "FEED", "subjects": list(ingress)}, fed])
    for subject in ingress:
        client.publish(subject, subject.encode())
    wait_until_settled(client, 2 * len(ingress))
    found = {decode(m.body): subject_of(m) for m in stored(client, ["FED"])["FED"]}
    assert found == ingress
    for name in ("FED", "FEED"):
        client.request(f"$JS.API.STREAM.DELETE.{name}")


def check_republished(client: Client, config: dict[str, Any], case: dict[str, Any]) -> None:
    """What a stored subject is republished under."""
    stored_as = case.get("ingress") or {subject: subject for subject in case["republish"]}
    create(client, [config])
    everything = client.subscribe(">")
    for subject in stored_as:
        client.publish(subject)
    wait_until_settled(client, len(stored_as))
    client.flush()
    found = {
        m.headers["Nats-Subject"]: m.subject
        for m in client.received(everything)
        if "Nats-Stream" in m.headers
    }
    expected = {subject: case["republish"][subject] for subject in stored_as.values()}
    assert found == {subject: to for subject, to in expected.items() if to is not None}


def test_a_field_that_the_server_does_not_know(client: Client) -> None:
    config = {"name": "S", "sources": [{"name": "O", "subject_transform_dest": "foo.>"}]}
    _, code = try_to_create(client, config)
    assert code == _INVALID_JSON
    assert parse_stream(config).sources[0].model_extra == {"subject_transform_dest": "foo.>"}
