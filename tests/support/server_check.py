"""What nats-server says of a configuration without running it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from jobs.jetstream.process import nats_server_binary


def checked(config: Path) -> tuple[bool, str]:
    """Whether `nats-server -t` takes it, and all that it says; it sees no variables of ours."""
    command = [nats_server_binary(), "-t", "-c", str(config)]
    run = subprocess.run(command, capture_output=True, env={})
    return run.returncode == 0, (run.stdout + run.stderr).decode("utf-8", "replace")
