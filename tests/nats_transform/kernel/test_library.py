"""The compiled library: how it is made, and what is said where there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nats_transform.errors import KernelUnavailable
from nats_transform.kernel import build
from nats_transform.kernel.library import library
from tests.support.programs import printed_in_python
from tests.support.refused import refused

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("tag", "target"),
    [
        ("manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17"),
        ("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28"),
        ("musllinux_1_2_x86_64", "x86_64-linux-musl"),
        ("macosx_11_0_arm64", "aarch64-macos.11.0"),
        ("macosx_12_0_x86_64", "x86_64-macos.12.0"),
    ],
)
def test_targets(tag: str, target: str) -> None:
    assert build.zig_target(tag) == target


@pytest.mark.parametrize("tag", ["win_amd64", "linux_x86_64", "manylinux_2_17", "any"])
def test_other_platforms_are_refused(tag: str) -> None:
    with pytest.raises(build.NotCompiled, match=f"unknown platform '{tag}'"):
        build.zig_target(tag)


def test_missing_library(tmp_path: Path) -> None:
    with refused(KernelUnavailable, "kernel-missing"):
        library(tmp_path)


def test_damaged_library(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_text("This is no library.")
    with refused(KernelUnavailable, "kernel-unloadable"):
        library(tmp_path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What is needed to build, in a path with a space."""
    copy, unneeded = tmp_path / "a b", shutil.ignore_patterns("*.so", "*.pyc")
    shutil.copytree(ROOT / "nats_transform", copy / "nats_transform", ignore=unneeded)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def build_in_place(checkout: Path, path: str) -> subprocess.CompletedProcess[str]:
    """Builds with no other environment than a PATH and a home that must stay empty."""
    home = checkout / "home"
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=checkout,
        env={"PATH": path, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_builds_without_a_system_compiler(checkout: Path) -> None:
    """And a library of other source files is refused until it is built again."""
    done = build_in_place(checkout, "/nonexistent")
    assert done.returncode == 0, done.stderr
    assert list((checkout / "home").iterdir()) == []
    built = checkout / "nats_transform/kernel"
    assert library(built).nats_source().decode() == build.source_digest(
        ROOT / "nats_transform/kernel"
    )
    older = shutil.copytree(built, checkout / "older")
    with (older / "digest.c").open("a") as file:
        file.write("/* changed */\n")
    with refused(KernelUnavailable, "kernel-of-other-sources"):
        library(older)


def test_works_from_a_zip_file(tmp_path: Path) -> None:
    """As Spark ships packages to workers that do not have them installed."""
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", ROOT, "nats_transform")
    script = """
import sys
sys.path.insert(0, sys.argv[1])
import pyarrow as pa
from nats_transform import AccountMappings, Destination, Mapping, kernel

assert kernel.__file__.startswith(sys.argv[1])
mappings = AccountMappings([Mapping("a.*", [Destination("b.$1")])])
print(kernel.compile_mappings(mappings).apply(pa.array(["a.x"]))["mapped_subject"][0].as_py())
"""
    assert printed_in_python(script, packed, cwd=tmp_path) == "b'b.x'\n"


@pytest.mark.slow
def test_a_failed_build_is_not_ignored(checkout: Path) -> None:
    with (checkout / "nats_transform/kernel/digest.c").open("a") as file:
        file.write("this is no C\n")
    done = build_in_place(checkout, "/nonexistent")
    assert done.returncode != 0
    assert "kernel could not be compiled for" in done.stderr
    assert not (checkout / "nats_transform/kernel/kernel.so").exists()
