"""Runs every fault of the table in a time box and prints what was injected and what held."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

from tests.faults import FAULTS, Fault


def outcomes(report: Path) -> dict[str, Counter[str]]:
    """How often each test passed, failed or was skipped, by its id without parameters."""
    found: dict[str, Counter[str]] = {}
    if not report.exists():
        return found
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest's own file
        file = case.attrib["classname"].replace(".", "/") + ".py"
        name = f"{file}::{case.attrib['name'].partition('[')[0]}"
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "passed"
        found.setdefault(name, Counter())["skipped" if "skipped" in kinds else outcome] += 1
    return found


def verdict(fault: Fault, found: dict[str, Counter[str]]) -> str:
    """One word for the row."""
    counts = sum((found.get(test, Counter({"missing": 1})) for test in fault.tests), Counter())
    if counts["failed"]:
        return "BROKEN"
    if counts["missing"]:
        return "not run"
    return "held" if counts["passed"] else "skipped"


def main() -> None:
    """Exits with 1 if a promise did not hold or a fault was not injected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="the time box")
    parser.add_argument("-k", dest="only", default="", help="faults whose name has this text")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if given.only in fault.name]
    tests = sorted({test for fault in chosen for test in fault.tests})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
        command = [*pytest, f"--junitxml={report}", *tests]
        process = subprocess.Popen(command)
        try:
            process.wait(given.minutes * 60)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        found = outcomes(report)
    verdicts = {fault.name: verdict(fault, found) for fault in chosen}
    width = max(map(len, verdicts))
    print()
    for fault in chosen:
        print(f"{fault.name:{width}}  {verdicts[fault.name]:8}  {fault.promise}")
    held = sum(one == "held" for one in verdicts.values())
    print(f"\ninjected {len(chosen)}, held {held}")
    sys.exit(0 if all(one in ("held", "skipped") for one in verdicts.values()) else 1)


if __name__ == "__main__":
    main()
