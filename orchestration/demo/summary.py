"""The text that the demo prints at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.audit.headline import headline
from jobs.audit.settings import AuditResult
from orchestration.demo.run import DemoRun


def summary(run: DemoRun) -> str:
    """The demo's result as text for a terminal: numbers first, then what to open next."""
    return "\n".join(_lines(run))


def _lines(run: DemoRun) -> Iterator[str]:
    audit = run.rehearsal
    yield ""
    yield f"{audit.messages:,} messages of {run.days[0]} to {run.days[1]}, by fate"
    for fate, count in audit.fates.items():
        if count:
            yield f"  {fate:<10} {count:>9,}  {count / audit.messages:7.2%}"
    yield ""
    yield from _splits(audit)
    yield from _balance(audit)
    yield "What three clusters did on the day before"
    yield f"  {headline(run.observed)}"
    yield ""
    passed = sum(run.checks.values())
    yield f"{passed} of {len(run.checks)} asset checks passed; one had to find the stale cluster"
    for name, is_passed in run.checks.items():
        yield f"  {'ok     ' if is_passed else 'OUTSIDE'}  {name}"
    yield ""
    yield (
        f"digest {run.digest}"
        + {
            None: "; run the demo again: the same seed gives the same digest",
            True: ", the same as before with this seed",
            False: ", NOT the same as before with this seed",
        }[run.same_as_before]
    )
    yield f"took {run.seconds:.0f} s"
    yield ""
    yield f"Open the audit:   {run.page}"
    yield "Open Dagster:     make ui"


def _splits(audit: AuditResult) -> Iterator[str]:
    yield (
        f"Rehearsal: split against weight ({audit.confidence:.0%} confidence, "
        f"±{audit.tolerance:g} points)"
    )
    rows = [("mapping", "cluster", "destination", "weight", "share", "interval", "verdict")]
    for rule in audit.rules:
        rows += [
            (
                rule.source,
                rule.cluster or "",
                d.destination or d.end,
                f"{d.weight:g} %",
                "" if d.share is None else f"{d.share:.2f} %",
                f"{d.low:.2f} to {d.high:.2f}",
                str(d.verdict),
            )
            for d in rule.destinations
        ]
    yield from _table(rows, right={3, 4, 5})
    yield ""


def _balance(audit: AuditResult) -> Iterator[str]:
    for balance in audit.partitions:
        total = max(1, sum(balance.counts))
        yield f"Partitions of {balance.destination}"
        yield "  " + "  ".join(
            f"{number}: {count / total:.1%}" for number, count in enumerate(balance.counts)
        )
        yield f"  the busiest has {balance.busiest:.2f} times the mean"
        yield ""


def _table(rows: Sequence[Sequence[str]], right: set[int]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()
