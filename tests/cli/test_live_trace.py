"""`nats-transform trace --live`: what real servers say of a message that nobody gets."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from jobs.errors import JobError
from jobs.jetstream import tracing
from jobs.jetstream.connection import connection
from jobs.jetstream.process import NatsServer, nats_server
from jobs.live_trace import live_trace
from jobs.settings.connection import NatsSettings
from orchestration.demo.clusters import _free_ports, clusters
from tests.conformance.client import Client
from tests.support.command import document, nats_transform, printed, refused
from tests.support.hostile import HOSTILE, RAW
from tests.support.impostor import INFO, Impostor, serving
from tests.support.saying import saying, says

ACCOUNTS = """accounts {
  SYS { users: [{ user: sys, password: secret }] }
  SHOP {
    jetstream: enabled
    users: [
      { user: shop, password: secret }
      { user: mute, password: secret, permissions: { publish: ["$JS.API.>", "$SYS.>"] } }
      { user: dumb, password: secret, permissions: { publish: ["other.>"] } }
      { user: deaf, password: secret, permissions: { subscribe: ["other.>"] } }
    ]
    exports: [{ stream: "v1.>" }]
    imports: [{ service: { account: BANK, subject: "pay.*" }, to: "asks.pay.*" }]
    mappings {
      "shop.*": [
        { destination: "v1.$1.{{partition(3,1)}}", weight: 70% }
        { destination: "v2.{{random(5)}}.$1", weight: 20% }
      ]
      "near.*": [
        { destination: "v1.here.$1", weight: 100%, cluster: east }
        { destination: "v2.there.$1", weight: 100% }
      ]
      "gone": [{ destination: gone, weight: 0% }, { destination: kept, weight: 1% }]
      "api.>": "$JS.API.>"
    }
  }
  BANK {
    users: [{ user: bank, password: secret }]
    exports: [{ service: "pay.*", allow_trace: true }]
    imports: [
      { stream: { account: SHOP, subject: "v1.*.*" }, to: "sold.$2.$1", allow_trace: true }
    ]
    mappings { "pay.*": "paid.$1" }
  }
}
system_account: SYS
"""
V1 = {"name": "V1", "subjects": ["v1.>"], "subject_transform": {"src": "v1.*.*", "dest": "k.$2.$1"}}
V2 = {"name": "V2", "subjects": ["v2.>"]}
SUBJECTS = ("shop.eu", "near.x", "gone", "asks.pay.7", "other.x", "v1.a.b", "v2.x")

pytestmark = pytest.mark.server


class Watched:
    """Servers with streams, and subscribers of everything at each of them."""

    def __init__(self, servers: dict[str, NatsServer], folder: Path) -> None:
        self.config = folder / "server.conf"
        self.config.write_text(ACCOUNTS)
        self._stack, self._servers = ExitStack(), servers
        self._watchers = [
            self._stack.enter_context(Client(server.url, user))
            for server in servers.values()
            for user in ("shop", "bank")
        ]
        first = next(iter(servers.values()))
        self._shop = self._stack.enter_context(Client(first.url, "shop"))
        for stream in (V1, V2):
            until_done(self._shop, f"$JS.API.STREAM.CREATE.{stream['name']}", stream)
        self._numbers = [watcher.subscribe(">") for watcher in self._watchers]
        self._watchers[1].subscribe("sold.>")
        for watcher in self._watchers:
            watcher.flush()

    def close(self) -> None:
        self._stack.close()

    def url(self, user: str, at: str = "") -> str:
        url = self._servers[at or next(iter(self._servers))].url
        return url.replace("//", f"//{user}:secret@")

    def line(self, subject: str, *options: str, at: str = "", user: str = "shop") -> list[str]:
        account = "BANK" if user == "bank" else "SHOP"
        server = ["--server", self.url(user, at), "--account", account]
        return ["trace", subject, "--live", *server, *options]

    def trace(self, subject: str, **places: str) -> dict[str, Any]:
        traced: dict[str, Any] = document(
            *self.line(subject, "--mapping", str(self.config), **places)
        )
        return traced

    def delivered(self) -> list[str]:
        """The subjects of what subscribers got, but for talk with the servers."""
        subjects = []
        for watcher in self._watchers:
            watcher.flush()
            subjects += [message.subject for message in watcher.received()]
        return [name for name in subjects if not name.startswith(("_INBOX.", "$", "_R_."))]

    def stored(self) -> list[int]:
        names = ("V1", "V2")
        answers = [self._shop.request(f"$JS.API.STREAM.INFO.{name}") for name in names]
        return [answer["state"]["messages"] for answer in answers]


def until_done(client: Client, subject: str, body: object) -> None:
    """A request to a cluster, which may still have no leader."""
    for _ in range(300):
        answer = client.request(subject, body)
        if "error" not in answer:
            return
        assert answer["error"]["code"] == 503, answer
    raise AssertionError(answer)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with nats_server(ACCOUNTS) as server:
        made = Watched({"one": server}, tmp_path_factory.mktemp("live"))
        yield made
        made.close()


def verdicts(traced: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(hop["hop"], hop["seen"], hop["verdict"]) for hop in traced["hops"]]


def test_every_hop_is_as_predicted_and_nobody_gets_anything(watched: Watched) -> None:
    for subject in SUBJECTS:
        traced = watched.trace(subject)
        assert traced["is_equal"]
        assert traced["hops"][0]["hop"] == "mapping"
    assert watched.delivered() == []
    assert watched.stored() == [0, 0]


def test_it_shows_mapping_stream_import_and_egress(watched: Watched) -> None:
    assert verdicts(watched.trace("v1.a.b")) == [
        ("mapping", "v1.a.b", "equal"),
        ("import", "BANK gets sold.b.a", "equal"),
        ("stream", "V1 stores k.b.a", "equal"),
        ("egress", "1 x >", "equal"),
        ("egress", "2 x v1.*.*", "equal"),
    ]
    # A service of another account is predicted through its mappings.
    assert ("import", "BANK gets paid.7", "equal") in verdicts(watched.trace("asks.pay.7"))


def test_people_read_a_table(watched: Watched) -> None:
    out = printed(*watched.line("v2.x", "--mapping", str(watched.config)))
    lines = [line.split() for line in out.splitlines()]
    assert lines[0][:3] == ["v2.x", "traced", "by"]
    assert lines[3][:2] == ["equal", "stream"]
    assert "V2 stores v2.x" in out
    assert lines[-1] == ["equal"]


def test_results_that_no_subscriber_gets(tmp_path: Path) -> None:
    mappings = """
      "parts.*": "{{split(1,-)}}.x"
      "any.*": "n.{{random(-3)}}"
      "gone": [{ destination: gone, weight: 0% }]
      "named": lost
    """
    other = 'mappings { "gone": lost, "named": [{ destination: named, weight: 0% }] }'
    (tmp_path / "a.conf").write_text(f"mappings {{ {mappings} }}")
    (tmp_path / "b.conf").write_text(other)
    subjects = ["parts.--a", "parts.-", "parts.a-b", *["any.x"] * 9, "gone", "named"]
    with nats_server(f"mappings {{ {mappings} }}") as server:

        def traced(subject: str, file: str) -> int:
            options = ("--server", server.url, "--mapping", str(tmp_path / file))
            return nats_transform("trace", subject, "--live", *options)[0]

        assert [traced(subject, "a.conf") for subject in subjects] == [0] * len(subjects)
        assert [traced(subject, "b.conf") for subject in ("gone", "named")] == [1, 1]


@pytest.mark.parametrize(
    ("accounts", "subject", "hop", "seen"),
    [
        ('SHOP { mappings { "shop.*": "v3.$1" } }', "shop.eu", "mapping", ANY),
        ('SHOP { mappings { "other.x": "else.x" } }', "other.x", "mapping", ANY),
        ("SHOP { mappings {} }", "v1.a.b", "import", "BANK gets sold.b.a"),
        ("SHOP { mappings {} }", "asks.pay.7", "import", "BANK gets paid.7"),
        (
            'SHOP { imports: [{ service: { account: BANK, subject: "pay.*" }, to: "other.*" }] }, '
            'BANK { exports: [{ service: "pay.*" }] }',
            "other.x",
            "import",
            None,
        ),
    ],
    ids=["mapping", "more mappings", "no import", "no service", "more imports"],
)
def test_another_configuration_differs(
    watched: Watched, tmp_path: Path, accounts: str, subject: str, hop: str, seen: Any
) -> None:
    other = tmp_path / "other.conf"
    other.write_text(f"accounts {{ {accounts} }}")
    line = watched.line(subject, "--mapping", str(other))
    found = [one for one in verdicts(document(*line, code=1)) if one[0] == hop]
    assert found == [(hop, seen, "differs")]
    assert "the servers differ" in printed(*line, code=1)


def test_without_a_configuration_mappings_are_seen_and_streams_compared(watched: Watched) -> None:
    assert verdicts(document(*watched.line("near.x")))[:2] == [
        ("mapping", "v2.there.x", "seen"),
        ("stream", "V2 stores v2.there.x", "equal"),
    ]


def test_a_stream_that_refuses_differs(watched: Watched) -> None:
    with nats_server() as server, Client(server.url) as client:
        config = {"name": "S", "subjects": ["s"]}
        assert "error" not in client.request("$JS.API.STREAM.CREATE.S", config)
        assert "error" not in client.request("$JS.API.STREAM.UPDATE.S", {**config, "sealed": True})
        traced = document("trace", "s", "--live", "--server", server.url, code=1)
    seen = "S: invalid operation on sealed stream (10109)"
    assert ("stream", seen, "differs") in verdicts(traced)


def test_acknowledgements_through_services_are_refused(tmp_path: Path) -> None:
    """A server acknowledges a message even if it only traces."""
    config = """accounts {
      HUB { users: [{ user: hub, password: secret }], exports: [{ service: "$JS.ACK.S.C.>" }] }
      MID {
        imports: [{ service: { account: HUB, subject: "$JS.ACK.S.C.>" }, to: "hub.ack.>" }]
        exports: [{ service: "ack.>" }]
        mappings { "ack.>": "hub.ack.>" }
      }
      SHOP {
        users: [{ user: shop, password: secret }]
        imports: [
          { service: { account: HUB, subject: "$JS.ACK.S.C.>" }, to: "near.>" }
          { service: { account: MID, subject: "ack.>" }, to: "far.>" }
        ]
        mappings { "mapped.>": "near.>" }
      }
    }"""
    (tmp_path / "a.conf").write_text(config)
    with nats_server(config) as server:
        url = server.url.replace("//", "//shop:secret@")
        line = ("--live", "--server", url, "--account", "SHOP")
        for subject in ("near.1.1.1.1.0", "mapped.1.1.1.1.0", "far.1.1.1.1.0"):
            told = refused("trace", subject, *line, "--mapping", str(tmp_path / "a.conf"))
            assert says(told, "traced-own-subject", subject="'$JS.ACK.S.C.1.1.1.1.0'")
        # Without the mapping nobody knows before.
        _, out, _ = nats_transform("trace", "mapped.1", *line)
        assert "; it came to $JS.ACK.S.C.1, and nats-server may have acted on it" in out
        assert "nobody got it" not in out


def test_subscribers_alone_are_nothing_to_compare(tmp_path: Path) -> None:
    """Who gets a message follows from the subject that the server gives it."""
    config = """authorization { users: [
      { user: shop, password: secret }
      { user: some, password: secret, permissions: { subscribe: { deny: "a.x" } } }
    ] }"""
    with nats_server(config) as server, Client(server.url, "some") as client:
        client.subscribe("a.*")
        client.flush()
        line = ("--live", "--server", server.url.replace("//", "//shop:secret@"))
        for subject, verdict in (("a.x", "seen"), ("a.y", "equal")):
            traced = document("trace", subject, *line, code=1)
            assert [one[2] for one in verdicts(traced)] == ["seen", verdict]
            assert not traced["is_equal"]


@pytest.mark.parametrize("subject", ["$JS.API.STREAM.DELETE.V1", "api.STREAM.DELETE.V1", "$SYS.X"])
def test_subjects_on_which_servers_act_are_refused(watched: Watched, subject: str) -> None:
    told = refused(*watched.line(subject, "--mapping", str(watched.config)))
    assert says(told, "traced-own-subject")
    assert watched.stored() == [0, 0]


@pytest.mark.parametrize("subject", ["a b", "a.*", "", "a..b", "a\udcff", "a\x1b[31m"])
def test_what_nobody_can_publish_is_refused(watched: Watched, subject: str) -> None:
    assert not RAW.search(refused(*watched.line(subject)).rstrip("\n"))


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ("mute", saying("trace-refused")),
        ("deaf", saying("not-allowed", what="subscribe to its inbox")),
        ("dumb", saying("not-allowed", what="publish to $JS.API.STREAM.LIST")),
    ],
)
def test_a_user_without_the_permission_is_one_line(watched: Watched, user: str, why: str) -> None:
    assert re.search(why, refused(*watched.line("v1.a.b", user=user)))
    # What the server refuses is not waited for.
    settings = NatsSettings(servers=watched.url(user), connect_timeout=10_000)
    with pytest.raises(JobError):
        live_trace("v1.a.b", settings, account="SHOP")


def test_live_needs_a_server(watched: Watched) -> None:
    told = refused("trace", "a", "--live", "--mapping", str(watched.config))
    assert says(told, "live-without-server")


def test_an_account_without_jetstream_is_traced(watched: Watched) -> None:
    hops = verdicts(watched.trace("pay.1", user="bank"))
    assert hops[0] == ("mapping", "paid.1", "equal")


@pytest.fixture
def is_hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that do not come are not waited for."""
    monkeypatch.setattr(tracing, "SECONDS", 0.2)


