"""`nats-transform verify`: whether a step of a plan is in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_line

if TYPE_CHECKING:
    from jobs.settings.verify import VerifySettings
    from jobs.verify.run import VerifyResult


@job_command(
    "verify",
    exit_codes="0 the step is in force, and the next one can be taken; 1 it isn't, and each line "
    "says what differs or what to wait for; 2 wrong usage, a plan that was edited, or "
    "we can't see the step.",
    json="step, differences, waits, seen, unseen.",
)
def command(result: VerifyResult, settings: VerifySettings) -> None:
    """Ask servers whether a step and all before it are in force, and none after it.

    It changes nothing, and publishes nothing without --probe.

    \b
    Examples:
      nats-transform verify --plan plan/ --step 1 --server nats://localhost:4222
      nats-transform verify --plan plan/ --step 3 --config server.conf
      nats-transform verify --plan plan/ --step 4 --monitor http://localhost:8222
    """
    for line in result.differences:
        print_line(line)
    if not result.differences:
        print_line(f"step {result.step} is in force: {', '.join(result.seen)}")
    for line in result.waits:
        print_line(line)
    if result.unseen:
        print_line(f"not looked at: {', '.join(result.unseen)}")
