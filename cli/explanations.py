"""Every code that a command can print, with examples: for `explain` and for the page of findings.

The meaning of a code stands in nats_transform/findings.toml, its examples in
nats_transform/lint/examples.yaml.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from nats_transform.lint.findings import Code, Severity, codes
from nats_transform.words import plural

_COMMANDS = ("check", "dry-run", "audit")
_MAPPINGS = {"check": "server.conf", "audit": "mapping.conf"}
"""Command -> the name of a mapping file in its examples; elsewhere it is new.conf."""
NUMBERS = re.compile(r"\{1\.\.(\d+)\}")
"""What stands for a line with each number."""

Messages = list[tuple[str, str, int]]
"""Cluster or "", subject, number of messages; in the order in which they came."""


@dataclass(frozen=True, slots=True)
class Example:
    """An input of a command.

    Attributes:
        command: the command line.
        files: the text of each file by its name; `{1..N}` in a line stands for N lines.
        messages: how many messages there are, by cluster ("" if there is none) and subject.
        headers: the headers that each of them has.
        is_ordered: whether they came in that order.
    """

    command: str
    files: Mapping[str, str]
    messages: Messages
    is_ordered: bool
    headers: Mapping[str, str]

    def lines(self) -> Iterator[str]:
        """The example for people; what belongs together is indented."""
        for name, text in self.files.items():
            yield name
            yield from (f"  {line}" for line in text.rstrip().split("\n"))
            if number := NUMBERS.search(text):
                yield f"({number[0]} stands for a line with each of these numbers)"
        if self.messages:
            order = ", in this order" if self.is_ordered else ""
            yield f"messages{order}"
        yield from (f"  each with the header {name}: {text}" for name, text in self.headers.items())
        for cluster, subject, count in self.messages:
            yield f"  {subject}  {plural(count, 'message')}{f' in {cluster}' if cluster else ''}"
        yield f"$ nats-transform {self.command}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a code means.

    Attributes:
        code: the code, as the command prints it.
        command: the command that prints it. `dry-run` and `plan` print codes of `check` too, with
            `check-` before them.
        severity, about, cure: those of the code.
        link: an issue in which somebody reported it; "" if there is none.
        page: the address of this explanation.
        has, lacks: an example with such a finding, and one without.
    """

    code: str
    command: str
    severity: Severity
    about: str
    cure: str
    link: str
    page: str
    has: Example
    lacks: Example

    def lines(self) -> Iterator[str]:
        """The explanation for people, in lines."""
        yield f"{self.code}: {self.severity}, found by {self.command}"
        yield self.about
        yield f"cure: {self.cure}"
        for title, example in (("With the finding:", self.has), ("Without it:", self.lacks)):
            yield ""
            yield title
            yield from (f"  {line}" for line in example.lines())
        yield ""
        if self.link:
            yield f"reported in {self.link}"
        yield self.page


@dataclass(frozen=True, slots=True)
class Explanations:
    """What some codes mean.

    Attributes:
        explanations: one for each code and command.
    """

    explanations: tuple[Explanation, ...]


@cache
def explanations() -> tuple[Explanation, ...]:
    """All codes, by command, in the order in which they are declared."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (files("nats_transform.lint") / "examples.yaml").read_text(encoding="utf-8")
    examples = yaml.load(text, loader)  # noqa: S506 - one of the two safe ones
    return tuple(
        _explanation(command, code, rule, examples[command][code])
        for command in _COMMANDS
        for code, rule in codes(command).items()
    )


def explained(code: str) -> list[Explanation]:
    """What a code means for each command that prints it; nothing if there is no such code."""
    code = code.lower().replace(" ", "-")
    return [
        e
        for e in explanations()
        if code == e.code or (e.command == "check" and code == f"check-{e.code}")
    ]


def _explanation(command: str, code: str, rule: Code, entry: Mapping[str, Any]) -> Explanation:
    sides = (_example(entry.get("command", command), entry, entry[s]) for s in ("has", "lacks"))
    return Explanation(code, command, *astuple(rule), *sides)


def _example(command: str, entry: Mapping[str, Any], side: str | Mapping[str, Any]) -> Example:
    mappings = _MAPPINGS.get(command, "new.conf")
    parts = {
        "subjects": entry.get("subjects", {}),
        "headers": entry.get("headers", {}),
        **entry.get("both", {}),
        **({mappings: side} if isinstance(side, str) else side),
    }
    subjects, headers = parts.pop("subjects"), parts.pop("headers")
    is_ordered = isinstance(subjects, list)
    runs = [run for pair in subjects for run in pair.items()] if is_ordered else subjects.items()
    messages = [
        (name, subject, count) if isinstance(value, dict) else ("", name, value)
        for name, value in runs
        for subject, count in (value.items() if isinstance(value, dict) else [(name, value)])
    ]
    texts = {
        name: f"{text.rstrip()}\n" if isinstance(text, str) else f"{json.dumps(text)}\n"
        for name, text in parts.items()
    }
    words = [command, *_arguments(command, texts, bool(headers)), entry.get("options", "")]
    return Example(" ".join(filter(None, words)), texts, messages, is_ordered, headers)


def _arguments(command: str, names: Mapping[str, str], has_headers: bool) -> Iterator[str]:
    """How a command is given these files, and messages that may have headers."""
    there = {name.partition("/")[0] for name in names if "/" in name}
    folders = [f"--{folder} {folder}" for folder in ("streams", "consumers") if folder in there]
    if command == "check":
        yield from (name for name in names if name != "subjects.txt" and "/" not in name)
        yield from folders
        return
    if command == "audit":
        yield "--stream SHIPPED --mapping mapping.conf --observed"
        return
    yield "--stream SHIPPED" if has_headers else "--census census.parquet"
    yield "--candidate new.conf"
    if "old.conf" in names:
        yield "--mapping old.conf"
    yield from folders
    if "server.conf" in names:
        yield "--permissions server.conf"
    if command == "plan":
        yield "--out plan"