def event(hop: str = "", **more: Any) -> bytes:
    header = {"Nats-Trace-Hop": [hop]} if hop else {}
    steps = [{"type": "in", "kind": 0, "acc": "$G", "subj": "a"}, *more.pop("steps", ())]
    document = {"server": {"name": "n"}, "request": {"header": header}, "events": steps, **more}
    return json.dumps(document).encode()


LISTS = {"STREAM.LIST": {"total": 0, "streams": []}}


def ask(traces: Iterable[bytes] = (), version: str = "2.15.1") -> tuple[int, str, str, Impostor]:
    info = b"INFO " + json.dumps({**INFO, "version": version}).encode() + b"\r\n"
    with serving(Impostor(info, LISTS, traces=traces)) as impostor:
        return *nats_transform("trace", "a", "--live", "--server", impostor.url), impostor


@pytest.mark.parametrize("version", ["2.10.29", "2.9.0", "1.4", "", "x"])
def test_a_server_that_would_deliver_the_message_gets_none(version: str) -> None:
    code, out, err, impostor = ask(version=version)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says(err, "trace-too-old")
    assert "a" not in impostor.asked


def test_what_strangers_write_is_shown_as_text() -> None:
    steps = [
        {"type": "sm", "to": f"to.{HOSTILE}"},
        {"type": "eg", "kind": 0, "sub": HOSTILE, "error": HOSTILE},
        {"type": "se", "acc": HOSTILE, "to": HOSTILE},
        {"type": "js", "stream": HOSTILE, "subject": HOSTILE},
    ]
    code, out, err, _ = ask([event(steps=steps, server={"name": HOSTILE, "cluster": HOSTILE})])
    assert (code, err) == (1, "")
    assert not RAW.search(out)
    assert r"\x1b[31m" in out


