"""What a command imports before it works."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What takes long to import, and what small work on an archive does without.
SLOW = ("pandas", "dagster", "great_expectations", "scipy", "matplotlib")
LOOK = """
import sys
from jobs.cold import without_pandas
without_pandas()
import {module}
print([name for name in {slow} if name in sys.modules])
import pyarrow as pa
print(pa.table({{"a": [1, None]}}).to_pandas()["a"].sum())
"""


@pytest.mark.parametrize("module", ["jobs.ingest", "jobs.transform"])
def test_small_work_imports_little_and_pandas_still_works(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK.format(module=module, slow=SLOW)],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n1.0\n", done.stderr
