"""`nats-transform verify`: whether a step of a plan is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli import options, project
from cli.output import finish, print_line, quiet_work

if TYPE_CHECKING:
    from jobs.settings.connection import NatsSettings
    from jobs.verify.run import VerifyResult


@project.command(
    "verify",
    short_help="Say whether a step of a plan is in force.",
    epilog="Exit codes: 0 the step is in force, and the next one can be taken; 1 it is not, and "
    "each line says what differs or what to wait for; "
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
@click.option(
    "--undo",
    is_flag=True,
    help="Say whether this step can be undone, and not whether the next one can be taken: "
    "consumers must have read what is taken from them.",
)
@options.several(
    "--config",
    "config",
    "FILE",
    "The configuration of a server, for permissions, exports and imports.",
    type=options.FILE,
)
@options.several(
    "--monitor",
    "monitor",
    "URL",
    "The monitoring port of a server, such as http://localhost:8222, for the mappings. Without it "
    "they are asked for through --server, which answers the system account only.",
)
@click.option(
    "--probe",
    metavar="SUBJECT",
    help="Publish messages under this subject, through each --server, to find out which mappings "
    "are in force. Reserve the subject for this: no stream stores these messages, but "
    "programs that subscribe to it get them.",
)
@options.server(instead_of=("config", "monitor"))
@options.json("Print one JSON document: step, differences, waits, seen, unseen.")
def command(server: NatsSettings | None, as_json: bool, **given: Any) -> None:
    """Look at servers, and say whether a step and all before it are in force, and none after it.

    Nothing is changed, and without --probe nothing is published.

    \b
    Examples:
      nats-transform verify --plan plan/ --step 1 --server nats://localhost:4222
      nats-transform verify --plan plan/ --step 3 --config server.conf
      nats-transform verify --plan plan/ --step 4 --monitor http://localhost:8222
    """
    if server is None and not given["config"] and not given["monitor"]:
        raise click.UsageError("nothing to look at: give --server, --config or --monitor")
    if given["probe"] is not None and server is None:
        raise click.UsageError("a probe goes through a server: give --server too")
    with quiet_work():
        from jobs.settings.verify import VerifySettings
        from jobs.verify.run import verify

        result = verify(VerifySettings(nats=server, **given))
    finish(result, as_json, _print, "missing")


def _print(result: VerifyResult) -> None:
    for line in result.differences:
        print_line(line)
    if not result.differences:
        print_line(f"step {result.step} is in force: {', '.join(result.seen)}")
    for line in result.waits:
        print_line(line)
    if result.unseen:
        print_line(f"not looked at: {', '.join(result.unseen)}")
