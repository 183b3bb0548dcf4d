"""Programs that tests run to their end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
"""The folder of the programs that our packages bring."""
SCRIPT = str(BIN / "nats-transform")


def ended(*command: str | bytes | Path, **given: Any) -> subprocess.CompletedProcess[Any]:
    """What comes of a program, its output as text; what is given goes to `subprocess.run`."""
    pipe = subprocess.PIPE
    return subprocess.run(command, **{"stdout": pipe, "stderr": pipe, "text": True} | given)


def output_of(*command: str | bytes | Path, **given: Any) -> Any:
    """What a program prints that ends with 0."""
    done = ended(*command, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_python(
    code: str, *arguments: object, flags: Sequence[str] = (), **given: Any
) -> subprocess.CompletedProcess[Any]:
    """What comes of this code in a Python that has imported nothing yet.

    Args:
        code: the code.
        arguments: its `sys.argv`, behind the first.
        flags: those of Python itself.
        given: for `subprocess.run`.
    """
    return ended(sys.executable, *flags, "-c", code, *map(str, arguments), **given)


def printed_in_python(code: str, *arguments: object, **given: Any) -> str:
    """What this code prints in such a Python, which must end with 0."""
    return output_of(sys.executable, "-c", code, *map(str, arguments), **given)
