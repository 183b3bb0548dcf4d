"""An account on real servers, a plan for it, and the messages that flow meanwhile.

A `Site` is one server, or a cluster of several; what a plan changes in the configuration is kept as
the blocks that its files have. `Traffic` is the programs of the people who use the account.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import secrets
import signal
import threading
import time
import unittest.mock
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import ConsumerConfig

from jobs.jetstream.process import NatsServer, nats_server
from nats_transform.mappings.subject import subscribes
from nats_transform.plan.files import CONFIGURED, path
from nats_transform.plan.model import Plan, Step
from tests.support.censuses import census_file
from tests.support.clients import settled
from tests.support.command import nats_transform
from tests.support.files import write_files
from tests.support.spark_cluster import free_port

_ALL = slice(None)
Block = tuple[str, str]
"""The kind and the name of what a plan changes in the configuration of servers."""

STREAM = {"name": "ORDERS", "subjects": ["orders.*"], "description": "kept", "storage": "file"}
CONSUMERS: dict[str, dict[str, Any]] = {"all": {}, "eu": {"filter_subject": "orders.eu"}}
BUCKET = "STOCK"
HISTORY = 10
OLD, NEW = "orders.*", "shop.orders.*"
SUBJECTS = ("orders.eu", "orders.us")

BEFORE: dict[Block, str] = {
    ("permissions", "app"): 'permissions { publish: ["orders.*"], subscribe: ["_INBOX.>"] }',
    ("permissions", "reader"): 'permissions { publish: { deny: ">" }, subscribe: ["orders.*"] }',
    ("exports", "SHOP"): 'exports: [ { stream: "orders.*" } ]',
    ("imports", "PARTNER"): ('imports: [ { stream: { account: SHOP, subject: "orders.*" } } ]'),
    ("mappings", "SHOP"): "",
}
_VARIABLE = "NATS_TRANSFORM_TEST_VARIABLE"


def configuration(blocks: Mapping[Block, str], login: str = "p") -> str:
    """What every server has."""
    return f"""
    system_account: SYS
    accounts {{
      SYS {{ users: [{{ user: sys, password: {login} }}] }}
      SHOP {{
        jetstream: enabled
        users: [
          {{ user: app, password: {login}, {blocks["permissions", "app"]} }}
          {{ user: reader, password: {login}, {blocks["permissions", "reader"]} }}
          {{ user: worker, password: {login} }}
        ]
        {blocks["exports", "SHOP"]}
        {blocks["mappings", "SHOP"]}
      }}
      PARTNER {{
        users: [ {{ user: partner, password: {login} }} ]
        {blocks["imports", "PARTNER"]}
      }}
    }}
    """


async def connected(url: str, user: str) -> Client:
    """A connection of a user that comes back whenever it is lost."""

    async def quiet(error: Exception) -> None:
        """Permissions that end and servers that reload are what the tests are about."""

    return await nats.connect(
        url, user=user, password="p", error_cb=quiet, reconnect_time_wait=0.05,  # noqa: S106
        max_reconnect_attempts=-1, allow_reconnect=True,
    )  # fmt: skip


@dataclass
class Site:
    """The servers of the account, and the folder with its plan.

    Attributes:
        servers: of one cluster, or one alone.
        configs: for each server, the file with the accounts that its configuration includes.
        folder: has the folder `plan` once it is made.
        blocks: what these files have at the moment, where the plan has no whole files.
    """

    servers: list[NatsServer]
    configs: list[Path]
    folder: Path
    blocks: dict[Block, str] = field(default_factory=lambda: dict(BEFORE))

    @property
    def url(self) -> str:
        return self.servers[0].url

    @property
    def plan(self) -> Plan:
        return Plan.model_validate_json((self.folder / "plan" / "plan.json").read_bytes())

    def ask(self, subject: str, body: Mapping[str, Any] | None = None, timeout: float = 20) -> Any:
        """What the JetStream API answers."""

        async def asked() -> Any:
            text = json.dumps(body or {}).encode()
            async with await connected(self.url, "worker") as client:
                answer = await client.request(f"$JS.API.{subject}", text, timeout=timeout)
            return json.loads(answer.data)

        found = asyncio.run(asked())
        assert "error" not in found, found
        return found

    def create(self) -> None:
        """The stream with its consumers, and the bucket."""
        self.ask("STREAM.CREATE.ORDERS", STREAM | {"num_replicas": len(self.servers)})
        for name, filters in CONSUMERS.items():
            config = {"durable_name": name, "name": name, "ack_policy": "explicit"}
            body = {"stream_name": "ORDERS", "config": config | {"ack_wait": 10 * 10**9} | filters}
            self.ask(f"CONSUMER.CREATE.ORDERS.{name}", body)
        bucket = {"name": f"KV_{BUCKET}", "subjects": [f"$KV.{BUCKET}.>"], "allow_direct": True}
        bucket |= {"max_msgs_per_subject": HISTORY, "allow_rollup_hdrs": True, "discard": "new"}
        self.ask(f"STREAM.CREATE.KV_{BUCKET}", bucket | {"num_replicas": len(self.servers)})

    def make_plan(self, *more: str) -> None:
        """Save what there is, and plan the move of `orders.*` to `shop.orders.*`."""
        seen = {subject.encode(): 9 for subject in SUBJECTS}
        census = census_file(self.folder / "census.parquet", seen)
        new = 'accounts { SHOP { mappings { "orders.*": "shop.orders.$1" } } }'
        files = {"new.conf": new}
        for name in ("ORDERS", f"KV_{BUCKET}"):
            files[f"streams/{name}.json"] = self.ask(f"STREAM.INFO.{name}")
        for name in CONSUMERS:
            files[f"consumers/ORDERS.{name}.json"] = self.ask(f"CONSUMER.INFO.ORDERS.{name}")
        write_files(self.folder, files)
        code, out, err = nats_transform(
            "plan", "--census", census, "--candidate", self.folder / "new.conf",
            "--account", "SHOP", "--streams", self.folder / "streams",
            "--consumers", self.folder / "consumers", "--permissions", self.configs[0],
            "--stages", "50,100", "--out", self.folder / "plan", *more,
        )  # fmt: skip
        assert code == 0, out + err

    def apply(self, step: Step, undo: bool = False, servers: slice = _ALL) -> None:
        """Do what the page of the plan says, by the API where it names the `nats` command.

        Args:
            step: which one.
            undo: take it back.
            servers: those that get the new configuration, one after the other.
        """
        for change in step.changes:
            file = self.folder / "plan" / path(step, change, undo)
            if change.kind == "stream":
                self.ask(f"STREAM.UPDATE.{change.name}", json.loads(file.read_text()))
            elif change.kind == "consumer":
                stream, name = change.name.split("/")
                config = json.loads(file.read_text())
                body = {"stream_name": stream, "config": config, "action": "update"}
                self.ask(f"CONSUMER.CREATE.{stream}.{name}", body)
            else:
                assert (change.kind, change.name) in self.blocks, change
                lines = file.read_text().splitlines()
                block = "\n".join(line for line in lines if not line.startswith("#"))
                self.blocks[change.kind, change.name] = block
        if configured(step):
            whole = self.plan.config
            text = (file.parent / whole).read_text() if whole else configuration(self.blocks)
            for server, config in list(zip(self.servers, self.configs, strict=True))[servers]:
                config.write_text(text)
                reload(server)

    def verify(self, step: int, *more: str) -> tuple[int, str, str]:
        """Look at everything on every server."""
        given = ["verify", "--plan", str(self.folder / "plan"), "--step", str(step)]
        given += ["--server", ",".join(server.url for server in self.servers)]
        given += ["--user", "worker", "--password", "p"]
        for server, config in zip(self.servers, self.configs, strict=True):
            given += ["--monitor", monitor(server), "--config", str(config)]
        return nats_transform(*given, *more)

    def up(self, step: Step, traffic: Traffic) -> None:
        """Take a step as the page says: look, apply it server by server, look again."""
        code, out, err = self.verify(step.number)
        assert (code, f"step {step.number} is not in force" in out) == (1, True), out + err
        first = {one.phase: one.number for one in reversed(self.plan.steps)}
        if step.number == first["shift"]:
            traffic.subscribe([OLD, NEW])
        if step.number == first["contract"]:
            traffic.subscribe([NEW])
        self._apply_and_look(step, step.number)
        traffic.wait_for_more()

    def down(self, step: Step, traffic: Traffic) -> None:
        """Undo a step as the page says: see that it can be undone, undo it, look."""
        self.wait_to_undo(step)
        shifts = [one.number for one in self.plan.steps if one.phase == "shift"]
        if step.number == shifts[-1]:
            traffic.subscribe([OLD, NEW])
        self._apply_and_look(step, step.number - 1, undo=True)
        traffic.wait_for_more()
        if step.number == shifts[0]:
            traffic.subscribe([OLD])

    def _apply_and_look(self, step: Step, then: int, undo: bool = False) -> None:
        if len(self.servers) > 1 and configured(step):
            self.apply(step, undo, slice(1))
            code, out, err = self.verify(then)
            assert code == 1, out + err
            assert " on n2, n3: " in out or f" on {self.configs[1]}, {self.configs[2]}: " in out
        self.apply(step, undo)
        self._wait(then)

    def wait_to_undo(self, step: Step) -> None:
        """Until consumers have read what this step gave them."""
        self._wait(step.number, "--undo")

    def _wait(self, step: int, *more: str) -> None:
        """Until a step is in force, and consumers have read what they lose next."""
        for _ in range(60):
            code, out, err = self.verify(step, *more)
            if code == 0:
                return
            first, *waits = out.splitlines() or [err]
            assert first.startswith(f"step {step} is in force"), out + err
            assert all(" yet: wait before step " in line for line in waits), out
            time.sleep(0.5)
        raise AssertionError(out)

    def state(self) -> dict[str, Any]:
        """What the plan may change, as servers show it."""
        found: dict[str, Any] = {}
        for name in ("ORDERS", f"KV_{BUCKET}"):
            config = self.ask(f"STREAM.INFO.{name}")["config"]
            config["metadata"] = _own(config.get("metadata"))
            found[f"stream {name}"] = config
        for name in CONSUMERS:
            config = self.ask(f"CONSUMER.INFO.ORDERS.{name}")["config"]
            config["metadata"] = _own(config.get("metadata"))
            if one := config.pop("filter_subject", None):
                config["filter_subjects"] = [one]
            found[f"consumer {name}"] = config
        return found


def _own(metadata: dict[str, str] | None) -> dict[str, str]:
    return {k: v for k, v in (metadata or {}).items() if not k.startswith("_nats.")}


def configured(step: Step) -> bool:
    """Whether a step changes the configuration of servers."""
    return any(change.kind in CONFIGURED for change in step.changes)


def reload(server: NatsServer) -> None:
    """Let a server read its configuration again."""
    done = "Reloaded server configuration"
    times = server.log.read_text().count(done)
    server.process.send_signal(signal.SIGHUP)
    for _ in range(400):
        if server.log.read_text().count(done) > times:
            return
        time.sleep(0.05)
    raise AssertionError(server.log.read_text()[-800:])


def monitor(server: NatsServer) -> str:
    """The URL of the monitoring port of a server."""
    started = re.search(r"Starting http monitor on (\S+)", server.log.read_text())
    return f"http://{started[1]}"


@contextmanager
def site(folder: Path, servers: int = 1) -> Iterator[Site]:
    """An account with a stream, consumers and a bucket, on one server or a cluster.

    The password of one server stands in its configuration, of which a plan then has blocks only. A
    cluster has it in the environment.
    """
    login = f"${_VARIABLE}" if servers > 1 else "p"
    ports = [free_port() for _ in range(servers)]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
    with ExitStack() as stack:
        stack.enter_context(unittest.mock.patch.dict(os.environ, {_VARIABLE: "p"}))
        made = Site([], [], folder)
        for number, port in enumerate(ports, 1):
            config = folder / f"n{number}" / "accounts.conf"
            config.parent.mkdir()
            config.write_text(configuration(BEFORE, login))
            # The server looks for it from the folder of its own configuration, so by way of /.
            there = "../" * 20 + str(config.absolute()).removeprefix("/")
            lines = ["http: 127.0.0.1:-1", f"server_name: n{number}", f'include "{there}"']
            if servers > 1:
                listen = f"listen: 127.0.0.1:{port}"
                lines.append(f"cluster {{ name: C, {listen}, routes: [{routes}] }}")
            made.servers.append(stack.enter_context(nats_server("\n".join(lines))))
            made.configs.append(config)
        if servers > 1:
            _wait_for_cluster(made)
        made.create()
        yield made


def _wait_for_cluster(site: Site) -> None:
    """JetStream works once all servers are there and one of them leads."""
    deadline = time.monotonic() + 600  # far above what it takes: a busy machine is not a failure
    while time.monotonic() < deadline:
        with contextlib.suppress(AssertionError, nats.errors.Error, TimeoutError):
            site.ask("INFO", timeout=0.5)
            logs = [server.log.read_text() for server in site.servers]
            if any("JetStream cluster new metadata leader" in log for log in logs):
                probe = {"name": "PROBE", "subjects": ["probe"], "num_replicas": len(site.servers)}
                site.ask("STREAM.CREATE.PROBE", probe)
                site.ask("STREAM.DELETE.PROBE")
                return
        time.sleep(0.2)
    raise AssertionError(site.servers[0].log.read_text()[-2000:])


@dataclass
class Traffic:
    """Publishers and consumers of every kind, each on a server of its own.

    Every message has a number. Each program writes down what it got, and `faults` compares.

    Attributes:
        held: whether the worker of one consumer stands still.
        sent: how often each number was published: again, until its stream acknowledged it.
        pulled: by durable consumer and number: the sequences in the stream, each time it came.
        again: messages that came without their server saying that they came before.
        queued: what the members of a queue group got together, without JetStream.
        imported: what another account got.
        ordered: what an ordered consumer got: sequence and number.
        put, watched: revision, key and value of what was put into the bucket, and what came of it.
        subjects: every subject under which something came, by who got it.
    """

    servers: Sequence[NatsServer]
    publishers: int = 2
    pause: float = 0.02
    held: bool = False
    sent: Counter[str] = field(default_factory=Counter)
    pulled: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)
    queued: Counter[str] = field(default_factory=Counter)
    imported: Counter[str] = field(default_factory=Counter)
    ordered: list[tuple[int, str]] = field(default_factory=list)
    put: list[tuple[int, str, str]] = field(default_factory=list)
    watched: list[tuple[int, str, str]] = field(default_factory=list)
    history: dict[str, list[int]] = field(default_factory=dict)
    subjects: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _members: list[tuple[Client, dict[str, Subscription]]] = field(default_factory=list)
    _failure: list[BaseException] = field(default_factory=list)
    _ready: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)
    _run_id: str = field(default_factory=lambda: secrets.token_hex(4))
    _first: int = 0  # the last sequence in the stream before
    _revision: int = 0  # and in the bucket
    _loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def flowing(self) -> Iterator[Self]:
        """Let messages flow; at the end, wait until all have come."""
        thread = threading.Thread(target=self._in_thread)
        thread.start()
        try:
            self._ready.wait(60)
            yield self
        finally:
            self._over.set()
            thread.join(180)
            with warnings.catch_warnings():
                # Of connections that the server ended, nats-py leaves the writers open.
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
        if self._failure:
            raise self._failure[0]

    def wait_for_more(self, messages: int = 50) -> None:
        """Until so many more were published."""
        wanted = len(self.sent) + messages
        while len(self.sent) < wanted and not self._failure:
            time.sleep(0.02)

    def subscribe(self, filters: Sequence[str]) -> None:
        """Deploy the members of the queue group anew: they subscribe to these subjects only."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._subscribe(filters), self._loop).result(60)

    def came_under(self, subjects: str) -> set[str]:
        """Who got messages under this filter."""
        everybody = self.subjects.items()
        return {who for who, got in everybody if any(subscribes(subjects, one) for one in got)}

    def faults(self) -> dict[str, str]:
        """Who got less or more than the guarantee of delivery allows."""
        numbers = set(self.sent)
        assert len(numbers) > 20
        found = {}
        for name, got in self.pulled.items():
            wanted = {n for n in numbers if name == "all" or _subject(n) == SUBJECTS[0]}
            twice = sorted(n for n, stored in got.items() if len(set(stored)) > 1)
            again = [one for one in self.again if one.startswith(f"{name}: ")]
            if set(got) != wanted or twice or again:
                found[name] = f"{_apart(set(got), wanted)}; twice {twice}; again {again}"
        for who, counts in (("queue group", self.queued), ("import", self.imported)):
            if counts != self.sent:
                found[who] = f"lost {self.sent - counts}; too often {counts - self.sent}"
        sequences = [sequence for sequence, _ in self.ordered]
        by_publisher = [
            [number for who, number in map(_parts, self.ordered) if who == publisher]
            for publisher in range(self.publishers)
        ]
        if sequences != list(range(self._first + 1, self._first + 1 + len(numbers))) or any(
            mine != list(range(1, len(mine) + 1)) for mine in by_publisher
        ):
            got_in_order = {text for _, text in self.ordered}
            found["ordered"] = f"{_apart(got_in_order, numbers)}; sequences {sequences}"
        if self.watched != self.put:
            found["watcher"] = f"{self.watched} of {self.put}"
        for key in {key for _, key, _ in self.put}:
            last = [revision for revision, name, _ in self.put if name == key][-HISTORY:]
            if self.history.get(key, [])[-len(last) :] != last:
                found[f"history of {key}"] = f"{self.history.get(key)}, not {last}"
        return found

    def _in_thread(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self._failure.append(error)
        finally:
            self._ready.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:

            async def client(server: int, user: str) -> Client:
                server %= len(self.servers)
                made = await connected(self.servers[server].url, user)
                stack.push_async_callback(made.close)
                return made

            await self._partner(await client(2, "partner"))
            self._members = [(await client(n, "reader"), {}) for n in range(3)]
            await self._subscribe([OLD])
            await self._in_order(await client(1, "worker"))
            bucket = await client(2, "worker")
            stream = await bucket.jsm().stream_info(f"KV_{BUCKET}")
            self._revision = stream.state.last_seq
            watch = asyncio.create_task(self._watch(await client(0, "worker")))
            sent = asyncio.Event()
            pulls = [
                asyncio.create_task(self._pull(await client(n, "worker"), name, sent))
                for n, name in enumerate(CONSUMERS)
            ]
            await asyncio.sleep(0.5)  # until all servers know of all subscriptions
            self._ready.set()
            writers = [self._publish(await client(n, "app"), n) for n in range(self.publishers)]
            await asyncio.gather(*writers, self._put(bucket))
            sent.set()
            await asyncio.gather(*pulls)
            await self._until(lambda: len(self.ordered) >= len(self.sent))
            await self._until(lambda: len(self.watched) >= len(self.put))
            for key, last in {key: revision for revision, key, _ in self.put}.items():
                await self._read_history(bucket, key, last)
            await asyncio.sleep(0.5)  # for what would come once too often
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def _read_history(self, bucket: Client, key: str, last: int) -> None:
        """Until it has the last revision: a replica that is asked may be behind for a moment."""
        values = await bucket.jetstream().key_value(BUCKET)
        for _ in range(100):
            with contextlib.suppress(nats.js.errors.NoKeysError):
                entries = await values.history(key)
                self.history[key] = [entry.revision or 0 for entry in entries]
                if last in self.history[key]:
                    return
            await asyncio.sleep(0.1)

    async def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(300):
            if done():
                return
            await asyncio.sleep(0.1)

    async def _publish(self, client: Client, publisher: int) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            text = f"{self._run_id}-{publisher}-{number}"
            while True:
                self.sent[text] += 1
                with contextlib.suppress(nats.errors.Error, TimeoutError):
                    given = _subject(text), text.encode(), 10
                    answer = await client.request(*given, headers={"Nats-Msg-Id": text})
                    if answer.data and "error" not in json.loads(answer.data):
                        break
            await asyncio.sleep(self.pause)

    async def _pull(self, client: Client, name: str, sent: asyncio.Event) -> None:
        """A worker that acknowledges: every message comes at least once."""
        got = self.pulled[name] = defaultdict(list)
        pull = await client.jetstream().pull_subscribe_bind(name, "ORDERS")
        empty = 0
        while empty < 3:
            try:
                messages = await pull.fetch(30 if name == "eu" else 50, timeout=0.5)
            except (TimeoutError, nats.errors.Error):
                empty = empty + 1 if sent.is_set() else 0
                continue
            if name == "eu":  # it falls behind
                await asyncio.sleep(0.1)
                while self.held:
                    await asyncio.sleep(0.05)
            for message in messages:
                with contextlib.suppress(nats.errors.Error, TimeoutError):
                    await message.ack_sync(5)
                number, data = message.data.decode(), message.metadata
                if got[number] and data.num_delivered == 1:
                    self.again.append(f"{name}: {number} as {data.sequence.stream}")
                got[number].append(data.sequence.stream)
                self.subjects[name][message.subject] += 1

    async def _subscribe(self, filters: Sequence[str]) -> None:
        for client, subscriptions in self._members:
            for name in set(filters) - set(subscriptions):
                subscriptions[name] = await client.subscribe(name, "members", self._queued)
            await settled(client)
        await asyncio.sleep(0.3)  # until all servers know
        for client, subscriptions in self._members:
            for name in set(subscriptions) - set(filters):
                await subscriptions.pop(name).drain()
            await client.flush(10)

    async def _queued(self, message: Msg) -> None:
        self.queued[message.data.decode()] += 1
        self.subjects["queue group"][message.subject] += 1

    async def _partner(self, client: Client) -> None:
        async def got(message: Msg) -> None:
            self.imported[message.data.decode()] += 1
            self.subjects["import"][message.subject] += 1

        for name in (OLD, NEW):
            await client.subscribe(name, cb=got)
        await settled(client)

    async def _in_order(self, client: Client) -> None:
        """The client's ordered consumer, from the next message on."""
        js = client.jetstream()
        self._first = (await js.stream_info("ORDERS")).state.last_seq

        async def got(message: Msg) -> None:
            self.ordered.append((message.metadata.sequence.stream, message.data.decode()))
            self.subjects["ordered"][message.subject] += 1

        config = ConsumerConfig(filter_subjects=[OLD, NEW], opt_start_seq=self._first + 1)
        await js.subscribe(
            OLD, stream="ORDERS", cb=got, ordered_consumer=True, config=config,
            deliver_policy="by_start_sequence",
        )  # fmt: skip

    async def _put(self, client: Client) -> None:
        bucket = await client.jetstream(timeout=20).key_value(BUCKET)
        number = 0
        while not self._over.is_set():
            number += 1
            key, value = ("eu", "us")[number % 2], str(number)
            self.put.append((await bucket.put(key, value.encode()), key, value))
            await asyncio.sleep(self.pause * 2)

    async def _watch(self, client: Client) -> None:
        watcher = await (await client.jetstream().key_value(BUCKET)).watchall()
        while True:
            with contextlib.suppress(TimeoutError, nats.errors.Error):
                entry = await watcher.updates(timeout=5)
                if entry is not None and (entry.revision or 0) > self._revision:
                    value = (entry.value or b"").decode()
                    self.watched.append((entry.revision or 0, entry.key, value))


def _parts(ordered: tuple[int, str]) -> tuple[int, int]:
    """The publisher of a message, and its number."""
    _, publisher, number = ordered[1].split("-")
    return int(publisher), int(number)


def _subject(text: str) -> str:
    """What a message is published under."""
    return SUBJECTS[int(text.rsplit("-", 1)[1]) % 2]


def _apart(got: set[str], wanted: set[str]) -> str:
    return f"lost {sorted(wanted - got)[:5]}, not sent {sorted(got - wanted)[:5]}"
