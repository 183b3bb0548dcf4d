"""Every kind of artefact of a plan on a real nats-server, step by step and back.

All situations are taken at the same time, each in accounts of its own: after each step everybody
who got messages got each of them, once; other accounts under the subjects that they know. And what
a plan was refused for, the server refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import warnings
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from jobs.jetstream.process import NatsServer, nats_server
from jobs.plan import configs
from nats_transform.mappings.subject import subscribes
from nats_transform.plan.files import files, path
from nats_transform.plan.model import Plan, Step
from tests.nats_transform.plan.situations import PLANNED, SITUATIONS, Situation, filters
from tests.support.awaiting import awaited
from tests.support.clients import settled
from tests.support.rollout import connected, reload

pytestmark = pytest.mark.server

WITH_SERVER = [one for one in SITUATIONS if one.server is not None]
EVERY = [*PLANNED, *WITH_SERVER]


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    text = "\n".join(one.accounts(one.blocks()) for one in EVERY)
    with nats_server(f"accounts {{ {text} }}") as running:
        yield running


async def ask(client: Client, subject: str, body: Any) -> Any:
    answer = await client.request(f"$JS.API.{subject}", json.dumps(body).encode(), timeout=10)
    return json.loads(answer.data)


async def create(client: Client, one: Situation) -> None:
    """Make the streams, those that others source first, and the consumers."""
    for config in sorted(one.streams, key=lambda c: "sources" in c or "mirror" in c):
        made = await ask(client, f"STREAM.CREATE.{config['name']}", config)
        assert "error" not in made, made
    for name in one.consumers:
        body = filters(*name.split("."), *one.consumers[name])
        made = await ask(client, f"CONSUMER.CREATE.{name}", body)
        assert "error" not in made, made


@pytest.mark.parametrize("one", [pytest.param(one, id=one.id) for one in WITH_SERVER])
@awaited
async def test_the_server_refuses_what_the_plan_would_need(
    server: NatsServer, one: Situation
) -> None:
    client = await connected(server.url, f"{one.account}-admin", "secret")
    await create(client, one)
    assert one.server is not None
    subject, body, code = one.server
    answer = await ask(client, subject, body)
    await client.close()
    assert answer["error"]["err_code"] == code, answer


@dataclass
class Rollout:
    """A situation while its plan is taken."""

    one: Situation
    plan: Plan
    texts: dict[str, str]
    blocks: dict[str, str]
    sent: list[tuple[str, str]] = field(default_factory=list)
    got: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @classmethod
    def of(cls, one: Situation, folder: Path) -> Rollout:
        plan = one.plan(folder)
        texts = files(plan, dict(configs(one.settings(folder))))
        return cls(one, plan, texts, one.blocks())

    async def start(self, url: str) -> None:
        self.app = await connected(url, f"{self.one.account}-app", "secret")
        self.admin = await connected(url, f"{self.one.account}-admin", "secret")
        self.other = await connected(url, f"{self.one.other}-admin", "secret")
        await create(self.admin, self.one)
        for name in self.one.delivered:
            kind, _, subject = name.partition(" ")
            if kind in ("here", "there"):
                client = self.admin if kind == "here" else self.other
                await client.subscribe(subject, cb=self._hears(name))
        if self.one.requests:
            await self.other.subscribe("req.>", cb=_answer)
        await self.flush()

    def _hears(self, name: str) -> Any:
        async def heard(message: Msg) -> None:
            self.got[name][message.data.decode()] += 1

        return heard

    async def flush(self) -> None:
        """Wait until everybody is connected; a reload ends some connections."""
        for client in (self.app, self.admin, self.other):
            for _ in range(100):
                with contextlib.suppress(nats.errors.Error, OSError):
                    if client.is_connected:
                        await settled(client)
                        break
                await asyncio.sleep(0.05)

    async def take(self, step: Step, undo: bool) -> bool:
        """Do what the page says; whether the server must read its configuration again."""
        before = dict(self.blocks)
        for change in step.changes:
            text = self.texts[path(step, change, undo)]
            if change.kind == "stream":
                await self._api(f"STREAM.UPDATE.{change.name}", json.loads(text))
            elif change.kind == "consumer":
                stream, name = change.name.split("/")
                body = {"stream_name": stream, "config": json.loads(text), "action": "update"}
                await self._api(f"CONSUMER.CREATE.{stream}.{name}", body)
            else:
                place = change.kind
                if place in ("exports", "imports"):
                    place += f" {change.name}"
                self.blocks[place] = text
        return before != self.blocks

    async def _api(self, subject: str, body: Any) -> None:
        answer = await ask(self.admin, subject, body)
        assert "error" not in answer, (self.one.id, answer)

    async def publish(self, moment: str) -> None:
        """A message under each subject; to a stream twice, as after a lost acknowledgment."""
        for subject in self.one.census:
            payload = f"{moment} {subject}"
            self.sent.append((subject, payload))
            if not self.one.streams:
                await self.app.publish(subject, payload.encode())
                continue
            headers = {"Nats-Msg-Id": payload}
            shares = any(name.startswith("there") for name in self.one.delivered)
            for _ in range(1 if shares else 2):
                answer = await self.app.request(subject, payload.encode(), 10, headers=headers)
                assert "error" not in json.loads(answer.data), (self.one.id, answer.data)
        for subject in self.one.requests:
            answer = await self.app.request(subject, b"?", 10)
            assert answer.data == b"req.eu", self.one.id
        await self.app.flush()

    async def check(self) -> None:
        for name, filter in self.one.delivered.items():
            wanted = Counter(
                payload for subject, payload in self.sent if subscribes(filter, subject)
            )
            kind, _, what = name.partition(" ")
            # On a busy machine the server tries a source again only after seconds.
            for _ in range(1200):
                if kind == "consumer":
                    await self._read(what, self.got[name])
                elif kind == "stream":
                    info = await ask(self.admin, f"STREAM.INFO.{what}", {})
                    if info["state"]["messages"] == len(wanted):
                        break
                if self.got[name] == wanted:
                    break
                await asyncio.sleep(0.05)
            else:
                raise AssertionError((self.one.id, name, wanted - self.got[name], self.got[name]))

    async def _read(self, name: str, counts: Counter[str]) -> None:
        stream, consumer = name.split(".")
        info = await ask(self.admin, f"CONSUMER.INFO.{name}", {})
        if info["num_pending"]:
            pull = await self.admin.jetstream().pull_subscribe_bind(consumer, stream)
            for message in await pull.fetch(info["num_pending"], timeout=10):
                counts[message.data.decode()] += 1
                await message.ack_sync(10)
            await pull.unsubscribe()

    async def stop(self) -> None:
        for client in (self.app, self.admin, self.other):
            await client.close()


async def _answer(message: Msg) -> None:
    await message.respond(message.subject.encode())


def test_every_step_and_back(server: NatsServer, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        # Of connections that the server ended, nats-py leaves the writers open.
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(_every_step_and_back(server, tmp_path))
        gc.collect()


async def take_in_turn(
    server: NatsServer, rollouts: Sequence[Rollout], beside: Sequence[str] = ()
) -> AsyncIterator[tuple[int, bool]]:
    """Take all plans at the same time, step by step and back; after each, its number and if undone.

    Args:
        beside: more accounts of the server.
    """
    most = max(len(one.plan.steps) for one in rollouts)
    for n, undo in [*((n, False) for n in range(most)), *((n, True) for n in range(most)[::-1])]:
        changed = [
            await one.take(one.plan.steps[n], undo) for one in rollouts if n < len(one.plan.steps)
        ]
        if any(changed):
            kept = server.config.read_text().split("accounts {")[0]
            text = "\n".join([*(one.one.accounts(one.blocks) for one in rollouts), *beside])
            server.config.write_text(f"{kept}accounts {{ {text} }}")
            await asyncio.to_thread(reload, server)
            for one in rollouts:
                await one.flush()
        yield n, undo


async def _every_step_and_back(server: NatsServer, folder: Path) -> None:
    rollouts = [Rollout.of(one, folder / one.id) for one in PLANNED]
    for one in rollouts:
        await one.start(server.url)
    beside = [one.accounts(one.blocks()) for one in WITH_SERVER]
    async for number, undo in take_in_turn(server, rollouts, beside):
        for one in rollouts:
            await one.publish(f"{number} {undo}")
        for one in rollouts:
            await one.check()
    for one in rollouts:
        await one.stop()
