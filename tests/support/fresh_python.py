"""Code in a fresh Python: what a process imports, and how it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def fresh_python(
    code: str, *args: object, flags: Sequence[str] = (), **more: Any
) -> subprocess.CompletedProcess[str]:
    """How a process ended that ran this code.

    Args:
        code: what it runs.
        args: its `sys.argv`, behind the first.
        flags: those of Python itself.
        more: for `subprocess.run`.
    """
    command = [sys.executable, *flags, "-c", code, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, **more)


def done_by(code: str, *args: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """The same of one that ends with 0."""
    done = fresh_python(code, *args, **more)
    assert done.returncode == 0, done.stderr[-2000:]
    return done
