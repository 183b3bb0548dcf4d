"""What scripts/release.sh checks before it makes a release."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.programs import ended, output_of

SCRIPT = Path(__file__).parents[1] / "scripts" / "release.sh"
GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository that is ready for the release of 1.2.0."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("## 1.2.0 (2026-12-01)\n\n- new\n\n## 1.1.0\n\n- old\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *args: str) -> str:
    return output_of(*GIT, *args, cwd=folder)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "change")


def release(
    folder: Path, *args: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return ended("sh", "scripts/release.sh", *args, cwd=folder, env=env)


def test_a_dry_run_says_what_it_would_do_and_does_nothing(checkout: Path) -> None:
    done = release(checkout, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "python -m build --no-isolation --outdir dist ." in done.stdout
    for platform in ("manylinux_2_17_x86_64", "manylinux_2_17_aarch64", "macosx_11_0_arm64"):
        assert f"--plat-name={platform} dist/nats_transform-1.2.0.tar.gz" in done.stdout
    assert "git tag --annotate v1.2.0 --cleanup=whitespace" in done.stdout
    assert "- new" in done.stdout
    assert "- old" not in done.stdout
    assert git(checkout, "tag") == ""
    assert git(checkout, "status", "--porcelain") == ""


def test_the_tag_has_the_whole_section_with_its_titles(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("## 1.2.0\n\n### New\n\n- new\n\n## 1.1.0\n\n- old\n")
    for name in ("scripts/sbom.sh", "bin/python", "bin/docker"):
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text('#!/bin/sh\necho "$0 $*"\n')
        (checkout / name).chmod(0o755)
    git(checkout, "config", "user.name", "Ada")
    git(checkout, "config", "user.email", "ada@example.com")
    commit(checkout)
    path = f"{checkout}/bin:{os.environ['PATH']}"
    done = release(checkout, env=os.environ | {"PATH": path})
    assert (done.returncode, done.stderr) == (0, "")
    assert "bin/python -m build" in done.stdout
    message = git(checkout, "tag", "--list", "--format=%(contents)", "v1.2.0")
    assert message.split() == ["nats-transform", "1.2.0", "###", "New", "-", "new"]
    assert "already" in release(checkout).stderr


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("CHANGELOG.md", "## Unreleased\n\n- new\n", "nothing under '## 1.2.0'"),
        ("CHANGELOG.md", "## 1.2.0\n\n## 1.1.0\n\n- old\n", "nothing under '## 1.2.0'"),
        ("CHANGELOG.md", "## 1.2.01\n\n- other\n", "nothing under '## 1.2.0'"),
        ("pyproject.toml", "[project]\n", "pyproject.toml has no line version"),
    ],
)
def test_refuses_what_is_not_ready(checkout: Path, file: str, text: str, told: str) -> None:
    (checkout / file).write_text(text)
    commit(checkout)
    done = release(checkout, "--dry-run")
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr


def test_refuses_uncommitted_files_and_a_tag_that_is_there(checkout: Path) -> None:
    (checkout / "new").touch()
    assert "not committed" in release(checkout, "--dry-run").stderr
    commit(checkout)
    git(checkout, "tag", "v1.2.0")
    assert "there is a tag v1.2.0 already" in release(checkout, "--dry-run").stderr
    assert release(checkout, "--dry").returncode == 1
