"""A plan applied to a real nats-server, step by step and back, while messages flow."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import shutil
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client

from jobs.jetstream.process import NatsServer, nats_server
from nats_transform.plan.files import path
from nats_transform.plan.model import Plan, Step
from tests.support.censuses import census_file
from tests.support.command import nats_transform

pytestmark = pytest.mark.server

STREAM = {"name": "ORDERS", "subjects": ["orders.*"], "description": "kept", "storage": "file"}
FILTERS: dict[str, dict[str, Any]] = {"all": {}, "eu": {"filter_subject": "orders.eu"}}
PERMISSIONS = 'permissions { publish: ["orders.*"], subscribe: ["_INBOX.>"] }'


def configuration(permissions: str, mappings: str) -> str:
    """What the server has; permissions and mappings are blocks of files of the plan."""
    return f"""
    system_account: SYS
    accounts {{
      SYS {{ users: [{{ user: sys, password: p }}] }}
      SHOP {{
        jetstream: enabled
        users: [{{ user: app, password: p, {permissions} }}, {{ user: worker, password: p }}]
        {mappings}
      }}
    }}
    """


@dataclass
class Traffic:
    """A publisher that tries again until it is acknowledged, and workers on both consumers."""

    url: str
    sent: Counter[str] = field(default_factory=Counter)
    got: dict[str, Counter[str]] = field(default_factory=dict)
    subjects: Counter[str] = field(default_factory=Counter)
    failure: list[BaseException] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception as error:  # noqa: BLE001 - the test raises it
            self.failure.append(error)

    async def _run(self) -> None:
        done = asyncio.Event()
        workers = [asyncio.create_task(self._work(name, done)) for name in FILTERS]
        await self._publish()
        done.set()
        await asyncio.gather(*workers)

    async def _publish(self) -> None:
        client = await connected(self.url, "app")
        number = 0
        while not self.over.is_set():
            number += 1
            subject = ("orders.eu", "orders.us")[number % 2]
            headers = {"Nats-Msg-Id": str(number)}
            while True:
                with contextlib.suppress(nats.errors.Error, TimeoutError):
                    answer = await client.request(subject, b"%d" % number, 2, headers=headers)
                    if answer.data and "error" not in json.loads(answer.data):
                        break
            self.sent[f"{number}"] += 1
            await asyncio.sleep(0.002)
        await client.close()

    def wanted(self, name: str) -> int:
        """How many messages a consumer is to get."""
        return len(self.sent) if name == "all" else sum(int(n) % 2 == 0 for n in self.sent)

    async def _work(self, name: str, done: asyncio.Event) -> None:
        client = await connected(self.url, "worker")
        counts = self.got[name] = Counter()
        pull = await client.jetstream().pull_subscribe_bind(name, "ORDERS")
        # Whatever is in flight when a connection ends comes once more: the guarantee is "at least
        # once", and which message of the stream it is tells.
        seen: set[int] = set()
        empty = 0
        while empty < 2 or sum(counts.values()) < self.wanted(name):
            try:
                messages = await pull.fetch(50, timeout=0.3)
            except (TimeoutError, nats.errors.Error):
                empty = empty + 1 if done.is_set() else 0
                if empty > 60:
                    break
                continue
            for message in messages:
                await message.ack()
                if message.metadata.sequence.stream not in seen:
                    seen.add(message.metadata.sequence.stream)
                    counts[message.data.decode()] += 1
                    self.subjects[message.subject] += 1
        await client.close()


async def connected(url: str, user: str) -> Client:
    async def quiet(error: Exception) -> None:
        """Permissions that end and servers that reload are what the test is about."""

    return await nats.connect(
        url, user=user, password="p", error_cb=quiet, reconnect_time_wait=0.05,  # noqa: S106
        max_reconnect_attempts=-1,
    )  # fmt: skip


def ask(url: str, subject: str, body: dict[str, Any] | None = None) -> Any:
    async def asked() -> Any:
        client = await connected(url, "worker")
        answer = await client.request(
            f"$JS.API.{subject}", json.dumps(body or {}).encode(), timeout=10
        )
        await client.close()
        return json.loads(answer.data)

    found = asyncio.run(asked())
    assert "error" not in found, found
    return found


@dataclass
class Account:
    """The account on its server, and the plan for it."""

    server: NatsServer
    folder: Path
    permissions: str = PERMISSIONS
    mappings: str = ""

    @property
    def plan(self) -> Plan:
        return Plan.model_validate_json((self.folder / "plan" / "plan.json").read_bytes())

    def apply(self, step: Step, undo: bool = False) -> None:
        """Do what the page says, by the API where it names the `nats` command."""
        for change in step.changes:
            text = (self.folder / "plan" / path(step, change, undo)).read_text()
            if change.kind == "stream":
                ask(self.server.url, "STREAM.UPDATE.ORDERS", json.loads(text))
            elif change.kind == "consumer":
                stream, name = change.name.split("/")
                body = {"stream_name": stream, "config": json.loads(text), "action": "update"}
                ask(self.server.url, f"CONSUMER.CREATE.{stream}.{name}", body)
            else:
                block = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
                setattr(self, change.kind, block)
                self.reload()

    def reload(self) -> None:
        kept = self.server.config.read_text().split("system_account")[0]
        self.server.config.write_text(kept + configuration(self.permissions, self.mappings))
        log = self.server.log.read_text().count("Reloaded server configuration")
        self.server.process.send_signal(signal.SIGHUP)
        for _ in range(200):
            if self.server.log.read_text().count("Reloaded server configuration") > log:
                return
            threading.Event().wait(0.05)
        raise AssertionError(self.server.log.read_text()[-800:])

    def verify(self, step: int, *more: str) -> tuple[int, str, str]:
        """As the user that sees all of it: what one user does not see, the other does."""
        given = ("verify", "--plan", str(self.folder / "plan"), "--step", str(step))
        where = ("--server", self.server.url, "--password", "p", "--user")
        monitor = ("--monitor", self.monitor, "--config", str(self.server.config))
        return nats_transform(*given, *where, "worker", *monitor, *more)

    @property
    def monitor(self) -> str:
        for line in self.server.log.read_text().splitlines():
            if "Starting http monitor on" in line:
                return f"http://{line.rsplit(' ', 1)[1]}"
        raise AssertionError("no monitoring port")


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    folder = tmp_path_factory.mktemp("rollout")
    with nats_server("http: 127.0.0.1:-1\n" + configuration(PERMISSIONS, "")) as server:
        ask(server.url, "STREAM.CREATE.ORDERS", STREAM)
        for name, filters in FILTERS.items():
            config: dict[str, Any] = {
                "durable_name": name,
                "name": name,
                "ack_policy": "explicit",
                **filters,
            } | {"ack_wait": 2 * 10**9}
            body = {"stream_name": "ORDERS", "config": config}
            ask(server.url, f"CONSUMER.CREATE.ORDERS.{name}", body)
            (folder / "consumers").mkdir(exist_ok=True)
            info = ask(server.url, f"CONSUMER.INFO.ORDERS.{name}")
            (folder / "consumers" / f"{name}.json").write_text(json.dumps(info))
        (folder / "streams").mkdir()
        info = ask(server.url, "STREAM.INFO.ORDERS")
        (folder / "streams" / "ORDERS.json").write_text(json.dumps(info))
        census = census_file(folder / "c.parquet", {b"orders.eu": 9, b"orders.us": 9})
        new = folder / "new.conf"
        new.write_text('accounts { SHOP { mappings { "orders.*": "shop.orders.$1" } } }')
        code, out, err = nats_transform(
            "plan", "--census", str(census), "--candidate", str(new), "--account", "SHOP",
            "--streams", str(folder / "streams"), "--consumers", str(folder / "consumers"),
            "--permissions", str(server.config), "--stages", "50,100",
            "--out", str(folder / "plan"),
        )  # fmt: skip
        assert code == 0, out + err
        yield Account(server, folder)


def test_no_message_is_lost_or_doubled(account: Account) -> None:
    """Up all steps and down again; every step is verified before and after it is taken."""
    traffic = Traffic(account.server.url)
    thread = threading.Thread(target=traffic.run)
    thread.start()
    steps = account.plan.steps
    assert [step.phase for step in steps] == ["expand"] * 3 + ["shift"] * 2 + ["contract"] * 3
    try:
        assert account.verify(0)[0] == 0
        for step in steps:
            code, out, _ = account.verify(step.number)
            assert (code, f"step {step.number} is not in force" in out) == (1, True), out
            account.apply(step)
            code, out, err = account.verify(step.number)
            assert code == 0, out + err
            if step.percent == 100:
                settle(account)
        for step in reversed(steps):
            account.apply(step, undo=True)
            code, out, err = account.verify(step.number - 1)
            assert code == 0, out + err
            if step.phase == "shift" and step.percent == 50:
                settle(account)
    finally:
        traffic.over.set()
        thread.join(60)
        with warnings.catch_warnings():
            # Of connections that the server ended, nats-py leaves the writers open.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    assert not traffic.failure
    assert len(traffic.sent) > 100
    assert traffic.got["all"] == traffic.sent
    assert traffic.got["eu"] == {n: 1 for n in traffic.sent if int(n) % 2 == 0}
    assert set(traffic.subjects) == {
        f"{p}.{c}" for p in ("orders", "shop.orders") for c in ("eu", "us")
    }


def settle(account: Account) -> None:
    """Wait until consumers have read what came under the subjects that are taken away next."""
    last = ask(account.server.url, "STREAM.INFO.ORDERS")["state"]["last_seq"]
    for name in FILTERS:
        for _ in range(400):
            info = ask(account.server.url, f"CONSUMER.INFO.ORDERS.{name}")
            if info["ack_floor"]["stream_seq"] >= last - 2:
                break
            threading.Event().wait(0.05)
        else:
            raise AssertionError(info)


def test_the_system_account_shows_the_mappings_too(account: Account) -> None:
    plan = str(account.folder / "plan")
    given = ("verify", "--plan", plan, "--server", account.server.url, "--json")
    login = ("--user", "sys", "--password", "p", "--step")
    code, out, err = nats_transform(*given, *login, "0")
    assert code == 0, out + err
    told = json.loads(out)
    assert (told["seen"], "stream ORDERS" in told["unseen"]) == (["mappings SHOP"], True)
    assert nats_transform(*given, *login, "4")[0] == 1


def test_what_a_user_of_the_account_cannot_see(account: Account) -> None:
    plan = str(account.folder / "plan")
    for step, cure in ((3, "--config"), (4, "--monitor")):
        code, out, err = nats_transform(
            "verify", "--plan", plan, "--step", str(step), "--server", account.server.url,
            "--user", "worker", "--password", "p",
        )  # fmt: skip
        assert (code, out) == (2, "")
        assert cure in err
        assert err.count("\n") == 1


def test_the_verify_of_the_page(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(account.folder)
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    (line,) = [one for one in page.splitlines() if one.startswith("nats-transform verify")]
    command = line.replace("nats://localhost:4222", account.server.url).split()[1:]
    code, out, err = nats_transform(*command, "--user", "worker", "--password", "p")
    assert (code, err) == (1, "")
    assert "step 1 is not in force: subjects: orders.*" in out


def test_a_stream_that_changed_since_the_plan(account: Account) -> None:
    kept = ask(account.server.url, "STREAM.INFO.ORDERS")["config"]
    ask(account.server.url, "STREAM.UPDATE.ORDERS", kept | {"max_age": 10**15})
    code, out, _ = account.verify(0)
    assert (code, out.splitlines()[0].split(":")[0]) == (1, "stream ORDERS")
    assert "max_age has changed since the plan was made" in out
    ask(account.server.url, "STREAM.UPDATE.ORDERS", kept)
    assert account.verify(0)[0] == 0


def test_a_server_of_somebody_else(account: Account) -> None:
    with nats_server() as other:
        code, out, _ = nats_transform(
            "verify", "--plan", str(account.folder / "plan"), "--step", "1", "--server", other.url
        )
    assert code == 1
    assert "is it the server, and the account, that the plan is for?" in out


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("01-expand/stream-ORDERS.json", lambda text: text.replace("kept", "mine")),
        ("README.md", lambda text: text + "\n"),
        ("plan.json", lambda text: text.replace('"percent": 50', '"percent": 60')),
        ("plan.json", lambda text: text.replace("shop.orders.$1", "shop.order.$1", 1)),
        ("plan.json", lambda text: "{}"),
        ("04-shift/undo/mappings-SHOP.conf", lambda text: None),
    ],
    ids=["stream", "page", "percent", "mapping", "no plan", "missing"],
)
def test_an_edited_folder(account: Account, tmp_path: Path, file: str, change: Any) -> None:
    folder = tmp_path / "plan"
    shutil.copytree(account.folder / "plan", folder)
    text = change((folder / file).read_text())
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    code, out, err = nats_transform(
        "verify", "--plan", str(folder), "--step", "1", "--server", account.server.url
    )
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(folder) in err