@pytest.mark.parametrize(
    ("traces", "code"),
    [
        pytest.param([b"{"], "odd-answer", id="no JSON"),
        pytest.param([b'{"server":{"name":"x"},"events":[]}'], "odd-answer", id="no events"),
        pytest.param([event("9"), event("9")], "trace-twice", id="twice"),
        pytest.param([b"\x00" * 2**20] * 20, "odd-answer", id="no text"),
        pytest.param(
            [event(str(n), more="x" * 2**20) for n in range(20)], "trace-too-large", id="too much"
        ),
        pytest.param([b"[" * 600_000], "odd-answer", id="too deep"),
        pytest.param([], "trace-without-event", id="nothing"),
    ],
)
def test_events_that_no_server_sends_are_one_line(
    traces: Iterable[bytes], code: str, request: pytest.FixtureRequest
) -> None:
    if not traces:
        request.getfixturevalue("is_hasty")
    exit_code, out, err, _ = ask(traces)
    assert (exit_code, out, err.count("\n")) == (2, "", 1)
    assert says(err, code)


@pytest.mark.usefixtures("is_hasty")
def test_servers_that_stay_silent_are_counted() -> None:
    passed = {"type": "eg", "kind": 2, "name": "far", "hop": "1"}
    code, out, _, impostor = ask([event(steps=[passed])])
    assert code == 1
    assert "gateway to far: no event came from there" in out
    assert out.endswith(
        "\nnothing to compare: give the mappings that should be in force (--mapping)\n"
    )
    assert impostor.asked.count("a") == 3


