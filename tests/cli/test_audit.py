"""`nats-transform audit`: what it prints, and its exit codes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs.warehouse.tables import Warehouse
from nats_transform import AccountMappings
from nats_transform.config import load_mappings
from tests.support.archive import archive, message
from tests.support.command import nats_transform

pytestmark = pytest.mark.spark

MAPPING = """mappings {
  "shop.*": [{ destination: "v1.$1", weight: 50% }, { destination: "v2.$1", weight: 50% }]
  "beat": [{ destination: "pulse", weight: 20% }, { destination: "beat", weight: 0% }]
  "nobody": [{ destination: "x", weight: 40% }, { destination: "nobody", weight: 0% }]
}
"""
START = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streams IN as published and OUT as the mappings left it."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "mapping.conf").write_text(MAPPING)
    (folder / "plain.conf").write_text('mappings { "a": "b" }')
    mappings = load_mappings(folder / "mapping.conf")
    assert isinstance(mappings, AccountMappings)
    rows, came_out = [], []
    for seq in range(1, 2001):
        subject = f"shop.{seq % 40}" if seq % 4 else "beat"
        rows.append(message(seq, subject, START + timedelta(seconds=seq), stream="IN"))
        left = mappings.replay(subject, stream="IN", seq=seq).subject
        if left is not None:
            came_out.append(rows[-1] | {"stream": "OUT", "subject": left})
    archive(spark, Warehouse(dir=folder / "warehouse"), rows + came_out)
    return folder


@pytest.fixture
def audit(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)

    def audit(stream: str, *args: str) -> tuple[int, str]:
        code, out, err = nats_transform(
            "audit", "--stream", stream, "--mapping", "mapping.conf", *args
        )
        assert err == ""
        return code, out

    return audit


def test_keys_are_told_in_text(audit) -> None:
    code, out = audit("IN", "--tolerance", "10", "--key", "1")
    assert code == 0
    assert "IN: within, 2,000 messages, by replay" in out
    assert re.search(r"shop\.\*: 3\d of 30 values of wildcard 1 came to more than one dest", out)
    assert "no keys" in audit("IN", "--key", "2")[1]


def test_a_mapping_without_messages_says_so(audit) -> None:
    _, out = audit("OUT", "--observed")
    assert "nobody: nothing to audit, 0 messages" in out
    assert out.split("nobody: nothing to audit")[1].strip().splitlines()[1:2] != []
    assert "  no message was counted\n" in out


def test_what_the_notes_advise_can_be_done(audit) -> None:
    _, out = audit("OUT", "--observed", "--tolerance", "8")
    assert "beat: undecided" in out
    assert "the archive can hold the messages of one destination only" in out
    assert "--source-stream" in out
    assert "--published" in out
    assert "--publisher" in out
    _, out = audit("OUT", "--observed", "--tolerance", "8", "--published", "beat", "500")
    assert "beat: within, 500 messages" in out
    _, out = audit("OUT", "--observed", "--tolerance", "8", "--source-stream", "IN")
    assert "beat: within, 500 messages" in out
    assert "--publisher" not in out
    _, out = audit("OUT", "--observed", "--tolerance", "8", "--publisher", "v2.>")
    assert "may have come from more than one destination" in out
    _, out = audit("OUT", "--observed", "--tolerance", "8", "--captured", "v1.>")
    assert "the archive holds no message of destination v2.$1 of shop.*" in out


@pytest.mark.parametrize(
    ("args", "codes"),
    [
        (("--tolerance", "10"), (0, 0, 0, 0)),
        (("--tolerance", "0.5"), (0, 1, 1, 0)),
        (("--mapping", "plain.conf"), (0, 0, 1, 0)),
    ],
    ids=["within", "undecided", "nothing"],
)
def test_what_fails_can_be_chosen(audit, args: tuple[str, ...], codes: tuple[int, ...]) -> None:
    levels = ("outside", "undecided", "nothing", "never")
    assert codes == tuple(audit("IN", *args, "--fail-on", level)[0] for level in levels)


def test_options_of_observed_audits_need_one(folder: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    code, out, err = nats_transform(
        "audit", "--stream", "S", "--mapping", "mapping.conf", "--publisher", "a.>"
    )
    assert (code, out) == (2, "")
    assert "need an observed audit (--observed)" in err
