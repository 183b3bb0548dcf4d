"""`nats-transform verify`: whether a step of a plan is in force."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import options, project
from cli.output import finish, print_line, quiet_work

if TYPE_CHECKING:
    from jobs.jetstream.connection import NatsSettings
    from jobs.verify import VerifyResult


@project.command(
    "verify",
    short_help="Look whether a step of a plan is in force.",
    epilog="Exit codes: 0 the step is in force; 1 it is not, and each line says what differs; "
    "2 wrong usage, a plan that was edited, or a step that cannot be seen.",
)
@options.file(
    "--plan", "The folder that `nats-transform plan` wrote.", metavar="DIR", required=True
)
@click.option(
    "--step",
    required=True,
    type=int,
    metavar="N",
    help="The last step that should be in force; 0 if none should be.",
)
@options.file("--config", "The configuration that the servers have, for the permissions of users.")
@click.option(
    "--monitor",
    metavar="URL",
    help="The monitoring port of a server, such as http://localhost:8222, for the mappings. "
    "Without it they are asked for through --server, which answers the system account only.",
)
@options.server(instead_of=("config", "monitor"))
@options.json("Print one JSON document: step, differences, seen, unseen.")
def command(
    plan: Path,
    step: int,
    config: Path | None,
    monitor: str | None,
    server: NatsSettings | None,
    as_json: bool,
) -> None:
    """Look at servers, and say whether a step and all before it are in force, and none after it.

    Nothing is published, and nothing is changed.

    \b
    Examples:
      nats-transform verify --plan plan/ --step 1 --server nats://localhost:4222
      nats-transform verify --plan plan/ --step 3 --config server.conf
      nats-transform verify --plan plan/ --step 4 --monitor http://localhost:8222
    """
    if server is None and config is None and monitor is None:
        raise click.UsageError("nothing to look at: give --server, --config or --monitor")
    with quiet_work():
        from jobs.verify import VerifySettings, verify

        settings = VerifySettings(plan=plan, step=step, nats=server, config=config, monitor=monitor)
        result = verify(settings)
    finish(result, as_json, _print, "missing")


def _print(result: VerifyResult) -> None:
    for line in result.differences:
        print_line(line)
    if not result.differences:
        print_line(f"step {result.step} is in force: {', '.join(result.seen)}")
    if result.unseen:
        print_line(f"not looked at: {', '.join(result.unseen)}")