def test_what_happens_behind_a_leaf_node_is_seen_and_not_compared(tmp_path: Path) -> None:
    (port,) = _free_ports(1)
    mappings = 'mappings { "a.*": "b.$1" }'
    (tmp_path / "hub.conf").write_text(mappings)
    hub_config = f'server_name: hub\nleafnodes {{ listen: "127.0.0.1:{port}" }}\n{mappings}'
    remote = f'leafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{port}" }}] }}'
    leaf_config = f'server_name: leaf\n{remote}\nmappings {{ "b.*": "c.$1" }}'
    with (
        nats_server(hub_config) as hub,
        nats_server(leaf_config) as leaf,
        Client(leaf.url) as client,
    ):
        client.subscribe("b.*")
        client.subscribe("c.*")
        client.flush()
        line = ("trace", "a.1", "--live", "--server", hub.url)
        for _ in range(300):
            traced = document(*line, "--mapping", str(tmp_path / "hub.conf"))
            if len(traced["hops"]) > 1:
                break
        assert verdicts(traced) == [
            ("mapping", "b.1", "equal"),
            ("egress", "leaf node to leaf with b.1", "equal"),
            ("egress", "1 x c.*", "seen"),
        ]


@pytest.mark.slow
def test_three_clusters_do_as_predicted_for_200_random_subjects(tmp_path: Path) -> None:
    rng = random.Random(33)
    names = ("east", "central", "west")
    with clusters(names, ACCOUNTS) as servers:
        asyncio.run(connected(servers))
        watched = Watched(servers, tmp_path)
        seen = set()
        for _ in range(200):
            token = "".join(rng.choices("abcdefgh0123", k=rng.randint(1, 6)))
            subject = rng.choice(
                (
                    *(f"{start}.{token}" for start in ("shop", "near", "v2", "asks.pay", "other")),
                    f"v1.{token}.{token}",
                    "gone",
                )
            )
            traced = watched.trace(subject, at=rng.choice(names))
            assert traced["is_equal"]
            seen |= {(hop["hop"], hop["verdict"], hop["server"]) for hop in traced["hops"]}
        assert watched.delivered() == []
        assert watched.stored() == [0, 0]
        watched.close()
    # Each kind of hop was predicted at each server, and streams at the one that has them.
    expected = {(hop, "equal", name) for hop in ("mapping", "import", "egress") for name in names}
    assert expected <= seen
    assert any(hop == "stream" and verdict == "equal" for hop, verdict, _ in seen)


async def connected(servers: dict[str, NatsServer]) -> None:
    """Waits until the clusters have a leader for JetStream."""
    url = next(iter(servers.values())).url.replace("//", "//shop:secret@")
    async with connection(NatsSettings(servers=url)) as client:
        for _ in range(300):
            try:
                await client.jetstream().account_info()
                return
            except Exception:  # noqa: BLE001 - whatever a cluster says before it is one
                await asyncio.sleep(0.1)
