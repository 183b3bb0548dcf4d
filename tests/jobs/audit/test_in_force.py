"""The history of a mapping file is read from the user's repositories only."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobs.audit.in_force import periods_of
from jobs.audit.settings import AuditError, AuditSettings


def test_a_repository_among_the_files_of_another_one(tmp_path: Path) -> None:
    """A clone brings it as plain files, and its settings name a program that git would start."""
    folder, trace = tmp_path / "config", tmp_path / "trace"
    evil = folder / "evil"
    subprocess.run(["git", "init", "--quiet", "--bare", folder], check=True)
    evil.write_text(f"#!/bin/sh\necho run > '{trace}'\n")
    evil.chmod(0o755)
    for name, value in (("bare", "false"), ("worktree", folder), ("fsmonitor", evil)):
        subprocess.run(["git", "config", f"core.{name}", value], cwd=folder, check=True)
    (folder / "server.conf").write_text('mappings { "a": "b" }')
    settings = AuditSettings(stream="S", mapping=folder / "server.conf", in_force="git")
    with pytest.raises(AuditError, match=r"git cannot read the history .* bare") as told:
        periods_of(settings)
    assert "\n" not in str(told.value)
    assert not trace.exists()
