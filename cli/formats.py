"""Findings in the forms that reviews of changes read: GitHub's annotations, Markdown and SARIF.

Publishers and files choose parts of the texts, so each form escapes what would act in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from cli.output import print_commands, print_line, print_lines
from nats_transform.lint.findings import Code, Severity
from nats_transform.mappings.unseen import Unseen, unseen_line
from nats_transform.untrusted import json_text, markdown_code, markdown_text, one_line, visible

_ANNOTATION = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}

MOST_CHARACTERS = 65_000
"""GitHub refuses a comment of more than 65,536."""


class Reported(NamedTuple):
    """A finding as a review shows it.

    Attributes:
        message: what was found, and about what, on one line.
        path, line, column: where in which file; the numbers count from 1.
        details: examples, each on one line.
        help: the address of the explanation of the code.
    """

    severity: Severity
    code: str
    message: str
    cure: str
    path: str = ""
    line: int | None = None
    column: int | None = None
    details: tuple[str, ...] = ()
    help: str = ""


class Review(NamedTuple):
    """A result for reviews.

    Attributes:
        title, summary: what was done, and what came of it.
        findings: the findings.
        codes: what their codes mean.
        not_looked_at: what the result says nothing about.
    """

    title: str
    summary: list[str]
    findings: Iterable[Reported]
    codes: Mapping[str, Code]
    not_looked_at: Sequence[Unseen] = ()


def print_findings(form: str, review: Review) -> None:
    """Prints findings in one of the forms for reviews, after what nobody looked at."""
    every, unseen = list(review.findings), review.not_looked_at
    summary = [*([unseen_line(unseen)] if unseen else []), *review.summary]
    if form == "github":
        if every:
            print_commands(github(every))
        # The log of a workflow takes lines that are not annotations as they are.
        for line in summary:
            print_line(line)
    elif form == "sarif":
        print_lines(sarif(every, review.codes, unseen))
    else:
        print_lines(markdown(review.title, summary, every))


def github(findings: Iterable[Reported]) -> str:
    """Workflow commands of GitHub Actions: one annotation for each finding."""
    lines = []
    for finding in findings:
        place = {
            "file": _relative(finding.path),
            "line": finding.line,
            "col": finding.column,
            "title": finding.code,
        }
        properties = ",".join(
            f"{name}={_command(visible(str(value)), ':,')}"
            for name, value in place.items()
            if value
        )
        more = f". {finding.help}" if finding.help else ""
        text = _command(one_line(f"{finding.message}. {finding.cure}{more}"))
        lines.append(f"::{_ANNOTATION[finding.severity]} {properties}::{text}")
    return "\n".join(lines)


def _command(text: str, more: str = "") -> str:
    """A text that a workflow command cannot take for a part of itself."""
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def sarif(
    findings: Sequence[Reported],
    codes: Mapping[str, Code],
    not_looked_at: Sequence[Unseen] = (),
) -> str:
    """A log in the Static Analysis Results Interchange Format 2.1.0."""
    used = sorted({finding.code for finding in findings})
    rules = [
        {
            "id": code,
            "shortDescription": {"text": codes[code].about},
            "help": {"text": codes[code].cure},
            "defaultConfiguration": {"level": _LEVEL[codes[code].severity]},
            "helpUri": codes[code].page,
        }
        for code in used
    ]
    results = [
        {
            "ruleId": finding.code,
            "ruleIndex": used.index(finding.code),
            "level": _LEVEL[finding.severity],
            "message": {"text": _unlinked(f"{finding.message}. {finding.cure}")},
            "locations": [{"physicalLocation": _location(finding)}] if finding.path else [],
        }
        for finding in findings
    ]
    driver = {"name": "nats-transform", "version": version("nats-transform"), "rules": rules}
    run = {"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}
    if not_looked_at:
        notification = {"level": "note", "message": {"text": _unlinked(unseen_line(not_looked_at))}}
        run["invocations"] = [
            {"executionSuccessful": True, "toolExecutionNotifications": [notification]}
        ]
    # The schema by its canonical identifier, which is no address to load it from.
    return json_text({"version": "2.1.0", "runs": [run]})


def _unlinked(text: str) -> str:
    """A text in which no viewer of SARIF finds a link: it has a word joiner, which nobody sees."""
    return one_line(text).replace("](", "]\u2060(")


def _location(finding: Reported) -> dict[str, Any]:
    place: dict[str, Any] = {
        "artifactLocation": {"uri": quote(_relative(finding.path), errors="surrogateescape")}
    }
    if finding.line:
        column = {"startColumn": finding.column} if finding.column else {}
        place["region"] = {"startLine": finding.line, **column}
    return place


def _relative(path: str) -> str:
    """The path from the current folder, as reviews name files, if it is inside."""
    if not path:
        return ""
    whole = Path(path).absolute()
    here = Path.cwd()
    return (whole.relative_to(here) if whole.is_relative_to(here) else whole).as_posix()


def markdown(title: str, summary: Sequence[str], findings: Sequence[Reported]) -> str:
    """A comment for a review: the worst findings first, their examples folded away.

    What does not fit into one comment of GitHub is counted at the end.
    """
    lines = [
        f"### {markdown_text(title)}",
        "",
        *(f"{markdown_text(line)}  " for line in summary),
        "",
    ]
    size = sum(map(len, lines)) + 1_000  # room for the line at the end
    ordered = sorted(findings, key=lambda finding: finding.severity.rank)
    shown = 0
    for severity, group in groupby(ordered, key=lambda finding: finding.severity):
        for number, finding in enumerate(group):
            item = [] if number else [f"**{severity.capitalize()}**", ""]
            item += _item(finding)
            if size + (more := sum(len(line) + 1 for line in item)) > MOST_CHARACTERS:
                left = len(findings) - shown
                return "\n".join([*lines, "", f"and {left:,} more: see the JSON of this run", ""])
            size += more
            shown += 1
            lines += item
        lines.append("")
    return "\n".join(lines)


def _item(finding: Reported) -> list[str]:
    place = ":".join(str(part) for part in (_relative(finding.path), finding.line) if part)
    where = f" in {markdown_code(place)}" if place else ""
    code = f"[`{finding.code}`]({finding.help})" if finding.help else f"`{finding.code}`"
    lines = [
        f"- {code}{where}: {markdown_text(finding.message)}  ",
        f"  {markdown_text(finding.cure)}",
    ]
    if finding.details:
        lines += ["", "  <details><summary>examples</summary>", ""]
        lines += [f"  - {markdown_code(detail)}" for detail in finding.details]
        lines += ["", "  </details>", ""]
    return lines
