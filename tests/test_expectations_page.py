"""docs/expectations.md, in a project of Great Expectations that is not ours."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command import printed
from tests.support.configs import SHOP
from tests.support.jobs import dumped
from tests.support.programs import printed_in_python

PAGE = (Path(__file__).parents[1] / "docs" / "expectations.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
AGAIN = """
import sys
import great_expectations as gx
import nats_transform.great_expectations
import pandas as pd

checkpoint = gx.get_context(mode="file", project_root_dir="quality").checkpoints.get("canary")
for file in sys.argv[1:]:
    frame = pd.DataFrame({"file_path": [file], "record_count": 400})
    print(checkpoint.run(batch_parameters={"dataframe": frame}).success)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a warehouse and the mapping that wrote it."""
    folder = tmp_path_factory.mktemp("foreign")
    rows = [
        {"seq": seq, "time": "2026-03-01T10:00:00Z", "subject": subject, "data": "x"}
        for seq in range(1, 401)
        for subject in [f"paid.{seq % 7}" if seq % 4 == 0 else f"orders.eu.{seq}"]
    ]
    dump = dumped(folder / "dump.jsonl", rows)
    (folder / "mapping.conf").write_text(SHOP)
    where = ("--stream", "SHOP", "--warehouse", str(folder / "warehouse"))
    printed("ingest", *where, "--jsonl", str(dump))
    printed("transform", *where, "--mapping", str(folder / "mapping.conf"))
    return folder


@pytest.mark.slow
def test_the_page_works_in_a_project_that_is_not_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec("".join(SNIPPETS), names)  # noqa: S102 - it is our own page
    assert capsys.readouterr().out == "True\nTrue True\n"
    names["catalog"].close()
    suite = json.loads((folder / "quality/gx/expectations/canary.json").read_text("utf-8"))
    assert {one["type"] for one in suite["expectations"]} == {
        "expect_weights_to_hold",
        "expect_every_outcome_to_agree",
        "expect_keys_to_keep_their_partition",
    }
    # Another process knows the suite by its JSON, and finds what is wrong with another file.
    (good,) = (folder / "warehouse").rglob("nats/transformed_messages/data/**/*.parquet")
    rows = pq.read_table(good, partitioning=None)
    place = rows.schema.get_field_index("mapped_subject")
    moved = pa.array(["paid.9.x"] * len(rows))
    pq.write_table(rows.set_column(place, rows.schema.field(place), moved), folder / "wrong")
    quiet = os.environ | {"PYTHONWARNINGS": "ignore"}
    assert printed_in_python(AGAIN, good, folder / "wrong", env=quiet).split() == ["True", "False"]
    assert list((folder / "quality/gx/uncommitted/data_docs").rglob("*.html"))
