"""Every command of docs/move-a-stream.md works and prints what the page says, up to replays.

`tests/support/nats_command.py` is the `nats` command.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jobs.jetstream.process import NatsServer, nats_server
from scripts.sessions import run, sessions
from tests.support import nats_command
from tests.support.files import save_context, write_files
from tests.support.stream_backups import messages_of, state_of_stream
from tests.support.streams import Stream

ROOT = Path(__file__).parents[1]
PAGE, heading, _ = (
    (ROOT / "docs/move-a-stream.md").read_text(encoding="utf-8").partition("\n## Copy messages")
)
assert heading


@pytest.mark.server
@pytest.mark.slow  # ten programs one after the other; test_export.py has the same in one process
def test_the_page(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = {name: stack.enter_context(nats_server()) for name in ("old", "new", "undo")}
        urls = {name: server.url for name, server in servers.items()}
        for name, url in urls.items():
            save_context(tmp_path / "config", name, url=url)
        (mapping,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        folder = tmp_path / "folder"
        write_files(folder, {"new.json": mapping})
        fill(servers["old"])
        environment = nats_command.environment(tmp_path / "bin")
        environment["XDG_CONFIG_HOME"] = str(tmp_path / "config")
        for session in sessions(PAGE):
            for command in session:
                run(command, folder, environment)
        before, after, undone = (rows(url) for url in urls.values())
    assert undone == before
    moved = [row | {"subject": re.sub(rb"orders\.(.*)\.", rb"shop.\1.order.", row["subject"])}
             for row in before]  # fmt: skip
    assert after == moved
    assert len(before) == 998


def fill(server: NatsServer) -> None:
    async def work(js: Any) -> None:
        await js.add_stream(name="ORDERS", subjects=["orders.*.*"])
        sending = (
            js.publish(f"orders.eu.{number % 7}", b"%d" % number, headers={"N": "1"})
            for number in range(1000)
        )
        await asyncio.gather(*sending)
        for sequence in (7, 1000):
            await js.delete_msg("ORDERS", sequence)
        consumer = await js.pull_subscribe("orders.eu.*", durable="billing", stream="ORDERS")
        for message in await consumer.fetch(10):
            await message.ack_sync()

    Stream(server, "ORDERS").run(work)


def rows(url: str) -> list[dict[str, Any]]:
    return messages_of(url, state_of_stream(url, "ORDERS"))


def test_every_command_stands_in_a_session() -> None:
    blocks = re.findall(r"^```(\w*)\n", PAGE, re.MULTILINE)
    assert {kind for kind in blocks if kind} == {"console", "json"}


def test_every_finding_is_explained() -> None:
    source = (ROOT / "jobs/export.py").read_text()
    codes = set(re.findall(r'self\._find\(\s*"(\w+)"', source))
    assert len(codes) == 5
    assert codes == set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
