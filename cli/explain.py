"""`nats-transform explain`: what a finding means, with an example, and what to do."""

from __future__ import annotations

from typing import Any

import click

from cli.command import command as cli_command
from cli.command import output, print_result
from cli.output import Verdict, print_line, print_table
from jobs.settings.base import Settings, setting
from nats_transform.errors import did_you_mean, printable, sentence


class ExplainSettings(Settings):
    """A code."""

    code: str | None = setting(
        None, "The code of a finding.", is_argument=True, metavar="[CODE]", completes="codes"
    )


@cli_command(
    "explain",
    ExplainSettings,
    output(json="explanations: code, command, severity, about, cure, link, page, has, lacks."),
    exit_codes="0 fine; 2 there is no such code.",
)
def command(settings: ExplainSettings, asked: Any) -> None:
    """Explain the findings that have CODE: meaning, an example with one and without, and cure.

    Without CODE it lists the codes of all commands.

    \b
    Examples:
      nats-transform explain
      nats-transform explain remainder-kept
      nats-transform explain collision --json
    """
    from cli.explanations import Explanations, explained, explanations

    entries = explanations() if settings.code is None else explained(settings.code)
    if not entries:
        known = [entry.code for entry in explanations()]
        near = did_you_mean(settings.code or "", known)
        cure = near or "; nats-transform explain lists all codes"
        raise click.UsageError(
            sentence("no-such-finding", code=printable(settings.code or ""), cure=cure)
        )

    def show() -> None:
        if settings.code is None:
            rows = [
                (entry.command, entry.code, Verdict(entry.severity), entry.about)
                for entry in entries
            ]
            print_table(rows, head=["command", "code", "severity", "meaning"])
            return
        for number, entry in enumerate(entries):
            if number:
                print_line()
            for line in entry.lines():
                text = line.lstrip(" ")
                print_line(text, indent=len(line) - len(text))

    print_result(asked, Explanations(tuple(entries)), show)
