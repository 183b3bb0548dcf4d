"""`nats-transform erase`: what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import nats_transform


@pytest.mark.usefixtures("folder")
def test_scattered_sequences_are_a_short_line() -> None:
    rows = (
        {"seq": n, "subject": f"shop.{n % 2}", "ts": "2025-11-30T10:00:00Z"} for n in range(1, 1001)
    )
    Path("dump.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    nats_transform("ingest", "--stream", "S", "--jsonl", "dump.jsonl", "--warehouse", "w")
    given = ("erase", "--stream", "S", "--subject", "shop.1", "--warehouse", "w")
    _, out, _ = nats_transform(*given)
    (line,) = [line for line in out.splitlines() if "sequences" in line]
    assert line.startswith("sequences 1-1, 3-3, 5-5, ")
    assert line.endswith(", 39-39 (and 480 more), which no ingest brings back")
    _, out, _ = nats_transform(*given, "--json")
    assert len(json.loads(out)["sequences"].split()) == 500
