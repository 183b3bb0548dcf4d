"""No read or write outside of a buffer, and no undefined behaviour: the own tests of the kernel
and of the library for backups, in builds that end the process where there is one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nats_transform.kernel import build

ROOT = Path(__file__).parents[3]
TESTS = {
    "kernel": ["cases", "differential", "arrays", "digest", "proof"],
    "backup": ["s2", "archive"],
}
FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
Build = Callable[[Path], dict[str, str]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the kernel's tests need, to be run with another library."""
    tests = ("tests/cases", *(f"tests/nats_transform/{name}" for name in TESTS))
    for name in ("nats_transform", "jobs", "tests/support", "tests/faults", *tests):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.pyc"))
    for name in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def undefined_behaviour(checkout: Path) -> dict[str, str]:
    """Builds with the compiler that we install: the process ends with an illegal instruction."""
    flags = ("-fsanitize=undefined", "-fsanitize-trap=undefined", *FLAGS)
    compile_with([sys.executable, "-m", "ziglang", "cc"], checkout, flags)
    return {}


def addresses(checkout: Path) -> dict[str, str]:
    """Builds with a compiler of the system, whose library must be loaded first."""
    compiler = next((name for name in ("gcc", "clang") if shutil.which(name)), None)
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs gcc or clang on Linux for the address sanitizer")
    flags = ("-fsanitize=address,undefined", *FLAGS)
    compile_with([compiler], checkout, [*flags, *["-shared-libasan"] * (compiler == "clang")])
    names = {"gcc": "libasan.so", "clang": "libclang_rt.asan-x86_64.so"}
    asked = [compiler, f"-print-file-name={names[compiler]}"]
    return {
        "LD_PRELOAD": subprocess.check_output(asked, text=True).strip(),
        # Python and Arrow leave memory to the end of the process.
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=99",
        # Blocks of their own, not pieces of a pool.
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }


def compile_with(compiler: list[str], checkout: Path, flags: tuple[str, ...] | list[str]) -> None:
    cache = str(checkout / "cache")
    for name, path in build.LIBRARIES.items():
        folder = checkout / path
        subprocess.run(
            [*compiler, *build.command(folder / f"{name}.so", folder, flags)],
            env=os.environ | {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
            check=True,
        )


def run_tests(
    checkout: Path, library: str, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    files = [f"tests/nats_transform/{library}/test_{name}.py" for name in TESTS[library]]
    return subprocess.run(
        [
            *(sys.executable, "-m", "tests.nats_transform.kernel.sanitized", "-q", "-x"),
            *("-p", "no:cacheprovider", "-m", "not slow", *arguments, *files),
        ],
        cwd=checkout,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("library", TESTS)
@pytest.mark.parametrize("sanitizers", [undefined_behaviour, addresses])
def test_clean(checkout: Path, sanitizers: Build, library: str, seed: int) -> None:
    done = run_tests(checkout, library, sanitizers(checkout), "--seed", str(seed))
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert " passed" in done.stdout


FAULTS = {
    "overflow-of-a-number": (
        undefined_behaviour,
        "kernel/transform.c",
        "uint8_t digits[20];\n    int size = 0;",
        "uint8_t digits[20];\n    int size = INT32_MAX; size++; size = 0;",
    ),
    "write-behind-the-result": (
        addresses,
        "kernel/transform.c",
        "out->offsets[row + 1] = (int32_t)out->used;",
        "out->offsets[row + 2] = out->offsets[row + 1] = (int32_t)out->used;",
    ),
    "read-behind-a-subject": (
        addresses,
        "kernel/transform.c",
        "(size_t)(subject.size - start));",
        "(size_t)(subject.size - start + 1));",
    ),
    "unpack-behind-a-block": (
        addresses,
        "backup/s2.c",
        "offset > done || count > length - done) return",
        "offset > done) return",
    ),
    "read-behind-a-chunk": (
        addresses,
        "backup/s2.c",
        "if (size - at < bytes) return false;\n        int64_t found",
        "int64_t found",
    ),
    "read-behind-an-entry": (
        addresses,
        "backup/archive.c",
        "if (*at >= size) return 0;",
        "if (*at > size) return 0;",
    ),
}


@pytest.mark.parametrize(("sanitizers", "file", "right", "wrong"), FAULTS.values(), ids=FAULTS)
def test_faults_are_seen(
    checkout: Path, sanitizers: Build, file: str, right: str, wrong: str
) -> None:
    """What the tests above would say if there was something to say."""
    source = checkout / "nats_transform" / file
    assert right in source.read_text()
    source.write_text(source.read_text().replace(right, wrong))
    done = run_tests(checkout, file.partition("/")[0], sanitizers(checkout))
    # An illegal instruction, or ASan's code.
    assert done.returncode in (-4, 99), done.stdout[-3000:]
