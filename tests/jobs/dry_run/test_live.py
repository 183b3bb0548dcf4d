"""Dry runs of the subjects that a real server shows, and of what a lying one says."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from jobs.dry_run.live import live_census
from jobs.dry_run.result import DryRunResult
from jobs.dry_run.run import dry_run
from jobs.errors import ArchiveError
from jobs.jetstream import subjects
from jobs.jetstream.connection import RawClient, connection
from jobs.jetstream.process import NatsServer, nats_server
from jobs.jetstream.stream import stream_info
from jobs.jetstream.subjects import pages_of_subjects
from jobs.settings.connection import NatsSettings
from jobs.settings.dry_run import DryRunSettings
from jobs.settings.warehouse import Warehouse
from tests.conformance.client import Client
from tests.support.command import nats_transform
from tests.support.impostor import INFO_OF_STREAM, Impostor, serving
from tests.support.jobs import HERE, archived
from tests.support.refused import refused
from tests.support.streams import Stream

pytestmark = pytest.mark.server

PASSWORD = "secret"  # noqa: S105 - of this server alone
MAPPINGS = """
accounts { A {
  jetstream: enabled
  users: [
    {user: all, password: secret}
    {user: reader, password: secret, permissions: {
      publish: ["$JS.API.STREAM.INFO.*", "$JS.API.STREAM.LIST", "$JS.API.CONSUMER.LIST.*",
                "$JS.API.STREAM.NAMES", "$SYS.REQ.USER.INFO"]
      subscribe: "_INBOX.>"
    }}
  ]
} }
"""
CANDIDATE = 'accounts { A { mappings { "orders.*.*": "shop.$1.{{partition(3,2)}}.$2" } } }'
STREAMS: tuple[dict[str, Any], ...] = (
    {"name": "ORDERS", "subjects": ["orders.>"]},
    {"name": "BILLS", "subjects": ["bills.>"]},
    {"name": "COPY", "mirror": {"name": "ORDERS"}},
    {"name": "ALL", "subjects": ["all.own"], "sources": [{"name": "BILLS"}]},
)


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    with nats_server(MAPPINGS) as found, Client(found.url, "all") as client:
        for config in STREAMS:
            client.api(f"STREAM.CREATE.{config['name']}", config)
        consumer = {"durable_name": "eu", "filter_subject": "orders.eu.>", "ack_policy": "explicit"}
        client.api(
            "CONSUMER.CREATE.ORDERS.eu.orders.eu.>",
            {"stream_name": "ORDERS", "config": consumer | {"name": "eu"}},
        )
        for number in range(300):
            client.publish(f"orders.{('eu', 'us')[number % 2]}.{number % 40}", b"x" * number)
            client.publish(f"bills.{number % 7}")
        client.publish("all.own")
        client.flush()
        while client.api("STREAM.INFO.ALL")["state"]["messages"] < 301:
            pass
        yield found


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    file = tmp_path / "candidate.conf"
    file.write_text(CANDIDATE)
    return file


def reader(server: NatsServer) -> NatsSettings:
    return NatsSettings(servers=server.url, user="reader", password=SecretStr(PASSWORD))


def tried(server: NatsServer, candidate: Path, **more: Any) -> DryRunResult:
    settings = {"candidate": candidate, "account": "A", "nats": reader(server)}
    return dry_run(HERE, DryRunSettings.model_validate(settings | more))


def test_it_finds_what_it_finds_in_an_archive(
    server: NatsServer, candidate: Path, warehouse: Warehouse
) -> None:
    everything = {"servers": server.url, "user": "all", "password": PASSWORD}
    archived(warehouse, "ORDERS", server=everything)
    kept = tried(server, candidate, stream="ORDERS", warehouse=warehouse)
    live = tried(server, candidate, stream="ORDERS", live=True)
    assert {finding.code for finding in live.dry_run.findings} >= {"not-captured"}
    assert live.consumers == 1
    assert live.dry_run.findings == kept.dry_run.findings
    headers = "conditional publishes, schedules and ids of messages"
    assert headers in {one.what for one in live.not_looked_at}
    assert headers not in {one.what for one in kept.not_looked_at}
    assert live.dry_run.with_room == kept.dry_run.with_room
    assert live.dry_run.flows == kept.dry_run.flows
    assert (live.server, live.counted, live.days) == (reader(server).where, ("ORDERS",), ())


def test_all_streams_count_each_message_once(server: NatsServer, candidate: Path) -> None:
    live = tried(server, candidate)
    assert live.dry_run.messages == 601
    assert live.dry_run.subjects == 40 + 7 + 1
    assert set(live.counted) == {"ORDERS", "BILLS", "ALL"}
    assert live.stream == ""


def test_the_first_verdict_of_the_command(
    server: NatsServer, candidate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NATS_URL", server.url.replace("://", "://reader:secret@"))
    line = ("dry-run", "--candidate", str(candidate), "--account", "A")
    code, out, err = nats_transform(*line)
    assert code == 1, err
    assert out.startswith("all streams: 601 messages under 48 subjects, as they are now\n")
    assert "in ALL, BILLS, ORDERS\n" in out
    assert "not looked at: permissions of users" in out
    assert "messages that no stream holds now (the archives of streams)" in out
    assert "error not-captured: stream ORDERS" in out
    assert nats_transform("plan", *line[1:], "--out", "steps")[0] == 0
    assert (tmp_path / "steps" / "plan.json").is_file()
    assert not (tmp_path / "warehouse").exists()


def test_a_name_that_no_stream_has(server: NatsServer, candidate: Path) -> None:
    with refused(ArchiveError, "no-stream", stream="ORDER", hint="; did you mean ORDERS?"):
        tried(server, candidate, stream="ORDER", live=True)


def test_a_server_without_messages(candidate: Path) -> None:
    with nats_server(MAPPINGS) as empty:
        with Client(empty.url, "all") as client:
            client.request("$JS.API.STREAM.CREATE.ORDERS", STREAMS[0])
        with refused(ArchiveError, "live-without-messages", what=re.compile("account")):
            tried(empty, candidate)


@contextmanager
def holding(names: Iterable[bytes]) -> Iterator[tuple[NatsSettings, Client]]:
    """A server whose stream S has a message under each of these subjects, after `S.`."""
    with nats_server() as own, Client(own.url) as client:
        client.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
        Stream(own, "S").publish((name, b"", b"") for name in names)
        yield NatsSettings(servers=own.url), client


def test_pages_of_a_real_server() -> None:
    """More subjects than nats-server puts into one answer, and some go away meanwhile."""
    many = 100_900
    purged = {"filter": "S.000001"}
    with holding(b"%06d" % number for number in range(many)) as (nats, client):
        pages = gathered(nats, lambda: client.request("$JS.API.STREAM.PURGE.S", purged))
    assert [len(page) for page in pages] == [100_000, many - 100_000]
    assert {subject for page in pages for subject in page} == {f"S.{n:06}" for n in range(many)}


SITES = [b"eu.%d.%d" % (n % 40, n // 40) for n in range(1200)]
SHAPES = {
    "by site": SITES,
    "one of its own": [SITES[0], b"rare", *SITES[1:]],
    "two of their own": [SITES[0], b"rare.1", *SITES[1:700], b"eu.rare.2", *SITES[700:]],
    "shorter and longer": [
        *SITES,
        *(b"eu.%d" % n for n in range(9)),
        *(b"%d.0.0.0" % n for n in range(40)),
    ],
    "of many tokens": [b"%d.temperature" % n for n in range(1200)],
    "one token": [b"%d" % n for n in range(1200)],
    "larger than its share": [
        *(b"eu.%d" % (n % 9) for n in range(999)),
        *(b"us.%d.%d" % (n % 40, n) for n in range(999)),
    ],
}
FLAT = {"of many tokens", "one token"}


@pytest.mark.parametrize("name", SHAPES)
def test_a_large_stream_is_asked_for_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As large as a real server lets a quick test have it: so few subjects count as many."""
    for limit, few in (("PAGE", 100), ("FEW", 200), ("SAMPLES", 300), ("ROUNDS", 1)):
        monkeypatch.setattr(subjects, limit, few)
    with holding(SHAPES[name]) as (nats, _):
        pages = gathered(nats)
    counts = Counter[str]()
    for page in pages:
        assert not counts.keys() & page.keys()
        counts += page
    assert counts == Counter(f"S.{subject.decode()}" for subject in SHAPES[name])
    assert (max(map(len, pages)) > 900) == (name in FLAT)


