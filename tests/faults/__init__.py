"""The faults that are really injected, what is promised of each, and the tests that do it.

`make faults` runs them all and prints the table with what held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Fault:
    """One row of the table.

    Attributes:
        name: what is done to a running system.
        promise: what must hold then and after the next run.
        tests: that do it and look; ids as pytest has them, without parameters.
    """

    name: str
    promise: str
    tests: tuple[str, ...]


def _faults() -> Iterator[Fault]:
    table = yaml.safe_load((Path(__file__).parent / "faults.yaml").read_text("utf-8"))
    for name, row in table.items():
        promise = row.pop("promise")
        tests = (f"{file}::{test}" for file, names in row.items() for test in names)
        yield Fault(name, promise, tuple(tests))


FAULTS = tuple(_faults())
