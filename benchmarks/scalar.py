"""What `Transform.apply` costs on subjects of four tokens; fails above the budget.

Run: python benchmarks/scalar.py [--json]

CPU time, so that other work on the machine hardly shows: the best of several rounds over 1,000
different subjects, for each kind of destination and on average.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from nats_transform import Transform

BUDGET_MICROSECONDS = 3.0
ROUNDS = 15
SUBJECTS = [f"orders.eu-{n % 7}.customer{n}.{n * 7919 % 1000:06}" for n in range(1000)]
DESTINATIONS = {
    "literal": ("orders.*.*.*", "orders.all"),
    "reorder": ("orders.*.*.*", "orders.$3.{{wildcard(1)}}.$2"),
    "tail": ("orders.>", "archive.orders.>"),
    "partition": ("orders.*.*.*", "orders.{{partition(64,1,2)}}.$1.$2"),
    "split": ("orders.*.*.*", "orders.{{split(1,-)}}.$2"),
    "slice": ("orders.*.*.*", "orders.$1.$2.{{slicefromright(3,3)}}"),
    "left and right": ("orders.*.*.*", "orders.{{left(2,3)}}.{{right(3,2)}}"),
}


def cost(transform: Transform) -> float:
    """Microseconds for one subject."""
    best = float("inf")
    apply = transform.apply
    for _ in range(ROUNDS):
        start = time.process_time_ns()
        for subject in SUBJECTS:
            apply(subject)
        best = min(best, (time.process_time_ns() - start) / len(SUBJECTS) / 1000)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    costs = {name: cost(Transform(*pair)) for name, pair in DESTINATIONS.items()}
    average = sum(costs.values()) / len(costs)
    if as_json:
        print(json.dumps({"microseconds": costs, "average": average}))
    else:
        for name, value in [*costs.items(), ("average", average)]:
            print(f"{name:15} {value:5.2f} µs")
    return 0 if average <= BUDGET_MICROSECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