@pytest.mark.slow
def test_a_stream_larger_than_two_pages_as_it_is() -> None:
    names = [b"v2.%d.%d" % (n % 200, n) for n in range(250_000)]
    with holding(names) as (nats, _):
        pages = gathered(nats)
    assert len(pages) == 200
    assert sorted(s for page in pages for s in page) == sorted(f"S.{n.decode()}" for n in names)


@pytest.mark.slow
def test_it_finds_the_same_in_several_pages_as_in_an_archive(
    candidate: Path, warehouse: Warehouse
) -> None:
    """More subjects than nats-server puts into one answer."""
    candidate.write_text('mappings { "S.*.*": "T.$1.{{left(2,3)}}" }')
    with holding(b"%d.%06d" % (n % 7, n) for n in range(100_900)) as (server, _):
        archived(warehouse, server=server)
        settings = DryRunSettings(stream="S", candidate=candidate, nats=server, warehouse=warehouse)
        kept = dry_run(HERE, settings).dry_run
        live = dry_run(HERE, settings.model_copy(update={"live": True})).dry_run
    assert live.subjects == 100_900
    assert {finding.code for finding in live.findings} >= {"collision", "not-captured"}
    assert (live.findings, live.flows) == (kept.findings, kept.flows)


def test_a_user_who_may_not_read_messages(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large stream is then asked for in pages, as a small one is."""
    monkeypatch.setattr(subjects, "FEW", 10)
    nats = reader(server).model_copy(update={"connect_timeout": 1.0})
    assert live_census(nats, "ORDERS", ()).rows.num_rows == 40


def gathered(nats: NatsSettings, between: Callable[[], object] = lambda: None) -> list[Any]:
    async def gather() -> list[Any]:
        pages = []
        async with connection(nats) as client:
            info = await stream_info(client, "S")
            async for page in pages_of_subjects(client, info):
                counts = (page[name].to_pylist() for name in ("subject", "messages"))
                pages.append(Counter(dict(zip(*counts, strict=True))))
                between()
        return pages

    return asyncio.run(gather())


def answer(subjects: Any, **more: Any) -> dict[str, Any]:
    state = INFO_OF_STREAM["state"] | {"subjects": subjects}
    return {**INFO_OF_STREAM, "state": state, "total": 2**62, "limit": 2, **more}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(answer({"a": -1}), "subjects.a: Input", id="below zero"),
        pytest.param(answer({"a": "1"}), "subjects.a: Input", id="a text"),
        pytest.param(answer(["a"]), "subjects: Input", id="a list"),
        pytest.param(answer({"a": 1}, total=-1), "total: Input", id="total"),
        pytest.param(answer({"a": 1}, limit="x"), "limit: Input", id="limit"),
        pytest.param(json.dumps(answer({"a": 1})).encode()[:-9], "it is not JSON", id="half"),
        pytest.param(b"[" * 9999, "it is not JSON", id="deep"),
    ],
)
def test_pages_that_no_server_gives(said: Any, why: str) -> None:
    impostor = Impostor(answers={"STREAM.INFO": said})
    with serving(impostor), refused(ArchiveError, "stream-refused", reason="odd-answer") as caught:
        gathered(NatsSettings(servers=impostor.url))
    assert why in str(caught.value)


def test_a_page_may_take_as_long_as_patience_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server sorts all subjects for each page: those of 5 million take it longer than 5 s."""
    waited = []
    request = RawClient.request

    async def recorded(client: RawClient, subject: str, *given: Any, timeout: float) -> Any:
        waited.append(timeout)
        return await request(client, subject, *given, timeout=timeout)

    monkeypatch.setattr(RawClient, "request", recorded)
    impostor = Impostor(answers={"STREAM.INFO": answer({"a": 1}, total=1)})
    with serving(impostor):
        gathered(NatsSettings(servers=impostor.url, connect_timeout=50, patience=70))
    assert waited == [50, 70]


def test_a_stream_that_would_keep_its_server_busy_is_not_counted() -> None:
    state = INFO_OF_STREAM["state"] | {"num_subjects": 2_200_000}
    impostor = Impostor(answers={"STREAM.INFO": {**INFO_OF_STREAM, "state": state}})
    many = refused(ArchiveError, "subjects-too-many", why=re.compile("2,200,000 "))
    with serving(impostor), many:
        live_census(NatsSettings(servers=impostor.url), "S", ())
    assert impostor.asked == ["$JS.API.STREAM.INFO.S", "$JS.API.STREAM.MSG.GET.S"]


def test_a_page_again_and_again() -> None:
    impostor = Impostor(answers={"STREAM.INFO": answer({"a": 1, "b": 2}, total=2**20)})
    with serving(impostor):
        assert gathered(NatsSettings(servers=impostor.url)) == [{"a": 1, "b": 2}]
    assert len(impostor.asked) == 3


@pytest.mark.parametrize("total", [300_000, 2**62])
@pytest.mark.parametrize("subject", ["a.b", "a.*", ">", ""])
def test_a_number_of_subjects_that_never_adds_up(
    total: int, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subjects, "SAMPLES", 50)
    info = answer({"a": 1, "b": 2}, total=total)
    info["state"]["num_subjects"] = 250_000
    message = {"message": {"seq": 1, "subject": subject}}
    impostor = Impostor(answers={"STREAM.INFO": info, "STREAM.MSG.GET": message})
    with serving(impostor), refused(ArchiveError, "subjects-too-many"):
        gathered(NatsSettings(servers=impostor.url))
    assert sum("INFO" in asked for asked in impostor.asked) < 200


def test_pages_with_nothing_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was between them was removed, or never shown."""
    monkeypatch.setattr(subjects, "SHARED", 1)
    impostor = Impostor(answers={"STREAM.INFO": answer({"a": 1}, total=9)})

    def turn() -> None:
        impostor.answers["STREAM.INFO"] = answer({"z": 1}, total=9)

    with serving(impostor), refused(ArchiveError, "subjects-removed-faster"):
        gathered(NatsSettings(servers=impostor.url), turn)
