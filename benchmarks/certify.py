"""What a certificate costs: CPU seconds of all processes, with those of the private nats-server.

    python benchmarks/certify.py [--messages 200000] [--rounds 3]

The archive has as many messages. The candidate has weights, partitions and a random number. Of the
four streams one transforms and republishes, one captures that, one mirrors and one sources.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = str(Path(sys.executable).parent / "nats-transform")
CANDIDATE = """mappings {
  "orders.*.*": [
    { destination: "shop.$1.{{partition(16,2)}}.$2", weight: 90% }
    { destination: "canary.$1.$2", weight: 10% }
  ]
  "sensors.*.*": "lab.$1.{{random(9)}}"
}
"""
STREAMS = (
    {
        "name": "SHOP",
        "subjects": ["shop.>"],
        "subject_transform": {"src": "shop.*.*.*", "dest": "s.{{partition(3,3)}}.$1.$3"},
        "republish": {"src": "s.0.>", "dest": "again.>"},
    },
    {"name": "AGAIN", "subjects": ["again.>"]},
    {"name": "WHOLE", "mirror": {"name": "SHOP"}},
    {"name": "LAB", "sources": [{"name": "WHOLE", "filter_subject": "s.1.>"}]},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nats-transform-bench-") as name:
        folder = Path(name)
        with (folder / "dump.jsonl").open("w") as dump:
            for n in range(given.messages):
                subject = f"orders.{n % 7}.{n // 2}" if n % 4 else f"sensors.{n % 1000}.x"
                dump.write(json.dumps({"subject": subject, "ts": "2026-11-01T00:00:00Z"}) + "\n")
        (folder / "new.conf").write_text(CANDIDATE)
        (folder / "streams").mkdir()
        for stream in STREAMS:
            (folder / "streams" / f"{stream['name']}.json").write_text(json.dumps(stream))
        _run(folder, "ingest", "--stream", "S", "--jsonl", "dump.jsonl")
        line = ("certify", "--stream", "S", "--candidate", "new.conf", "--streams", "streams")
        line += ("--sample", str(given.messages))
        took = [_run(folder, *line) for _ in range(given.rounds)]
    wall, processor = (statistics.median(column) for column in zip(*took, strict=True))
    print(f"{given.messages:,} messages: {wall:.1f} s, {processor:.1f} CPU s of all processes")


def _run(folder: Path, *arguments: str) -> tuple[float, float]:
    """The seconds that a command takes, and the CPU seconds of it and its server."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([PROGRAM, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - start, used


if __name__ == "__main__":
    main()
