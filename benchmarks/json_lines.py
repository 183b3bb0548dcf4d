"""What it costs to read a dump of JSON lines: to look for what is wrong with it, and to read it.

    python benchmarks/json_lines.py [--messages 300000] [--size 64] [--rounds 3]

Prints processor microseconds a message (of this process, with all its threads) of counting, looking
and reading, medians of rounds. Digests, files and the commit are not in them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jobs.files.storage import Storage
from jobs.settings.ingest import IngestSettings
from jobs.sources.blocks import ReadOnce
from jobs.sources.dump import DumpSource
from jobs.sources.files import find_files
from jobs.sources.json_lines import open_json_lines
from jobs.startup import without_pandas
from nats_transform.kernel.coverage import NONE

START = datetime(2026, 3, 1, tzinfo=UTC)


def message(n: int, size: int) -> dict[str, Any]:
    """A message with one header."""
    return {
        "subject": f"orders.{n % 1000}.new",
        "ts": (START + timedelta(milliseconds=n)).isoformat(),
        "headers": {"Trace": f"{n:016x}"},
        "data": "x" * size,
    }


def mixed(n: int, size: int) -> dict[str, Any]:
    """Messages of three producers; one line in a hundred has a byte that is not UTF-8."""
    row = message(n, size)
    if n % 3 == 1:
        row["headers"] = {"A": ["1", "2"], "Nats-Msg-Id": str(n)}
    if n % 3 == 2:
        del row["headers"]
    return row | ({"data": "\udcff"} if n % 100 == 0 else {})


def shuffled(n: int, size: int) -> dict[str, Any]:
    """Messages whose fields come in any order, so that no two lines are alike."""
    row = message(n, size) | {f"field{n}": n}
    return dict(sorted(row.items(), key=lambda pair: hash((pair[0], n))))


def spent(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds, and what came of it."""
    before = time.process_time()
    result = work()
    return time.process_time() - before, result


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    without_pandas()
    print(f"{given.messages:,} messages of {given.size} characters; load {os.getloadavg()[0]:.1f}")
    for kind in (message, mixed, shuffled):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "dump.jsonl")
            with path.open("w") as file:
                file.writelines(
                    json.dumps(kind(n, given.size)) + "\n" for n in range(given.messages)
                )
            settings, storage = IngestSettings(stream="S", jsonl=str(path)), Storage()
            files = find_files(storage, str(path))
            rounds = []
            for _ in range(given.rounds):
                count, (read, blocks) = spent(
                    lambda: open_json_lines(storage, files, settings, None)  # noqa: B023
                )
                with ReadOnce(read) as once:
                    source = DumpSource(once, blocks, files, "S", "jsonl", None)
                    look, (span,) = spent(lambda: source.plan(NONE))  # noqa: B023
                    take, tasks = source.tasks(span, NONE)
                    reading, rows = spent(
                        lambda: sum(len(rows) for task in tasks for rows in take(task))  # noqa: B023
                    )
                assert rows == given.messages
                rounds.append([1e6 * t / rows for t in (count, look, reading)])
            parts = [statistics.median(times) for times in zip(*rounds, strict=True)]
            print(
                f"{kind.__name__:10} count {parts[0]:.2f} + look {parts[1]:.2f} + read "
                f"{parts[2]:.2f} = {sum(parts):.2f} µs a message",
                flush=True,
            )


if __name__ == "__main__":
    main()
