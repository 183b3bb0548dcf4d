"""What the compiled kernel costs a message; fails above a budget.

    python benchmarks/kernel.py [--messages N] [--rounds N] [--json]

Nanoseconds of processor time, so that other work on the machine shows less: the least of several
rounds over batches of 65,536 messages, in one process and one thread. `states` is what becomes of
each message as numbers (`Program.run`), `columns` all columns of outcomes (`Program.apply`). The
mappings are those of benchmarks/transform.py; a fifth of the messages comes from a cluster with
destinations of its own, and each message draws.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import pyarrow as pa
from transform import MIXED, rules

from nats_transform import AccountMappings
from nats_transform.kernel import Program, compile_mappings, digest_batch

BATCH = 65_536
REGIONS = ("eu", "us", "apac", "latam")
CLUSTERS = ["east"] * 2 + ["west"] * 6 + [None] * 2
BUDGETS = {
    "mixed mapping": 220,
    "1,000 rules": 300,
    "5,000 rules": 450,
    "keys of 120 bytes": 550,
}
"""Of `states`, in nanoseconds."""


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        name: what is measured.
        program: that maps.
        batches: of subjects, clusters, streams and sequences.
    """

    name: str
    program: Program
    batches: Sequence[tuple[pa.Array, ...]]


def batches(count: int, subject: Callable[[Random], str]) -> list[tuple[pa.Array, ...]]:
    """Messages with these subjects."""
    random = Random(1)
    made = []
    for first in range(0, count, BATCH):
        rows = min(BATCH, count - first)
        made.append(
            (
                pa.array([subject(random) for _ in range(rows)]),
                pa.array([random.choice(CLUSTERS) for _ in range(rows)]),
                pa.array(["ORDERS"] * rows),
                pa.array(range(first, first + rows)),
            )
        )
    return made


def keyed(size: int) -> Callable[[Random], str]:
    """Subjects for the mixed mapping, with keys of so many bytes."""
    return lambda random: (
        f"orders.{random.choice(REGIONS)}."
        + str(random.randrange(10 ** min(size, 12))).rjust(size, "0")
    )


def covered(count: int) -> Callable[[Random], str]:
    """Subjects that the mappings of `rules(count)` cover evenly."""

    shapes = ("r{}.q.{:012}", "r{}.a.{:012}", "r{}.q.{:012}", "q.s{}.{:012}")

    def subject(random: Random) -> str:
        number = random.randrange(count)
        return shapes[number % 4].format(number, random.randrange(10**12))

    return subject


def lines(count: int) -> Iterator[Line]:
    yield Line("mixed mapping", compile_mappings(MIXED), batches(count, keyed(12)))
    for size in (8, 16, 40, 120):
        yield Line(f"keys of {size} bytes", compile_mappings(MIXED), batches(count, keyed(size)))
    for number in (1, 100, 1_000, 5_000):
        name = f"{number:,} rule{'s' * (number > 1)}"
        yield Line(name, compile_mappings(rules(number)), batches(count, covered(number)))


def cost(rounds: int, count: int, work: Callable[[], object]) -> float:
    """Nanoseconds of the processor for one of so many messages."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time_ns()
        work()
        best = min(best, (time.process_time_ns() - start) / count)
    return best


def measured(line: Line, rounds: int, count: int) -> dict[str, float]:
    def each(work: Callable[..., object]) -> Callable[[], object]:
        return lambda: [
            work(subjects, cluster=cluster, stream=stream, seq=seq)
            for subjects, cluster, stream, seq in line.batches
        ]

    return {
        "states": cost(rounds, count, each(line.program.run)),
        "columns": cost(rounds, count, each(line.program.apply)),
    }


def digests(count: int, rounds: int) -> Iterator[tuple[str, float]]:
    """The digest of the columns of an archive, as transformed, by size of the payload."""
    subjects, cluster, stream, seq = batches(min(count, BATCH), keyed(12))[0]
    rows = len(subjects)
    mapped = compile_mappings(MIXED).apply(subjects, cluster=cluster, stream=stream, seq=seq)
    random = Random(2)
    for size in (64, 1024):
        columns = {
            "stream": stream,
            "seq": seq,
            "ts": pa.array(range(rows), pa.timestamp("us", "UTC")),
            "ts_ns": seq,
            "day": pa.array([20_000] * rows, pa.date32()),
            "subject": subjects,
            "cluster": cluster,
            "headers": pa.nulls(rows, pa.list_(pa.struct([("name", pa.string())]))),
            "data": pa.array([random.randbytes(size) for _ in range(rows)]),
        }
        columns |= dict(zip(mapped.schema.names, mapped.columns, strict=True))
        batch = pa.record_batch(columns)
        work = partial(digest_batch, batch)
        yield f"digest, payload of {size:,} bytes", cost(rounds, rows, work)


def scalar_cost(mappings: AccountMappings, rounds: int) -> float:
    subjects, clusters, _, _ = (column.to_pylist() for column in batches(10_000, keyed(12))[0])

    def work() -> None:
        for seq, (subject, cluster) in enumerate(zip(subjects, clusters, strict=True)):
            mappings.replay(subject, cluster, stream="ORDERS", seq=seq)

    return cost(rounds, len(subjects), work)


def table_seconds(count: int) -> float:
    mappings = rules(count)
    start = time.process_time()
    compile_mappings(mappings)
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for line in lines(options.messages):
        found[line.name] = measured(line, options.rounds, options.messages)
        if not options.json:
            states, columns = found[line.name].values()
            budget = f"{BUDGETS[line.name]:>8}" if line.name in BUDGETS else ""
            print(f"{line.name:32} {states:7.0f} {columns:7.0f} {budget}", flush=True)
    others = dict(digests(options.messages, options.rounds))
    others["the scalar library, mixed mapping"] = scalar_cost(MIXED, options.rounds)
    seconds = table_seconds(5_000)
    load = os.getloadavg()[0]
    if options.json:
        print(json.dumps({"mapped": found, "others": others, "tables": seconds, "load": load}))
    else:
        for name, value in others.items():
            print(f"{name:32} {value:7.0f}")
        print(f"tables of 5,000 rules: {seconds:.2f} s; load of the machine {load:.1f}")
    return 0 if all(found[name]["states"] <= most for name, most in BUDGETS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
