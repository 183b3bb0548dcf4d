"""Planted mistakes are found with exact counts, and nothing is found where they were not made.

One real nats-server, with an account for each side, does what was foretold.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jobs.dry_run.question import read_question
from jobs.jetstream.process import nats_server
from jobs.settings.dry_run import DryRunSettings
from jobs.settings.warehouse import Warehouse
from nats_transform.errors import NatsTransformError
from tests.conformance.client import Client
from tests.nats_transform.migration.mistakes import ACCOUNT, MISTAKES, Mistake, Side
from tests.nats_transform.plan.situations import filters
from tests.support.command import findings
from tests.support.dry_runs import CensusRow, of_question
from tests.support.files import write_files
from tests.support.refused import told

IDS = [mistake.id for mistake in MISTAKES]
SIDES = {
    f"{mistake.id}-{name}": (mistake, side)
    for mistake in MISTAKES
    for name, side in (("wrong", mistake.wrong), ("right", mistake.right))
}
"""By the account that each has on the server."""


def files(side: Side, folder: Path) -> list[str]:
    """Write what a side rolls out, as people have it; the configuration of the server is first."""
    shown = {"server.conf": f"accounts {{ {side.server_config()} }}"}
    shown |= {f"streams/{one['name']}.json": {"config": one} for one in side.streams}
    consumers = {
        f"consumers/{name}.json": filters(*name.split("."), *subjects)
        for name, subjects in side.consumers.items()
    }
    write_files(folder, shown | consumers)
    return [str(folder / name) for name in shown]


def checked(mistake: Mistake, paths: list[str]) -> list[tuple[str, str]]:
    """What `nats-transform check` finds."""
    clusters = [word for name in mistake.clusters for word in ("--cluster", name)]
    found = findings("check", *paths, *clusters, "--fail-on", "never")
    return [(one["severity"], one["code"]) for one in found]


def foretold(mistake: Mistake, side: Side, folder: Path) -> list[tuple[str, str, float, int]]:
    """What the dry run finds."""
    conf = folder / "server.conf"
    current = None
    if mistake.current:
        current = folder / "current.conf"
        current.write_text(f"accounts {{ {ACCOUNT} {{ mappings {{ {mistake.current} }} }} }}")
    question = read_question(
        DryRunSettings(
            warehouse=Warehouse(dir=folder),
            stream="S",
            candidate=conf,
            mapping=current,
            account=ACCOUNT,
            streams=folder / "streams" if side.streams else None,
            consumers=folder / "consumers" if side.consumers else None,
            permissions=conf if side.permissions else None,
            clusters=tuple(mistake.clusters),
        )
    )
    found = of_question(
        [CensusRow(subject, None, count) for subject, count in mistake.census.items()], question
    )
    return [(f.severity, f.code, f.messages, f.subjects) for f in found.findings]


@pytest.mark.parametrize("mistake", MISTAKES, ids=IDS)
def test_the_mistake_is_found(mistake: Mistake, tmp_path: Path) -> None:
    assert mistake.finds or mistake.refused
    assert sorted(checked(mistake, files(mistake.wrong, tmp_path))) == sorted(mistake.checks)
    if mistake.refused:
        with pytest.raises(NatsTransformError) as caught:
            foretold(mistake, mistake.wrong, tmp_path)
        assert mistake.refused in told(caught.value)
    else:
        assert sorted(foretold(mistake, mistake.wrong, tmp_path)) == sorted(mistake.finds)


@pytest.mark.parametrize("mistake", MISTAKES, ids=IDS)
def test_there_is_no_false_alarm(mistake: Mistake, tmp_path: Path) -> None:
    assert checked(mistake, files(mistake.right, tmp_path)) == mistake.notes
    assert {severity for severity, _ in mistake.notes} <= {"info"}
    assert foretold(mistake, mistake.right, tmp_path) == []


class Seen:
    """What a real server does with the census of one account."""

    def __init__(self, url: str, account: str, open_all: ExitStack) -> None:
        self.account = account
        self.mistake, self.side = SIDES[account]
        self.admin, self.app, self.other = (
            open_all.enter_context(Client(url, f"{account}-{user}"))
            for user in ("admin", "app", "other-user")
        )
        self.states: dict[str, Any] = {}
        self.told: dict[str, Any] = {"refused": {}, "pending": {}}

    def publish(self) -> None:
        """Makes the streams, and publishes the census."""
        for one in self.side.streams:
            answer = self.admin.request(
                f"$JS.API.STREAM.CREATE.{one['name']}", {**one, "storage": "memory"}
            )
            if "error" in answer:
                self.told["refused"][one["name"]] = answer["error"]["err_code"]
        subscriptions = [self.other.subscribe(one) for one in self.side.imports]
        self.other.flush()
        for subject, count in self.mistake.census.items():
            for _ in range(count):
                self.app.publish(subject, b"x")
        self.told["denied"] = self.app.denials()
        self.other.flush()
        self.told["imported"] = sum(len(self.other.received(one)) for one in subscriptions)

    def look(self) -> bool:
        """Reads what the streams hold; whether nothing has changed since the last look."""
        made = [s["name"] for s in self.side.streams if s["name"] not in self.told["refused"]]
        infos = self.admin.request_all(
            (f"$JS.API.STREAM.INFO.{name}", {"subjects_filter": ">"}) for name in made
        )
        upstreams = [
            one for info in infos for one in [*info.get("sources", []), info.get("mirror")] if one
        ]
        states = {i["config"]["name"]: i["state"].get("subjects", {}) for i in infos}
        is_same = states == self.states
        self.states = states
        return is_same and all(one["active"] >= 0 and one["lag"] == 0 for one in upstreams)

    def finish(self) -> dict[str, Any]:
        """All that was seen."""
        tokens: dict[str, Counter[str]] = defaultdict(Counter)
        for name, subjects in self.states.items():
            for subject, count in subjects.items():
                tokens[name][subject.split(".")[0]] += count
        self.told |= {"stored": self.states, "tokens": tokens}
        for name, subjects in self.side.consumers.items():
            body = filters(*name.split("."), *subjects)
            made = self.admin.api(f"CONSUMER.CREATE.{name}", body)
            self.told["pending"][name] = made["num_pending"]
        return self.told


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, dict[str, Any]]]:
    """What one real server does with every side, each in an account of its own."""
    accounts = "\n".join(
        side.server_config(account, f"{account}-other") for account, (_, side) in SIDES.items()
    )
    config = f"server_name: east\ncluster {{ name: east }}\naccounts {{ {accounts} }}"
    with nats_server(config) as server, ExitStack() as open_all:
        all_seen = [Seen(server.url, account, open_all) for account in SIDES]
        for one in all_seen:
            one.publish()
        quiet = 0
        while quiet < 5:  # pytest's timeout ends it
            quiet = quiet + 1 if {one.look() for one in all_seen} == {True} else 0
            time.sleep(0.05)
        yield {one.account: one.finish() for one in all_seen}


@pytest.mark.server
@pytest.mark.parametrize("account", [name for name, (_, side) in SIDES.items() if side.seen])
def test_a_real_server_does_what_was_foretold(
    account: str, seen: dict[str, dict[str, Any]]
) -> None:
    _, side = SIDES[account]
    assert {name: seen[account][name] for name in side.seen} == side.seen
