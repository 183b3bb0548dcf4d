"""A plan applied to a real nats-server, step by step and back, while messages flow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from jobs.jetstream.process import nats_server
from tests.support import command
from tests.support.clients import settled
from tests.support.command import nats_transform
from tests.support.rollout import NEW, OLD, Site, connected, monitor, site
from tests.support.saying import says
from tests.support.spark_cluster import free_port

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("rollout")) as made:
        made.make_plan()
        yield made


@pytest.mark.slow  # `make test` follows docs/plan.md on a server
def test_no_message_is_lost_or_doubled(account: Site) -> None:
    """Up all steps and down again; every step is verified before and after it is taken."""
    steps = account.plan.steps
    assert [step.phase for step in steps] == ["expand"] * 4 + ["shift"] * 2 + ["contract"] * 4
    traffic = account.up_and_down(steps)
    assert traffic.came_under(OLD) == set(traffic.subjects)
    # The plan gives the new subjects their old name in the other account.
    assert traffic.came_under(NEW) == set(traffic.subjects) - {"import"}


def verify(account: Site, step: int, *given: str) -> tuple[int, str, str]:
    return nats_transform("verify", "--plan", account.folder / "plan", "--step", str(step), *given)


def refused(account: Site, step: int, *given: str) -> str:
    """The line that says why nobody can tell whether a step is in force."""
    return command.refused("verify", "--plan", account.folder / "plan", "--step", str(step), *given)


WORKER = ("--user", "worker", "--password", "p")


def test_the_system_account_shows_the_mappings_too(account: Site) -> None:
    login = ("--server", account.url, "--user", "sys", "--password", "p", "--json")
    code, out, err = verify(account, 0, *login)
    assert code == 0, out + err
    told = json.loads(out)
    assert (told["seen"], "stream ORDERS" in told["unseen"]) == (["mappings SHOP"], True)
    assert verify(account, 5, *login)[0] == 1


def test_servers_that_do_not_show_the_account_are_named(account: Site) -> None:
    """Such as one whose configuration nobody has updated: there, the mappings are not in force."""
    routes = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        listening = (("n1", "SHOP {}", routes), ("n2", "OTHER {}", "127.0.0.1:-1"))
        for name, accounts, listen in listening:
            cluster = f"name: C, listen: {listen}, routes: [nats://{routes}]"
            users = "SYS { users: [{ user: sys, password: p }] }"
            config = f"server_name: {name}\ncluster {{ {cluster} }}\nsystem_account: SYS\n"
            config += f"accounts {{ {users}, {accounts} }}"
            server = stack.enter_context(nats_server(config))
        login = ("--server", server.url, "--user", "sys", "--password", "p")
        told: dict[str, Any] = {"seen": [], "unseen": []}
        deadline = time.monotonic() + 300
        # Until the servers know each other, and the one that is asked knows that they are two.
        while "mappings SHOP on n2" not in told["unseen"] and time.monotonic() < deadline:
            code, out, err = verify(account, 0, "--json", *login)
            told = json.loads(out or '{"seen": [], "unseen": []}')
    assert code == 0, out + err
    assert told["seen"] == ["mappings SHOP"]
    assert "mappings SHOP on n2" in told["unseen"]


def test_what_a_user_of_the_account_cannot_see(account: Site) -> None:
    for step, cure in ((3, "--config"), (4, "--config"), (5, "--monitor")):
        assert cure in refused(account, step, "--server", account.url, *WORKER)


def test_nobody_else_speaks_for_the_servers(account: Site) -> None:
    """A user of the account sees its requests, and could say that the mappings are in force."""
    answers = {
        "STATSZ": {"statsz": {"active_servers": 1}},
        "ACCOUNTZ": {"server": {"name": "x"}, "data": {"account_detail": {"mappings": {}}}},
    }

    async def looked() -> str:
        impostor = await connected(account.url, "worker")

        async def answer(asked: Msg) -> None:
            await asked.respond(json.dumps(answers[asked.subject.rpartition(".")[2]]).encode())

        await impostor.subscribe("$SYS.REQ.SERVER.PING.*", cb=answer)
        await settled(impostor)
        try:
            return await asyncio.to_thread(refused, account, 5, "--server", account.url, *WORKER)
        finally:
            await impostor.close()

    assert says(asyncio.run(looked()), "step-unseen", step=5)


CHANGED = "has changed since the plan was made"
ELSEWHERE = "has a state that is not in the plan"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"max_age": 10**15}, f"stream ORDERS: its max_age {CHANGED}"),
        ({"subjects": ["orders.*", "x"]}, f"stream ORDERS {ELSEWHERE}: subjects: orders.*, x"),
        ({"max_ack_pending": 7}, f"consumer ORDERS/eu: its max_ack_pending {CHANGED}"),
        (
            {"filter_subject": None, "filter_subjects": ["orders.us"]},
            f"consumer ORDERS/eu {ELSEWHERE}: filter_subjects: orders.us",
        ),
    ],
    ids=["stream", "subjects", "consumer", "filter"],
)
def test_what_changed_since_the_plan(account: Site, change: dict[str, Any], line: str) -> None:
    is_stream = line.startswith("stream")
    asked = "STREAM.INFO.ORDERS" if is_stream else "CONSUMER.INFO.ORDERS.eu"
    kept = account.ask(asked)["config"]

    def update(config: dict[str, Any]) -> None:
        if is_stream:
            account.ask("STREAM.UPDATE.ORDERS", config)
        else:
            body = {"stream_name": "ORDERS", "config": config, "action": "update"}
            account.ask("CONSUMER.CREATE.ORDERS.eu", body)

    update(kept | change)
    state = account.state()
    for step in (0, 1):
        code, out, _ = account.verify(step)
        told = [one for one in out.splitlines() if one.startswith(line)]
        assert (code, len(told)) == (1, 1), out
    assert account.state() == state
    update(kept)
    assert account.verify(0)[0] == 0


def test_a_step_out_of_order(account: Site) -> None:
    second = account.plan.steps[1]
    account.apply(second)
    code, out, err = account.verify(2)
    assert (code, err) == (1, "")
    assert out == f"stream ORDERS: step 1 is not in force: subjects: {OLD}\n"
    account.apply(second, undo=True)
    assert account.verify(0)[0] == 0


@pytest.mark.parametrize("step", [-1, 11], ids=["below", "above"])
def test_a_step_that_is_not_there(account: Site, step: int) -> None:
    code, out, err = account.verify(step)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says(err, "no-such-step", last=10)


@pytest.mark.parametrize("url", ["http://[::1", f"http://{'x' * 70}:8222"])
def test_an_address_that_cannot_be(account: Site, url: str) -> None:
    assert says(refused(account, 6, "--monitor", url), "monitoring-silent", url=url)


def test_a_server_of_somebody_else(account: Site) -> None:
    """One line, whatever is looked at."""
    with nats_server("http: 127.0.0.1:-1") as other:
        where = other.url.removeprefix("nats://")
        looked = verify(account, 1, "--server", other.url)
        monitored = refused(account, 5, "--monitor", monitor(other))
        configured = refused(account, 3, "--config", str(other.config))
        both = verify(account, 1, *WORKER, "--server", f"{account.url},{other.url}")
    lines = looked[1].splitlines()
    told = (
        f"there is no stream ORDERS on {where}: are the server and the account right for the plan?"
    )
    assert (looked[0], lines[0]) == (1, told)
    assert lines[1].startswith("not looked at: ")
    assert says(monitored, "monitored-without-account", account="SHOP")
    assert says(configured, "no-account-of-permissions", account="SHOP")
    assert both[0] == 2 or where in both[1]


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("01-expand/stream-ORDERS.json", lambda text: text.replace("kept", "mine")),
        ("README.md", lambda text: text + "\n"),
        ("plan.json", lambda text: text.replace('"percent": 50', '"percent": 60')),
        ("plan.json", lambda text: text.replace("shop.orders.$1", "shop.order.$1", 1)),
        ("plan.json", lambda text: "{}"),
        ("05-shift/undo/mappings-SHOP.conf", lambda text: None),
    ],
    ids=["stream", "page", "percent", "mapping", "no plan", "missing"],
)
def test_an_edited_folder(account: Site, tmp_path: Path, file: str, change: Any) -> None:
    folder = tmp_path / "plan"
    shutil.copytree(account.folder / "plan", folder)
    text = change((folder / file).read_text())
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    given = ("verify", "--plan", folder, "--step", "1", "--server", account.url)
    assert str(folder) in command.refused(*given)


def test_servers_that_disagree(account: Site, tmp_path: Path) -> None:
    with site(tmp_path) as other:
        other.folder = account.folder
        other.apply(account.plan.steps[0])
        code, out, err = verify(account, 1, "--server", f"{other.url},{account.url}", *WORKER)
    assert (code, err) == (1, "")
    told = f"stream ORDERS on {account.url.removeprefix('nats://')}: step 1 is not in force"
    assert out.splitlines()[0] == f"{told}: subjects: {OLD}"


def publish(account: Site, subject: str, *texts: str) -> None:
    """As a user who may do anything, and wait until the stream has it."""

    async def published() -> None:
        client = await connected(account.url, "worker")
        for text in texts:
            await client.request(subject, text.encode(), 10)
        await client.close()

    asyncio.run(published())


def read(account: Site, name: str) -> None:
    """Read everything that a consumer has."""

    async def reading() -> None:
        client = await connected(account.url, "worker")
        pull = await client.jetstream().pull_subscribe_bind(name, "ORDERS")
        with contextlib.suppress(TimeoutError):
            while True:
                for message in await pull.fetch(100, timeout=0.3):
                    await message.ack_sync()
        await client.close()

    asyncio.run(reading())


def test_consumers_that_are_behind(account: Site) -> None:
    """What a consumer has not read yet must not be taken from it, on the way up and down."""
    steps = account.plan.steps
    for step in steps[:6]:
        if step.number == 3:
            read(account, "eu")
            assert account.verify(2, "--undo")[0] == 0
            publish(account, "shop.orders.eu", "new")
            assert account.verify(2)[0] == 0
            code, out, _ = account.verify(2, "--undo")
            assert (code, out.splitlines()[1:]) == (1, [
                "consumer ORDERS/eu has not read all messages under shop.orders.eu yet: "
                "wait before step 2 is undone"
            ])  # fmt: skip
            read(account, "eu")
            assert account.verify(2, "--undo")[0] == 0
            publish(account, "orders.eu", "old")
        account.apply(step)
    code, out, _ = account.verify(6)
    assert (code, out.splitlines()[1:]) == (1, [
        "consumer ORDERS/eu has not read all messages under orders.eu yet: "
        "wait before step 7 is taken"
    ])  # fmt: skip
    # Nobody sees that at a monitoring port.
    err = refused(account, 6, "--monitor", monitor(account.servers[0]))
    assert says(err, "reading-unseen", cures="give --server URL")
    read(account, "eu")
    assert account.verify(6)[0] == 0
    for step in reversed(steps[:6]):
        account.apply(step, undo=True)
    assert account.verify(0)[0] == 0


def test_a_probe(account: Site) -> None:
    """Where mappings are shown to nobody, messages that count tell the stage."""
    steps = account.plan.steps
    before = account.ask("STREAM.INFO.ORDERS")["state"]["last_seq"]
    for step in steps[:6]:
        account.apply(step)
    account.apply(steps[5], undo=True)
    probe = ("--server", account.url, *WORKER, "--probe")
    found = {step: verify(account, step, *probe, "orders.probe") for step in (2, 5, 6)}
    assert found[5] == (0, found[5][1], "")
    assert "step 5 is in force" in found[5][1]
    later = "step 5 is in force already: undo it, or verify that step"
    assert (found[2][0], found[2][1].splitlines()[0]) == (1, later)
    assert "mappings SHOP: step 6 is not in force" in found[6][1]
    assert says(refused(account, 5, *probe, "other.x"), "probe-unchanged", subject="other.x")
    for step in reversed(steps[:5]):
        account.apply(step, undo=True)
    assert account.ask("STREAM.INFO.ORDERS")["state"]["last_seq"] == before
