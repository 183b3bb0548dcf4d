"""Runs every fault of the table in a time box and prints what was injected and what held."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections import Counter
from typing import Any

import pytest

from tests.faults import FAULTS, Fault


class Seen:
    """What came of each test so far, by its id, so that a run that is stopped is not lost."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.workers: list[int] = []

    def pytest_testnodeready(self, node: Any) -> None:  # of pytest-xdist
        self.workers.append(node.gateway._io.popen.pid)

    def stop(self, *_: object) -> None:
        """Ctrl-C for each worker: pytest ends there what its tests have started."""
        if not self.workers:
            raise KeyboardInterrupt
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGINT)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.outcomes[nodeid] = "not ended"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome
        if report.failed:
            print(f"\nfailed: {report.nodeid}\n{report.longreprtext[-3000:]}", flush=True)
        elif report.when == "teardown" and self.outcomes[report.nodeid] == "not ended":
            self.outcomes[report.nodeid] = "passed"

    def named(self, outcome: str) -> list[str]:
        """The tests with this outcome."""
        return sorted(test for test, found in self.outcomes.items() if found == outcome)

    def counts(self, fault: Fault) -> Counter[str]:
        """How many tests of a fault have each outcome; one without any counts as not run."""
        found: Counter[str] = Counter()
        for test in fault.tests:
            cases = [one for name, one in self.outcomes.items() if name.partition("[")[0] == test]
            found.update(cases or ["not run"])
        return found


def verdict(counts: Counter[str]) -> str:
    """A word or two for a row."""
    for outcome in ("failed", "not ended", "not run"):
        if counts[outcome]:
            return "BROKEN" if outcome == "failed" else outcome
    return "held" if counts["passed"] else "skipped"


def main() -> None:
    """Exits with 1 if a promise did not hold or a fault was not injected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="the time box")
    parser.add_argument("-k", dest="only", default="", help="faults whose name has this text")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if given.only in fault.name]
    tests = sorted({test for fault in chosen for test in fault.tests})
    seen = Seen()
    # Workers inherit that a shell in the background ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, seen.stop)
    signal.setitimer(signal.ITIMER_REAL, given.minutes * 60)
    pytest.main(["-q", "-n", "2", "--dist", "worksteal", *tests], plugins=[seen])
    signal.setitimer(signal.ITIMER_REAL, 0)
    verdicts = {fault.name: verdict(seen.counts(fault)) for fault in chosen}
    width = max(map(len, verdicts))
    print()
    for fault in chosen:
        print(f"{fault.name:{width}}  {verdicts[fault.name]:9}  {fault.promise}")
    for outcome in ("failed", "not ended"):
        for test in seen.named(outcome):
            print(f"\n{outcome}: {test}", end="")
    held = sum(one == "held" for one in verdicts.values())
    print(f"\n\ninjected {len(chosen)}, held {held}")
    sys.exit(0 if all(one in ("held", "skipped") for one in verdicts.values()) else 1)


if __name__ == "__main__":
    main()
