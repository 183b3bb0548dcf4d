"""`nats-transform audit`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from jobs.settings.warehouse import Warehouse
from nats_transform.config import load_mappings
from tests.support.archive import archive, message
from tests.support.command import nats_transform, printed, refused
from tests.support.saying import mistakes, says

MAPPING = """mappings {
  "shop.*": [{ destination: "v1.$1", weight: 50% }, { destination: "v2.$1", weight: 50% }]
  "beat": [{ destination: "pulse", weight: 20% }, { destination: "beat", weight: 0% }]
  "nobody": [{ destination: "x", weight: 40% }, { destination: "nobody", weight: 0% }]
}
"""
START = datetime(2025, 11, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streams IN as published and OUT as the mappings left it."""
    folder = tmp_path_factory.mktemp("audit")
    (folder / "mapping.conf").write_text(MAPPING)
    (folder / "plain.conf").write_text('mappings { "a": "b" }')
    mappings = load_mappings(folder / "mapping.conf")
    rows, came_out = [], []
    for seq in range(1, 2001):
        subject = f"shop.{seq % 40}" if seq % 4 else "beat"
        rows.append(message(seq, subject, START + timedelta(seconds=seq), stream="IN"))
        left = mappings.replay(subject, stream="IN", seq=seq).subject
        if left is not None:
            came_out.append(rows[-1] | {"stream": "OUT", "subject": left})
    archive(Warehouse(dir=folder / "warehouse"), rows + came_out)
    return folder


@pytest.fixture
def audit(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)

    def audit(stream: str, *args: str, fails: bool = False) -> tuple[int, str] | str:
        line = ("audit", "--stream", stream, "--mapping", "mapping.conf", *args)
        if fails:
            return refused(*line)
        code, out, err = nats_transform(*line)
        assert err == ""
        return code, out

    return audit


def test_keys_are_told_in_text(audit) -> None:
    code, out = audit("IN", "--tolerance", "10", "--key", "1")
    assert code == 0
    assert "IN: within, 2,000 messages, rehearsal by replay" in out
    assert re.search(r"shop\.\*: 3\d of 30 values of wildcard 1 went to more than one dest", out)
    assert "no keys" in audit("IN", "--key", "2")[1]


def test_a_mapping_without_messages_says_so(audit) -> None:
    _, out = audit("OUT", "--observed")
    assert "nobody: nothing to audit, 0 messages" in out
    assert out.split("nobody: nothing to audit")[1].strip().splitlines()[1:2] != []
    assert "  no message was counted\n" in out


def test_what_the_notes_advise_can_be_done(audit) -> None:
    observed = partial(audit, "OUT", "--observed", "--tolerance", "8")
    _, out = observed()
    assert "beat: undecided" in out
    assert "the archive can hold the messages of only one destination" in out
    assert all(option in out for option in ("--source-stream", "--published", "--publisher"))
    assert "beat: within, 500 messages" in observed("--published", "beat", "500")[1]
    code, out = observed("--published", "beat", "5")
    assert code == 1
    assert re.search(r"\d+ of \d+ stored messages were not published to the mapping", out)
    _, out = observed("--source-stream", "IN")
    assert "beat: within, 500 messages" in out
    assert "--publisher" not in out
    told = "may have come from more than one destination"
    assert told in observed("--publisher", "v2.>")[1]
    told = "the archive holds no message of destination v2.$1 of shop.*"
    assert told in observed("--captured", "v1.>")[1]


@pytest.mark.parametrize(
    ("args", "codes"),
    [
        (("--tolerance", "10"), (0, 0, 1, 0)),  # of one mapping there is no message
        (("--tolerance", "0.5"), (0, 1, 1, 0)),
        (("--mapping", "plain.conf"), (1, 1, 1, 0)),
        (("--mapping", "plain.conf", "--allow-nothing"), (0, 0, 1, 0)),
    ],
    ids=["within", "undecided", "nothing", "nothing allowed"],
)
def test_what_fails_can_be_chosen(audit, args: tuple[str, ...], codes: tuple[int, ...]) -> None:
    levels = ("outside", "undecided", "nothing", "never")
    assert codes == tuple(audit("IN", *args, "--fail-on", level)[0] for level in levels)


