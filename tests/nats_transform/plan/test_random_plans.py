"""Random plans on a real nats-server: step by step and back, everybody gets what they got before.

As with the situations of `test_on_a_server`, each has accounts of its own and all are taken at the
same time. Who got no message of a subject before may get it once, but no consumer may: a plan is
refused for these.
"""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from pathlib import Path
from random import Random
from typing import Any

import pytest
from nats.aio.msg import Msg

from jobs.dry_run.question import read_question
from jobs.jetstream.process import nats_server
from nats_transform.accounts.cycles import import_cycles
from nats_transform.errors import NatsTransformError
from nats_transform.mappings.subject import collide, is_subset
from tests.nats_transform.plan.situations import Situation, filters
from tests.nats_transform.plan.test_on_a_server import Rollout, ask, take_in_turn

pytestmark = [pytest.mark.server, pytest.mark.slow]

MANY = 80
FIRST = 3.0
"""Seconds in which nothing comes: then nothing will, as far as is known before the first step."""
QUIET, LATE = 0.5, 15.0
"""The same later, if all has come that came before; and if not: the server may try a source again
only after seconds."""
DESTINATIONS = {
    "o.>": ["n.>", "o.v2.>", "n.o.>", "live.>"],
    "p.>": ["n.>", "p.v2.>"],
    "o.1": ["n.1", "n.one", "o.v2.1", "p.1", "n.o.1"],
    "o.*": ["n.$1", "n.o.$1", "o.v2.$1", "n.$1.x", "n.{{partition(3,1)}}.$1", "n.a.b.$1"],
    "p.*": ["n.$1", "p.v2.$1", "o.$1.p"],
    "o.*.x": ["n.$1", "o.v2.$1"],
    "o.1.*": ["n.$1", "n.1.$1"],
    "o.*.*": ["n.$1.$2", "n.$2.$1", "o.v2.$1.$2", "n.$2.{{partition(2,1)}}.$1"],
}
PUBLISHED = ["o.1", "o.2", "o.1.x", "o.2.y", "p.1", "p.2", "p.1.x", "n.1", "n.o.1", "live.q"]
CAPTURED = (
    "o.* o.> o.1 o.2 o.*.* p.* p.> live.> n.1 n.* n.o.* q.> s.* o.v2.1 o.v2.*".split()  # noqa: SIM905
)
FILTERS = "o.1 o.2 o.* o.> o.*.x o.1.* p.* p.1 n.1 n.o.1 n.> n.* o.v2.1 o.v2.> >".split()  # noqa: SIM905
TRANSFORMS = {
    "o.*": ["s.$1", "o.$1.s"],
    "o.>": ["s.>", "o.s.>"],
    "p.*": ["s.$1", "o.$1"],
    "n.*": ["o.$1", "s.$1"],
    "n.>": ["o.>", "s.>"],
}
REPUBLISHED = [(">", "live.>"), ("o.*", "live.o.$1"), ("o.*", "n.r.$1"), ("p.*", "o.r.$1")]
PERMISSIONS = ["", "{publish: ['o.>', 'p.>']}", "{publish: {deny: [o.2]}}", "{publish: ['o.*']}"]
SERVICES = {"req.*": ["o.*", "p.*", "n.*"], "req.1": ["o.1", "o.v2.1", "n.1"]}


def transform(random: Random) -> dict[str, str]:
    source = random.choice([*TRANSFORMS])
    return {"src": source, "dest": random.choice(TRANSFORMS[source])}


def mappings(random: Random) -> str:
    sources = random.sample([*DESTINATIONS], random.choice([1, 1, 1, 2]))
    return ", ".join(f'"{one}": "{random.choice(DESTINATIONS[one])}"' for one in sources)


def source(random: Random, name: str) -> dict[str, Any]:
    if (kind := random.randrange(3)) == 0:
        return {"name": name, "subject_transforms": [transform(random)]}
    return {"name": name} | ({"filter_subject": random.choice(FILTERS)} if kind == 1 else {})


def streams(random: Random) -> list[dict[str, Any]]:
    made, taken = list[dict[str, Any]](), list[str]()
    for number in range(random.choice([2, 2, 3, 3, 4])):
        config: dict[str, Any] = {"name": f"S{number}", "storage": "memory"}
        kind = random.random() if made else 1.0
        if kind < 0.1:
            made.append(config | {"mirror": {"name": random.choice(made)["name"]}})
            continue
        if kind < 0.5:
            names = random.choices([one["name"] for one in made], k=random.choice([1, 1, 2]))
            config["sources"] = [source(random, name) for name in names]
        if kind > 0.4:
            free = [one for one in CAPTURED if not any(collide(one, other) for other in taken)]
            config["subjects"] = random.sample(free, 1) or [f"z{number}"]
            taken += config["subjects"]
        if random.random() < 0.2:
            config["republish"] = dict(
                zip(("src", "dest"), random.choice(REPUBLISHED), strict=True)
            )
        if random.random() < 0.15:
            config["subject_transform"] = transform(random)
        made.append(config)
    return made


