"""`nats-transform check`: what nats-server refuses in a configuration, and what people regret."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cli.options import account_option, debug_option, json_option
from cli.output import one_line, print_json
from nats_transform.errors import InvalidConfig, NatsTransformError, printable
from nats_transform.findings import Finding, Severity
from nats_transform.subject import decode

if TYPE_CHECKING:
    from nats_transform.check import Config

NEVER = "never"


@click.command(
    "check",
    short_help="Validate and lint mappings and stream configurations.",
    epilog="Exit codes: 0 nothing as bad as --fail-on; 1 something is; 2 a file cannot be read.",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@account_option
@click.option(
    "--cluster",
    "clusters",
    metavar="NAME",
    multiple=True,
    help="A cluster you run; give every one, and mappings are held against them.",
)
@click.option(
    "--subjects",
    metavar="FILE",
    help="Subjects seen in traffic, one a line: do they give a partition() enough keys?",
)
@click.option(
    "--fail-on",
    type=click.Choice([*Severity, NEVER]),
    default=Severity.ERROR,
    show_default=True,
    help="The mildest severity that makes the exit code 1.",
)
@json_option("Print one JSON document: files, fine, summary, findings.")
@debug_option
def command(
    files: tuple[str, ...],
    account: str,
    clusters: tuple[str, ...],
    subjects: str | None,
    fail_on: str,
    as_json: bool,
) -> None:
    """Say what nats-server refuses in FILE, and what it accepts and people regret.

    FILE is a server configuration, an account JWT, a stream configuration (`nats stream info
    --json`), or mappings as `nats auth account mappings` takes them. Several files are also held
    against each other: give the mappings together with the streams of the account.

    The codes and cures are listed in docs/check.md.

    \b
    Examples:
      nats-transform check server.conf
      nats-transform check server.conf --account ORDERS --cluster east --cluster west
      nats-transform check server.conf streams/*.json --fail-on warning --json
    """
    from nats_transform.check import check

    configs: list[Config] = []
    paths: list[str] = []
    findings: list[Finding] = []
    for file in files:
        loaded = _load(file, account)
        if isinstance(loaded, Finding):
            findings.append(loaded)
        else:
            configs.append(loaded)
            paths.append(file)
    seen = _lines(subjects) if subjects else ()
    findings += check(configs, clusters=clusters, subjects=seen, paths=paths)
    fine = not any(
        fail_on != NEVER and finding.severity.rank <= Severity(fail_on).rank for finding in findings
    )
    counts = Counter(finding.severity for finding in findings)
    if as_json:
        summary = {severity: counts[severity] for severity in Severity}
        found = [asdict(finding) for finding in findings]
        print_json({"files": files, "fine": fine, "summary": summary, "findings": found})
    else:
        for finding in findings:
            _print(finding)
        click.echo(_summary(counts, len(files)))
    if not fine:
        raise click.exceptions.Exit(1)


def _load(file: str, account: str) -> Config | Finding:
    """The configuration in a file, or the finding that it is refused."""
    from nats_transform.config import load

    # What cannot be opened is the caller's mistake, what cannot be loaded the file's.
    _lines(file)
    try:
        return load(file, account)
    except NatsTransformError as error:
        line = error.line if isinstance(error, InvalidConfig) else None
        return Finding("refused", str(error).removeprefix(f"{file}: "), path=file, line=line)


def _lines(file: str) -> Iterable[str]:
    try:
        with open(file, "rb") as lines:
            return [decode(text) for line in lines if (text := line.rstrip(b"\r\n"))]
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from error


def _print(finding: Finding) -> None:
    where = ":".join(str(part) for part in (finding.path, finding.line) if part)
    about = f"{finding.place} " if finding.place else ""
    if finding.source or finding.destination:
        arrow = f" -> {printable(finding.destination)}" if finding.destination else ""
        about += f"{printable(finding.source)}{arrow}"
    about = f"{about.strip()}: " if about else ""
    click.echo(one_line(f"{where}: {finding.severity} {finding.code}: {about}{finding.message}"))
    click.echo(f"    {finding.cure}")


def _summary(counts: Counter[Severity], files: int) -> str:
    checked = f"{files} file{'s' if files > 1 else ''} checked"
    if not counts:
        return f"{checked}, nothing found"
    told = [
        f"{counts[severity]} {severity}{'s' if counts[severity] > 1 and severity != 'info' else ''}"
        for severity in Severity
        if counts[severity]
    ]
    return f"{checked}: {', '.join(told)}"
