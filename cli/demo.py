"""`nats-transform demo`: the main job, end to end, on messages from a real nats-server."""

from __future__ import annotations

import click

from cli import options, project
from cli.output import print_json, print_lines, quiet_work


@project.command(
    "demo",
    short_help="See the main job work, on messages from a real nats-server.",
    epilog="Exit codes: 0 everything was made and every check passed; 2 something failed, and the "
    "line on stderr says what.",
)
@click.option(
    "--server",
    metavar="URL",
    help="A nats-server with JetStream.  [default: one is started, and stopped at the end]",
)
@click.option(
    "--messages",
    type=int,
    metavar="N",
    help="How many messages to publish; each of two earlier days has half as many.  "
    "[default: 100000]",
)
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="A number that decides the messages and every draw: the same seed gives the same "
    "digest.  [default: 7]",
)
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=options.FILE,
    help="The folder for everything that the demo makes; it removes an earlier demo there.  "
    "[default: ./demo]",
)
@options.json("Print one JSON document: days, checks, observed, digest, same_as_before, seconds.")
def command(as_json: bool, **given: object) -> None:
    """Publish messages to a nats-server, then archive, transform and rehearse them.

    Three more servers map a day of messages, each as a cluster of its own; one of them has
    yesterday's weights for an hour, and the audit of what they did finds it.

    It takes a few minutes and needs Java 17 to 23. It changes nothing outside its folder.

    \b
    Examples:
      nats-transform demo
      nats-transform demo --messages 20000 --dir try
      nats-transform demo --server nats://127.0.0.1:4222
    """
    with quiet_work():
        # First, because who lacks Dagster is to install it, with all else that the demo needs.
        from orchestration.demo.run import DemoSettings, run_demo  # isort: split

        from jobs.audit.headline import headline
        from orchestration.demo.summary import summary

        made = run_demo(options.settings(DemoSettings, given))
    if not as_json:
        print_lines(summary(made))
        return
    print_json(
        {
            "days": [day.isoformat() for day in made.days],
            "checks": made.checks,
            "observed": headline(made.observed),
            "digest": made.digest,
            "same_as_before": made.same_as_before,
            "seconds": round(made.seconds, 1),
        }
    )
