"""The command line, called in this process."""

from __future__ import annotations

from click.testing import CliRunner

from cli.main import main


def nats_transform(*args: str, input: str | bytes | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `nats-transform` with these arguments."""
    result = CliRunner().invoke(main, args, input=input)
    return result.exit_code, result.stdout, result.stderr
