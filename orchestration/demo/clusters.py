"""Three real clusters that map what is published in them: nats-servers in gateways on loopback.

What they do to a message depends on where it was published: each server applies the entries of its
own cluster. A stream of the first cluster stores what comes out of all three.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from operator import itemgetter
from pathlib import Path

import pyarrow.parquet as pq
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import DeliverPolicy, StreamConfig

from jobs.errors import ArchiveError, text_of
from jobs.jetstream.connection import connection
from jobs.jetstream.process import NatsServer, nats_server
from jobs.settings.connection import NatsSettings
from orchestration.demo.traffic import CLUSTER_HEADER, CLUSTERS, Message, dump_rows

STREAM = "MAPPED"
HOURS = 24
_SECONDS = 60.0
_NUMBER = "Shop-Number"  # messages of three clusters reach the stream as they may
_IN_HAND = 2_000  # messages between two flushes: what a server and its gateways take at once


@dataclass(frozen=True)
class Change:
    """A server gets another configuration.

    Attributes:
        hour: the hour of the day at which this happens.
        cluster: the cluster of the server.
        mappings: the new `mappings`, as lines of a server configuration.
    """

    hour: int
    cluster: str
    mappings: str


@contextmanager
def clusters(names: Sequence[str], mappings: str) -> Iterator[dict[str, NatsServer]]:
    """One nats-server for each cluster, all of them in gateways, with the same `mappings`.

    Raises:
        JobError: a server does not start.
    """
    ports = _free_ports(2 * len(names))
    gates = ", ".join(
        f'{{ name: {name}, url: "nats://127.0.0.1:{port}" }}'
        for name, port in zip(names, ports, strict=False)
    )
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                nats_server(
                    f"server_name: {name}\n"
                    # JetStream in a gateway needs a route, though the cluster has one server.
                    f'cluster {{ name: {name}, listen: "127.0.0.1:{route}", '
                    f'routes: ["nats://127.0.0.1:{route}"] }}\n'
                    f'gateway {{ name: {name}, listen: "127.0.0.1:{gate}", '
                    f"gateways: [{gates}] }}\n{mappings}"
                )
            )
            for name, gate, route in zip(names, ports, ports[len(names) :], strict=False)
        }
        yield servers
        for server in servers.values():  # to end in peace would take each of them seconds
            server.process.kill()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def reload(server: NatsServer, old: str, new: str) -> None:
    """Gives a running server other `mappings`, and waits until they are in force."""
    done = server.log.read_text().count("Reloaded server configuration")
    server.config.write_text(server.config.read_text().replace(old, new))
    server.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + _SECONDS
    while server.log.read_text().count("Reloaded server configuration") == done:
        if time.monotonic() > deadline:
            raise ArchiveError("demo-no-reload", log=server.log.read_text()[-300:])
        time.sleep(0.02)


def write_mapped(
    path: Path,
    day: date,
    traffic: Iterable[Message],
    count: int,
    subjects: Sequence[str],
    mappings: str,
    changes: Sequence[Change],
) -> None:
    """Writes a dump of what three clusters store of a day's traffic.

    Nobody waits a day for a demo: the messages of an hour are published at once, and the dump gives
    each the time that it stands for. What became of it is the work of the servers alone.

    Args:
        day: the day that the messages stand for.
        traffic: the messages, in order; a header names the cluster where each is published.
        mappings: the mappings of all servers, as lines of a server configuration.
        changes: the servers that get other mappings, and when.

    Raises:
        JobError: a server does not start, or loses messages.
    """
    with clusters(CLUSTERS, mappings) as servers:
        try:
            stored = asyncio.run(_through(servers, traffic, count, subjects, mappings, changes))
        except NatsError as error:
            raise ArchiveError("demo-clusters-silent", reason=text_of(error)) from error
    start = datetime.combine(day, time_of_day(), UTC)
    times = [start + timedelta(days=1) * number / count for number in range(count)]
    numbered = []
    for message in stored:
        headers = message.headers or {}
        number = int(headers.pop(_NUMBER))
        numbered.append((number, Message(message.subject, tuple(headers.items()), message.data)))
    numbered.sort(key=itemgetter(0))
    rows = dump_rows(1, times, [message for _, message in numbered])
    pq.write_table(rows, path, compression="zstd")


async def _through(
    servers: dict[str, NatsServer],
    traffic: Iterable[Message],
    count: int,
    subjects: Sequence[str],
    mappings: str,
    changes: Sequence[Change],
) -> list[Msg]:
    """The messages as the stream stores them; a header has the number of each."""
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(connection(NatsSettings(servers=server.url)))
            for name, server in servers.items()
        }
        first = next(iter(clients.values()))
        await _make_stream(first, subjects)
        loaded = dict.fromkeys(servers, mappings)
        waiting = sorted(changes, key=lambda change: change.hour)
        for number, message in enumerate(traffic):
            while waiting and number >= count * waiting[0].hour // HOURS:
                change = waiting.pop(0)
                # Everything before it must have been mapped.
                await _wait_until_stored(clients.values(), number)
                reload(servers[change.cluster], loaded[change.cluster], change.mappings)
                loaded[change.cluster] = change.mappings
            headers = dict(message.headers)
            client = clients[headers[CLUSTER_HEADER]]
            headers[_NUMBER] = str(number)
            await client.publish(message.subject, message.data, headers=headers)
            if number % _IN_HAND == 0:
                for each in clients.values():
                    await each.flush()
        await _wait_until_stored(clients.values(), count)
        reader = await first.jetstream().subscribe(
            ">", stream=STREAM, ordered_consumer=True, deliver_policy=DeliverPolicy.ALL
        )
        return [await reader.next_msg(_SECONDS) for _ in range(count)]


async def _make_stream(client: Client, subjects: Sequence[str]) -> None:
    """Makes the stream, as soon as the servers have elected a leader for JetStream."""
    config = StreamConfig(name=STREAM, subjects=list(subjects))
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            await client.jetstream(timeout=1).add_stream(config)
        except NatsError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)
        else:
            return


async def _wait_until_stored(clients: Iterable[Client], count: int) -> None:
    deadline = time.monotonic() + _SECONDS
    first, *_ = clients
    for client in clients:
        await client.flush()
    while (await first.jetstream().stream_info(STREAM)).state.messages < count:
        if time.monotonic() > deadline:
            raise ArchiveError("demo-stored-fewer", count=count)
        await asyncio.sleep(0.05)
