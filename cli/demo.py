"""`nats-transform demo`: the main job, end to end, on messages from a real nats-server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cli.command import command as cli_command
from cli.command import output, print_result
from cli.output import Verdict, is_terminal, print_line, print_table, quiet_work
from jobs.progress import watched
from jobs.settings.base import Settings
from jobs.settings.demo import DemoSettings

if TYPE_CHECKING:
    from jobs.audit.result import AuditResult
    from orchestration.demo.run import DemoRun

_FATES = {
    "mapped": "got a new subject",
    "unmatched": "no mapping matched them, and they keep their subject",
    "lost": "they drew no destination",
    "filtered": "a filter did not let them through",
    "invalid": "the subject is not legal; they are kept, with the reason",
}


@cli_command(
    "demo",
    DemoSettings,
    output(json="days, checks, caught, observed, digest, same_as_before, seconds."),
    exit_codes="0 everything worked and every check passed; 2 something failed, and the line on "
    "stderr says what.",
)
def command(settings: DemoSettings, asked: Settings) -> None:
    """Publish messages to a nats-server, then archive, transform and rehearse them.

    Three more servers map a day of messages, each as a cluster of its own. One of them has
    yesterday's weights for an hour, and the audit of what they did catches it.

    It takes a few minutes and needs Java 17 to 23. It changes nothing outside its folder.

    \b
    Examples:
      nats-transform demo
      nats-transform demo --messages 40000 --dir try
      nats-transform demo --server nats://127.0.0.1:4222
    """
    with quiet_work(), _steps_told():
        # First, because who lacks Dagster is to install it, with all else that the demo needs.
        from orchestration.demo.run import run_demo  # isort: split

        from jobs.audit.headline import headline

        run = run_demo(settings)
    summary = {
        "days": [day.isoformat() for day in run.days],
        "checks": run.checks,
        "caught": run.caught,
        "observed": headline(run.observed),
        "digest": run.digest,
        "same_as_before": run.same_as_before,
        "seconds": round(run.seconds, 1),
    }
    print_result(asked, summary, lambda: _print(run))


@contextmanager
def _steps_told() -> Iterator[None]:
    """While it lasts, stderr has a line for each step, where no terminal shows how far it is."""
    if is_terminal(err=True):
        yield
        return
    started = time.monotonic()

    def began(what: str) -> None:
        if len(steps) == 1:  # not the parts of a step
            print_line(f"{time.monotonic() - started:4.0f} s  {what}", err=True)

    with watched(began) as steps:
        yield


def _print(run: DemoRun) -> None:
    """The verdicts first, then the numbers, then what to open."""
    from jobs.audit.headline import headline

    audit = run.rehearsal
    passed = sum(run.checks.values())
    print_line()
    print_line(f"Caught: {run.caught}")
    print_line(headline(run.observed), indent=2)
    print_line(f"The check of its weights found it. All {passed} other checks pass.", indent=2)
    print_line()
    print_line(
        f"{audit.messages:,} messages of {run.days[0]} to {run.days[1]} are archived, mapped, "
        f"checked and rehearsed in {run.seconds:.0f} s. {run.observed.messages:,} others, which "
        "three clusters mapped, are audited."
    )
    print_line()
    print_line("What became of the messages")
    print_table(
        [
            (fate, f"{count:,}", f"{count / audit.messages:.2%}", _FATES.get(fate, ""))
            for fate, count in audit.fates.items()
            if count
        ],
        right=[1, 2],
    )
    print_line()
    print_line("What the weights would do with these messages")
    print_line(headline(audit), indent=2)
    _print_splits(audit)
    for balance in audit.partitions:
        print_line()
        print_line(f"Partitions of {balance.destination}")
        counts = ", ".join(f"{count / sum(balance.counts):.1%}" for count in balance.counts)
        print_line(f"{counts}; the busiest has {balance.busiest:.2f} times the mean", indent=2)
    print_line()
    print_line("Checks of the tables")
    print_table([(name, "passes" if fine else "found it") for name, fine in run.checks.items()])
    print_line()
    print_line(f"Digest {run.digest}")
    print_line(
        {
            None: "Run the demo again: the same seed gives the same digest.",
            True: "It's the same as before with this seed.",
            False: "It is NOT the same as before with this seed.",
        }[run.same_as_before],
        indent=2,
    )
    print_line()
    print_line("What to open now")
    checks = run.page.parent / "data_docs" / "index.html"
    pages = [("the audit of the clusters", str(run.page)), ("the checks", str(checks))]
    # The Makefile knows one folder.
    in_place = run.page.is_relative_to(Path("demo").absolute()) and Path("Makefile").exists()
    print_table([*pages, ("Dagster", "make ui")] if in_place else pages)


def _print_splits(audit: AuditResult) -> None:
    rows = [
        (
            rule.source,
            rule.cluster or "",
            split.name,
            f"{split.weight:g} %",
            "" if split.share is None else f"{split.share:.2f} %",
            f"{split.low:.2f} to {split.high:.2f}",
            Verdict(split.verdict),
        )
        for rule in audit.rules
        for split in rule.destinations
    ]
    head = ("mapping", "cluster", "destination", "weight", "share", "interval", "verdict")
    print_table(rows, head=head, right=[3, 4, 5])
