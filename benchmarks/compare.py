"""What it costs to compare two mapping versions of a table.

Run: python benchmarks/compare.py [--messages N] [--rounds N]

One day is ingested and transformed under the mappings of `benchmarks/checks.py`, and on a branch
under others, of which most rows differ. `nats-transform compare` runs from a cold command line.
Reported are the processor seconds of the whole command and its peak memory. Fails if the median of
the rounds is above 6 processor seconds for each million messages.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import MAPPINGS, SPARK, STREAM, make

from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import transform
from nats_transform import AccountMappings, Destination, Mapping

BUDGET = 6.0
OTHERS = AccountMappings(
    [
        Mapping("orders.*.*", [Destination("orders.{{partition(32,2)}}.$1.$2")]),
        *[mapping for mapping in MAPPINGS.mappings if mapping.source != "orders.*.*"],
    ]
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    seconds = []
    with tempfile.TemporaryDirectory(prefix="nats-transform-") as folder:
        make(Path(folder), options.messages)
        for branch, mappings, seed in ((None, MAPPINGS, 0), ("next", OTHERS, 1)):
            warehouse = Warehouse(dir=Path(folder, "warehouse"), branch=branch)
            settings = TransformSettings(
                stream=STREAM, mapping=Path("-"), seed=seed, warehouse=warehouse
            )
            assert transform(SPARK, settings, mappings).refused is None
        command = "from cli.main import main; main()"
        program = [sys.executable, "-c", command, "compare", "main", "next", "--json"]
        for _ in range(options.rounds):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                [*program, "--warehouse", str(warehouse.folder)], check=True, stdout=subprocess.PIPE
            )
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime)
        result = json.loads(done.stdout)
    print(
        f"{options.messages:,} messages, {result['equal']:,} equal, {result['moved']:,} moved: "
        f"{statistics.median(seconds):.2f} s of processor ({min(seconds):.2f} to "
        f"{max(seconds):.2f}), {used.ru_maxrss // 1024} MB"
    )
    sys.exit(statistics.median(seconds) > BUDGET * options.messages / 1e6)


if __name__ == "__main__":
    main()
