"""The findings of `check`. Each kind has a code that never changes, a meaning and a cure."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """The configuration does not work: it is refused, crashes the server, or makes a loop."""
    WARNING = "warning"
    """The configuration works, but probably not as intended."""
    INFO = "info"
    """The configuration works, and this may be intended."""

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Code:
    """The meaning of a code.

    Attributes:
        severity: the severity of every finding with this code.
        about: what the configuration does.
        cure: what to do, in one line.
        link: an issue in which somebody reported it; "" if there is none.
        page: the address of its explanation.
    """

    severity: Severity
    about: str
    cure: str
    link: str = ""
    page: str = ""


PAGE = "https://example.com/OWNER/nats-transform/reference/findings/"  # where the site is
"""The page that `scripts/pages.py` makes of all codes."""


@cache
def _texts() -> dict[str, dict[str, dict[str, str]]]:
    # Spark ships this package in a zip file, where a text has no path.
    text = resources.files("nats_transform").joinpath("findings.toml").read_text("utf-8")
    return tomllib.loads(text)


def codes(command: str) -> dict[str, Code]:
    """The codes of `check`, `dry-run` or `audit`, as `findings.toml` has them."""
    texts = _texts()
    meanings = {code: texts["check"].get(code, {}) | own for code, own in texts[command].items()}
    return {
        code: Code(Severity(meaning.pop("severity")), page=f"{PAGE}#{command}-{code}", **meaning)
        for code, meaning in meanings.items()
    }


CODES = codes("check")
"""The codes of `check`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a configuration.

    Attributes:
        code: a key of `CODES`.
        message: the finding in one line.
        source, destination: those of the transform or mapping that it is about, or "".
        place: the mapping that it is about, or the part of a stream.
        path: the file, if there is one.
        line, column: the place in the file, counted from 1, if it is known.
        severity, cure: the severity and the cure of the code.
        help: the address of the explanation of the code.
    """

    code: str
    message: str
    source: str = ""
    destination: str = ""
    place: str = ""
    path: str = ""
    line: int | None = None
    column: int | None = None
    # Pydantic leaves fields without `init` out of a schema if they have no default.
    severity: Severity = field(init=False, default=Severity.ERROR)
    cure: str = field(init=False, default="")
    help: str = field(init=False, default="")

    def __post_init__(self) -> None:
        rule = CODES[self.code]
        object.__setattr__(self, "severity", rule.severity)
        object.__setattr__(self, "cure", rule.cure)
        object.__setattr__(self, "help", rule.page)