def situation(random: Random, number: int) -> Situation:
    configs, consumers = streams(random), dict[str, list[str]]()
    for name in range(random.choice([1, 2, 3])):
        some = random.sample(FILTERS, random.choice([0, 1, 1, 2]))
        apart = not any(is_subset(a, of=b) for a in some for b in some if a != b)
        consumers[f"{random.choice(configs)['name']}.c{name}"] = some if apart else some[:1]
    shared: dict[str, list[str]] = {}
    if random.random() < 0.3:
        out = random.choice(["o.*", "o.>", "o.1", "p.*", "live.>", "o.v2.1"])
        renamed = random.choice(["", ", prefix: pre"])
        shared["exports"] = [f'{{stream: "{out}"}}']
        shared["others"] = [f'{{stream: {{account: $SHOP, subject: "{out}"}}{renamed}}}']
    if random.random() < 0.3:
        asked = random.choice([*SERVICES])
        to = random.choice(SERVICES[asked])
        shared["theirs"] = [f'{{service: "{asked}"}}']
        shared["imports"] = [f'{{service: {{account: $OTHER, subject: "{asked}"}}, to: "{to}"}}']
    return Situation(
        id=f"random-{number}",
        mappings=mappings(random),
        current=mappings(random) if random.random() < 0.2 else "",
        census=random.sample(PUBLISHED, random.choice([2, 3, 4, 5])),
        streams=configs,
        consumers=consumers,
        permissions=random.choice(PERMISSIONS),
        **shared,
    )


class Watched(Rollout):
    """A random situation; `before` has how often each reader gets each subject without a plan."""

    before: dict[tuple[str, str], int] | None = None

    async def begin(self, url: str) -> bool:
        """Whether the server takes its streams and consumers."""
        try:
            await self.start(url)
        except AssertionError:
            return False
        self.readers = [*self.one.consumers]
        for config in self.one.streams:
            made = await ask(
                self.admin, f"CONSUMER.CREATE.{config['name']}.all", filters(config["name"], "all")
            )
            assert "error" not in made, made
            self.readers.append(f"{config['name']}.all")
        await self.other.subscribe(">", cb=self._hear)
        await self.flush()
        return True

    async def _hear(self, message: Msg) -> None:
        self.got["other"][message.data.decode()] += 1

    async def pass_on(self, moment: str) -> dict[tuple[str, str], int]:
        """How often each reader gets a message under each subject."""
        for subject in self.one.census:
            await self.app.publish(subject, f"{moment} {subject}".encode())
        await self.app.flush()
        last, since = None, time.monotonic()
        while True:
            for name in self.readers:
                await self._read(name, self.got[name])
            now = {
                (name, subject): self.got[name][f"{moment} {subject}"]
                for name in (*self.readers, "other")
                for subject in self.one.census
            }
            if now != last:
                last, since = now, time.monotonic()
            if time.monotonic() - since > self._patience(now):
                return now
            await asyncio.sleep(0.05)

    def _patience(self, now: dict[tuple[str, str], int]) -> float:
        if self.before is None:
            return FIRST
        return LATE if self.changes(now) else QUIET

    def changes(self, now: dict[tuple[str, str], int]) -> dict[tuple[str, str], tuple[int, int]]:
        """What a reader gets more or less often than before, and should not."""
        before = self.before or now
        return {
            key: (before[key], count)
            for key, count in now.items()
            if count != before[key] and (before[key] or count > 1 or key[0] in self.one.consumers)
        }


def planned(random: Random, folder: Path) -> list[Watched]:
    """Situations for which there is a plan."""
    found = []
    for number in range(MANY):
        one = situation(random, number)
        try:
            watched = Watched.of(one, folder / one.id)
            shares = read_question(one.settings(folder / one.id)).shares
        except NatsTransformError:  # there is no plan, or the mappings or a stream are refused
            continue
        if watched.plan.steps and not any(import_cycles([((n,), s) for n, s in shares.items()])):
            found.append(watched)
    return found


def test_nobody_loses_a_message_or_gets_another(tmp_path: Path, seed: int) -> None:
    rollouts = planned(Random(seed), tmp_path)
    assert len(rollouts) > MANY / 8
    with warnings.catch_warnings():
        # Of connections that the server ended, nats-py leaves the writers open.
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(_every_step_and_back(rollouts))
        gc.collect()


async def _every_step_and_back(rollouts: list[Watched]) -> None:
    accounts = (one.one.accounts(one.blocks) for one in rollouts)
    with nats_server("accounts {" + "\n".join(accounts) + "}") as server:
        taken = [one for one in rollouts if await one.begin(server.url)]
        others = [one.one.accounts(one.blocks) for one in rollouts if one not in taken]
        for one, before in zip(taken, await _pass_on(taken, "before"), strict=True):
            one.before = before
        async for n, undo in take_in_turn(server, taken, others):
            for one, now in zip(taken, await _pass_on(taken, f"{n} {undo}"), strict=True):
                assert one.changes(now) == {}, (n + 1, undo, one.one, one.plan.steps)
        for one in taken:
            await one.stop()


async def _pass_on(rollouts: list[Watched], moment: str) -> list[dict[tuple[str, str], int]]:
    return await asyncio.gather(*(one.pass_on(moment) for one in rollouts))
