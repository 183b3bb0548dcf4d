"""How fast a stream moves with its history, beside what people have for it.

    python benchmarks/backup.py [--messages 1000000] [--size 1024] [--published 100000]

Prints seconds and processor seconds (ours, the server's) of each step: reading a backup against
reading the stream itself, and export and restore against `replay` and against publishing with
nats-py, whose acknowledgements are awaited in batches. What reads or sends messages one by one is
done with fewer of them and counted up. The servers run on the same machine, on its disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nats import connect

sys.path.insert(0, str(Path(__file__).parents[1]))

from jobs.export import export
from jobs.ingest import ingest
from jobs.jetstream.process import NatsServer, nats_server
from jobs.replay import replay
from jobs.session import SessionOnDemand
from jobs.settings.connection import NatsSettings
from jobs.settings.export import ExportSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.replay import ReplaySettings
from jobs.settings.spark import SparkSettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import transform
from tests.support.stream_backups import back_up, restore
from tests.support.streams import Stream

STREAM = "BENCH"
BATCH = 1000  # messages whose acknowledgements are awaited together


def fill(server: NatsServer, messages: int, size: int) -> Stream:
    """A stream with messages of half random, half repeated bytes."""
    stream = Stream(server, STREAM)
    stream.run(lambda js: js.add_stream(name=STREAM, subjects=[f"{STREAM}.>"]))
    noise = os.urandom(2**20 + size)
    stream.publish(
        (
            b"%d.item" % (n % 1000),
            b"NATS/1.0\r\nTrace: %d\r\n\r\n" % n,
            noise[n % 2**20 :][: size // 2] + b"x" * (size - size // 2),
        )
        for n in range(messages)
    )
    return stream


async def published(url: str, messages: int, size: int) -> None:
    """What one would write by hand."""
    client = await connect(url)
    js = client.jetstream()
    await js.add_stream(name="BYHAND", subjects=["byhand.>"])
    data = os.urandom(size // 2) + b"x" * (size - size // 2)
    for start in range(0, messages, BATCH):
        await asyncio.gather(
            *(
                js.publish(f"byhand.{n % 1000}.item", data, headers={"Trace": str(n)})
                for n in range(start, min(messages, start + BATCH))
            )
        )
    await client.close()


def server_seconds(server: NatsServer) -> float:
    """Processor time of a server so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def timed(name: str, server: NatsServer, share: float = 1.0) -> Iterator[None]:
    """Prints what the block takes; of a part of the work, what all of it would."""
    theirs, wall, ours = server_seconds(server), time.monotonic(), time.process_time()
    yield
    wall, ours = time.monotonic() - wall, time.process_time() - ours
    theirs = server_seconds(server) - theirs
    counted = "" if share == 1 else f"  (counted up from {share:.0%})"
    print(
        f"{name:<28} {wall / share:8.1f} s, processor {ours / share:7.1f} s ours, "
        f"{theirs / share:7.1f} s the server's{counted}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--published", type=int, default=100_000)
    given = parser.parse_args()
    few, spark = min(given.published, given.messages), SessionOnDemand(SparkSettings())
    folder = Path(tempfile.mkdtemp(prefix="nats-transform-bench-"))
    try:
        with nats_server("max_payload: 8MB") as server:
            stream = fill(server, given.messages, given.size)
            backup = back_up(stream, folder / "backup")
            mapping = folder / "mapping.json"
            mapping.write_text(json.dumps({f"{STREAM}.*.item": [{"subject": "new.$1.item"}]}))
            warehouse = Warehouse(dir=folder / "warehouse")
            with timed("ingest of the backup", server):
                wanted = IngestSettings(stream=STREAM, backup=backup, warehouse=warehouse)
                ingest(spark, wanted)
            with timed("transform", server):
                of = {"stream": STREAM, "warehouse": warehouse, "mapping": mapping}
                transform(spark, TransformSettings(**of))  # type: ignore[arg-type]
        with nats_server("max_payload: 8MB") as server:
            with timed("export", server):
                place = str(folder / "exported")
                export(ExportSettings(original=backup, to_backup=place, **of))  # type: ignore[arg-type]
            with timed("restore", server):
                state = restore(server.url, folder / "exported")
            assert state.messages == given.messages
        few_messages(folder, few, given, spark)
    finally:
        shutil.rmtree(folder)


def few_messages(folder: Path, few: int, given: Any, spark: SessionOnDemand) -> None:
    """What reads or sends messages one by one."""
    warehouse = Warehouse(dir=folder / "few")
    mapping = folder / "mapping.json"
    with nats_server("max_payload: 8MB") as server:
        fill(server, few, given.size)
        with timed("ingest of the stream", server, few / given.messages):
            at = NatsSettings(servers=server.url)
            ingest(spark, IngestSettings(stream=STREAM, server=at, warehouse=warehouse))
        transform(spark, TransformSettings(stream=STREAM, warehouse=warehouse, mapping=mapping))
    with nats_server("max_payload: 8MB") as server:
        Stream(server, "NEW").run(lambda js: js.add_stream(name="NEW", subjects=["new.>"]))
        with timed("replay", server, few / given.messages):
            to = NatsSettings(servers=server.url)
            replay(ReplaySettings(stream=STREAM, warehouse=warehouse, to="NEW", server=to))
    with (
        nats_server("max_payload: 8MB") as server,
        timed("publishing with nats-py", server, few / given.messages),
    ):
        asyncio.run(published(server.url, few, given.size))


if __name__ == "__main__":
    main()
