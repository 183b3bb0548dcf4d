"""`nats-transform export`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command import nats_transform, refused
from tests.support.exporting import Exporting, consumer
from tests.support.saying import says


def test_export(tmp_path: Path) -> None:
    made = Exporting(tmp_path, {"d": [{"subject": "b.x"}]}, d=consumer("d"), all=consumer())
    common = ("export", "--stream", "S", "--warehouse", str(tmp_path / "warehouse"))
    common += ("--original", str(made.backup))
    code, out, _ = nats_transform(*common, "--untransformed", "--to-backup", str(tmp_path / "back"))
    assert code == 0
    assert out.splitlines() == [
        f"{tmp_path}/back: stream S with 5 messages",
        "sequences 11 to 25, 10 of them without a message",
        "subjects a.*, b.*, c.*, d",
        "consumers all, d",
        "digest " + out.split()[-1],
    ]
    given = ("--mapping", str(made.mapping), "--to-backup", str(tmp_path / "new"))
    code, out, _ = nats_transform(*common, *given, "--json")
    document = json.loads(out)
    assert (code, document["messages"], document["consumers"]) == (1, 5, ["all"])
    assert [finding["code"] for finding in document["findings"]] == ["consumer"]
    error = refused(*common, *given)
    assert says(error, "new-backup-exists", place=f"{tmp_path}/new")
