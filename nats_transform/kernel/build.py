"""Compiles the C libraries of this project, with the C compiler in the wheel `ziglang`.

`setup.py` does this when the project is installed, for any platform, so a machine needs no compiler
of its own. Only the standard library is imported, because nothing else is installed at that time.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path

LIBRARIES = {"kernel": "nats_transform/kernel", "backup": "nats_transform/backup"}
"""The folder of the sources of each library, in a checkout."""
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}


class NotCompiled(Exception):
    """The compiler is missing or failed; the text says what to do."""


def source_digest(folder: Traversable) -> str:
    """A hash of the files that a library is made from."""
    sources = {file.name: file for file in folder.iterdir() if file.name.endswith((".c", ".h"))}
    digest = hashlib.sha256()
    for name in sorted(sources):
        digest.update(sources[name].read_bytes())
    return digest.hexdigest()


def platform_tag() -> str:
    """The platform of this machine, as the name of a wheel says it: the oldest that will do."""
    machine = platform.machine().lower()
    if sys.platform == "darwin":
        return f"macosx_11_0_{machine}"
    if sys.platform == "linux":
        is_glibc = platform.libc_ver()[0] == "glibc"
        return f"{'manylinux_2_17' if is_glibc else 'musllinux_1_2'}_{machine}"
    raise NotCompiled(f"the kernel runs on Linux and macOS, not on {sys.platform}")


def zig_target(tag: str) -> str:
    """What the compiler calls the platform of a wheel: manylinux, musllinux or macosx.

    >>> zig_target("manylinux_2_17_x86_64")
    'x86_64-linux-gnu.2.17'
    """
    match = re.fullmatch(r"(manylinux|musllinux|macosx)_(\d+)_(\d+)_(\w+)", tag)
    if not match:
        raise NotCompiled(
            f"unknown platform {tag!r}: give manylinux_2_17_x86_64, macosx_11_0_arm64, ..."
        )
    system, major, minor, machine = match.groups()
    machine = _MACHINES.get(machine, machine)
    if system == "manylinux":
        return f"{machine}-linux-gnu.{major}.{minor}"
    return f"{machine}-linux-musl" if system == "musllinux" else f"{machine}-macos.{major}.{minor}"


def command(output: Path, folder: Path, flags: Sequence[str]) -> list[str]:
    """The arguments of a C compiler that makes a library from the sources in a folder."""
    return [
        *("-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"),
        *flags,
        f'-DSOURCE_DIGEST="{source_digest(folder)}"',
        *(str(source) for source in sorted(folder.glob("*.c"))),
        *("-o", str(output)),
    ]


def compile_library(output: Path, folder: Path, scratch: Path, tag: str | None = None) -> None:
    """Makes a library.

    Args:
        output: the file to make.
        folder: the folder with the sources.
        scratch: a folder for the files of the compiler, so that it writes nowhere else.
        tag: the platform, as in the name of a wheel; by default that of this machine.

    Raises:
        NotCompiled: the compiler is missing or failed.
    """
    target = ("-target", zig_target(tag or platform_tag()))
    flags = ["-O3", "-s", "-fomit-frame-pointer"]  # zig keeps it, which takes 4 % longer
    if "macos" in target[1]:  # its name there would be where it was built
        flags.append(f"-Wl,-install_name,@rpath/{output.name}")
    scratch.mkdir(parents=True, exist_ok=True)
    cache = str(scratch.resolve())
    done = subprocess.run(  # noqa: S603 - our own compiler and arguments
        [sys.executable, "-m", "ziglang", "cc", *target, *command(output, folder, flags)],
        env=os.environ | {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not output.exists():
        cure = "install the package ziglang" if "No module named" in done.stderr else "see above"
        raise NotCompiled(
            f"{done.stderr}\n{folder.name} could not be compiled for {target[1]}: {cure}"
        )
