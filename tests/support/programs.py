"""Programs that tests run to their end."""

from __future__ import annotations

import subprocess
import sys
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


def in_python(code: str, *arguments: str | Path, **given: Any) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of this code in a Python that has imported nothing yet."""
    done = ended(sys.executable, "-c", code, *arguments, **given)
    return done.returncode, done.stdout, done.stderr


def printed_in_python(code: str, *arguments: str | Path, **given: Any) -> str:
    """What this code prints in such a Python, which must end with 0."""
    return output_of(sys.executable, "-c", code, *arguments, **given)