def test_a_ramp_is_audited_stage_by_stage(audit, folder: Path) -> None:
    (folder / "later.conf").write_text(MAPPING.replace("50%", "10%", 1).replace("50%", "90%", 1))
    moments = [START + timedelta(seconds=seconds) for seconds in (1000, 1500)]
    half, later = (moment.isoformat() for moment in moments)
    args = ("OUT", "--observed", "--tolerance", "20", "--source-stream", "IN")
    code, out = audit(*args, "--in-force", f"{half}=mapping.conf")
    assert code == 0
    assert "2025-11-30 00:16" in out
    in_force = ("--in-force", f"{half}=later.conf", "--in-force", f"{later}=mapping.conf")
    code, out = audit(*args, *in_force)
    stages = re.findall(r"^  \S.* version \w{12}  (\w+) +([\d,]+) messages$", out, re.MULTILINE)
    # Half of the 20 % of beat is its tolerance, which takes more messages than the last stage has.
    assert [verdict for verdict, _ in stages] == ["within", "outside", "undecided"]
    assert "shop.* from 2025-11-30 00:16 on: outside" in out
    assert code == 1
    # The window leaves the stage out that was never in force.
    assert audit(*args, "--until", half)[0] == 0


def test_moments_of_git(audit, folder: Path) -> None:
    config = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")

    def git(*args: str, seconds: int = 0) -> None:
        when = (START + timedelta(seconds=seconds)).isoformat()
        environment = os.environ | {"GIT_COMMITTER_DATE": when, "GIT_AUTHOR_DATE": when}
        subprocess.run(["git", *config, *args], cwd=folder, check=True, env=environment)

    args = ("OUT", "--mapping", "history.conf", "--in-force", "git")
    args += ("--observed", "--tolerance", "10")
    changed = MAPPING.replace("50%", "40%", 1).replace("50%", "60%", 1)
    (folder / "history.conf").write_text(MAPPING)
    assert says(audit(*args, fails=True), "git-unreadable")
    git("init", "--quiet")
    assert "does not have any commits yet" in audit(*args, fails=True)
    git("add", "history.conf")
    git("commit", "--quiet", "-m", "one")
    (folder / "history.conf").write_text(changed)
    assert says(audit(*args, fails=True), "git-uncommitted")
    (folder / "history.conf").write_text(MAPPING + "# only a comment\n")
    git("commit", "--quiet", "-am", "two", seconds=500)
    (folder / "history.conf").write_text(changed)
    git("commit", "--quiet", "-am", "three", seconds=1000)
    _, out = audit(*args)
    assert len(re.findall(r" version \w{12} ", out)) == 2
    assert "  2025-11-30 00:16 to ...  version" in out


@pytest.mark.parametrize(("args", "said"), mistakes("audit"))
def test_times_that_cannot_be_are_one_line(audit, args: str, said: str) -> None:
    assert re.search(said, audit("OUT", "--observed", *args.split(), fails=True))


def test_a_plan_from_the_streams_own_traffic(folder: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    command = ("plan-canary", "--stream", "IN", "--mapping", "mapping.conf")
    out = printed(*command, "--report", "canary.html")
    assert "shop.*: 1,500.0 messages per hour" in out
    assert "never seen" not in out
    assert re.search(
        r"^     2 %    98 %    10,764 +7\.2 h +7\.2 h +7\.2 h  Mon 00:00$", out, re.MULTILINE
    )
    assert "has no messages for 167 of a week's 168 hours" in out
    assert "<svg" in (folder / "canary.html").read_text()
    found = json.loads(nats_transform(*command, "--json", "--share", "2")[1])
    rules = {rule["source"]: rule for rule in found["rules"]}
    assert rules["shop.*"]["seen"] == 1500
    assert [canary["messages"] for canary in rules["beat"]["canaries"]] == [10_764]
    assert len(rules["beat"]["canaries"][0]["hours"]) == 168
    more = (*command, "--share", "2", "--by", "hour", "--hours", "24", "--destinations", "5")
    out = nats_transform(*more, "--clusters", "6")[1]
    assert "a verdict on each hour of 24 hours" in out
    assert "24.5 + 24.5 + 24.5 + 24.5 %" in out
    told = refused("plan-canary", "--stream", "OUT", "--mapping", "plain.conf")
    assert says(told, "canary-without-messages", stream="OUT", mapping="plain.conf")
