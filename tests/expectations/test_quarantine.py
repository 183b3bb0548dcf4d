"""The rows that a suite of a user puts into quarantine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from expectations.great import suite_of
from expectations.quarantine import Sieve

ENTRY = {
    "type": "expect_column_values_to_not_match_regex",
    "kwargs": {"column": "subject", "regex": "^bad"},
}


def test_tasks_beside_each_other_find_their_own_rows() -> None:
    """The tasks of a process are threads, and Great Expectations is not made for them."""
    sieve = Sieve([suite_of("partners", [ENTRY])])
    parts = [["bad" if row % 7 == n % 7 else "good" for row in range(50 + n)] for n in range(40)]
    reason = f"partners: {ENTRY['type']}"
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(sieve, (pa.record_batch({"subject": part}) for part in parts)))
    assert found == [[reason if word == "bad" else None for word in part] for part in parts]
