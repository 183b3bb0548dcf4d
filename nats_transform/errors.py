"""The errors of nats-transform.

NatsTransformError              an error that the user can correct; its text is one line
├── InvalidTransform            a source and destination that do not make a transform (a ValueError)
│   ├── InvalidSubject          a source, destination or filter that is not a valid subject
│   ├── UnknownFunction         {{name(...)}} that nats-server does not know
│   ├── WrongArgumentCount      too few or too many arguments in a mapping function
│   ├── InvalidArgument         an argument that does not parse or is out of range
│   ├── IndexOutOfRange         a wildcard index above the number of `*` in the source
│   ├── FunctionNotAllowed      anything but wildcard in an import
│   └── UnusedWildcards         an import whose destination leaves a `*` out
├── InvalidMapping              weights or destinations that nats-server refuses (a ValueError)
├── InvalidStream               a stream configuration that nats-server refuses (a ValueError)
├── InvalidValue                a setting that does not fit (a ValueError, for pydantic)
├── InvalidConfig               a file that cannot be read as configuration (a ValueError)
│   └── UnknownAccount          it has no such account, or no mappings for it
├── InvalidBackup               a stream backup that cannot be read or written (a ValueError)
└── KernelUnavailable           a compiled library is missing or was built from other sources

Children of InvalidTransform follow nats-server's family under `ErrInvalidMappingDestination`
(`server/errors.go`).

Each error has a code, which stays the same, and the fields of its sentence. `errors.toml` has the
sentences of the whole product: a better one changes that file alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nats_transform.untrusted import one_line, visible

if TYPE_CHECKING:
    from pydantic import ValidationError

_LONGEST = 120  # characters of a subject in a message; real ones are far shorter


@functools.cache
def sentences() -> dict[str, str]:
    """The sentences of `errors.toml` by their codes."""
    import tomllib  # what succeeds needs neither
    from importlib import resources

    # Spark ships this package in a zip file, where a sentence has no path.
    text = resources.files("nats_transform").joinpath("errors.toml").read_text("utf-8")
    folders = tomllib.loads(text)
    return {code: text for folder in folders.values() for code, text in folder.items()}


def sentence(code: str, /, **fields: object) -> str:
    """The sentence of `errors.toml` with this code, with its fields filled in."""
    return sentences()[code].format_map(fields)


class NatsTransformError(Exception):
    """An error that the user can correct; its text is one line with what, where and the cure.

    Attributes:
        code: which sentence of `errors.toml` it says.
        fields: what it fills into the sentence, by name.
        others: what else is wrong in the same file or stream, if somebody collected it.
    """

    others: tuple[NatsTransformError, ...] = ()

    def __init__(self, code: str, /, **fields: object) -> None:
        super().__init__(code)
        self.code = code
        self.fields = fields

    def __str__(self) -> str:
        # Terminals, logs and pages show errors, and the text can contain names that others wrote.
        return one_line(sentence(self.code, **self.fields))


class InvalidTransform(NatsTransformError, ValueError):
    """A source and destination that do not make a transform.

    Attributes:
        source: the source filter as given.
        destination: the destination as given.
        token: the offending token, or "" if no single token is to blame.
        detail: the code of what is wrong in particular, or "".
    """

    rule = "invalid-transform"

    def __init__(
        self, source: str, destination: str, token: str = "", detail: str = "", **fields: object
    ) -> None:
        super().__init__(self.rule, **fields)
        self.args = (source, destination, token, detail)  # what pickle gives to this method
        self.source = source
        self.destination = destination
        self.token = token
        self.detail = detail

    def __str__(self) -> str:
        where = f", token {printable(self.token)}" if self.token else ""
        detail = f": {sentence(self.detail, **self.fields)}" if self.detail else ""
        pair = f"{printable(self.source)} -> {printable(self.destination)}"
        return one_line(f"{sentence(self.rule)}{where}{detail} ({pair})")


class InvalidSubject(InvalidTransform):
    """A source, destination or filter that is not a valid subject."""

    rule = "invalid-subject"


class UnknownFunction(InvalidTransform):
    """A token of the form {{name(...)}} that names no mapping function."""

    rule = "unknown-function"


class WrongArgumentCount(InvalidTransform):
    """Too few or too many arguments in a mapping function."""

    rule = "wrong-argument-count"


class InvalidArgument(InvalidTransform):
    """An argument of a mapping function that does not parse or is out of range."""

    rule = "invalid-argument"


class IndexOutOfRange(InvalidTransform):
    """A wildcard index above the number of `*` tokens in the source."""

    rule = "index-out-of-range"


class FunctionNotAllowed(InvalidTransform):
    """A mapping function other than wildcard in an import."""

    rule = "function-not-allowed"


class UnusedWildcards(InvalidTransform):
    """An import whose destination does not use every `*` of the source."""

    rule = "unused-wildcards"


class InvalidMapping(NatsTransformError, ValueError):
    """Weights or destinations of a mapping that nats-server refuses."""


class InvalidStream(NatsTransformError, ValueError):
    """A stream configuration that nats-server refuses.

    Attributes:
        err_code: that of the server's answer, or None where JSON or types are at fault.
    """

    def __init__(self, code: str, /, *, err_code: int | None = None, **fields: object) -> None:
        super().__init__(code, **fields)
        self.err_code = err_code


class InvalidValue(NatsTransformError, ValueError):
    """A value or a combination of values that a model of settings does not take."""


class InvalidConfig(NatsTransformError, ValueError):
    """A file that cannot be read as configuration.

    Attributes:
        path: the file.
        line: 1-based line, or None where the format has no lines.
        column: 1-based column, or None.
    """

    def __init__(
        self,
        code: str,
        /,
        path: str = "",
        line: int | None = None,
        column: int | None = None,
        **fields: object,
    ) -> None:
        super().__init__(code, **fields)
        self.path = path
        self.line = line
        self.column = column

    @property
    def reason(self) -> str:
        """What is wrong, without the place."""
        return super().__str__()

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line, self.column) if part)
        return one_line(f"{place}: {self.reason}" if place else self.reason)


class Refusals:
    """The errors of all parts of something, so that people need not correct one to see the next.

    Args:
        kind: the class of the errors.
    """

    def __init__(self, kind: type[NatsTransformError]) -> None:
        self._kind = kind
        self._errors: list[NatsTransformError] = []

    def __enter__(self) -> None:
        """Begins a part: an error of it is kept, with those that it has of others."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, self._kind):
            return False
        self._errors += [error, *error.others]
        return True

    def tell(self) -> None:
        """Raises the first error, if there is one; it has all others."""
        if self._errors:
            first, *others = self._errors
            first.others = tuple(others)
            raise first


class UnknownAccount(InvalidConfig):
    """A configuration that is valid but has no mappings for the account that was asked for.

    There is no account of that name, or it has no mappings where other accounts have some.
    """


class InvalidBackup(NatsTransformError, ValueError):
    """A stream backup that cannot be read, or messages that cannot be written as one."""


class KernelUnavailable(NatsTransformError):
    """A compiled library of this project is missing, does not load, or is of other sources."""


def printable(subject: str) -> str:
    """A subject quoted for a one-line message: control bytes and bad UTF-8 are escaped.

    Only the start of a very long subject is shown.
    """
    start = subject if len(subject) <= _LONGEST else f"{subject[:_LONGEST]}…"
    return repr(start.encode("utf-8", "backslashreplace").decode("utf-8"))


def shown(text: str) -> str:
    """The text, if all of it can be printed."""
    return text if text.isprintable() and text else printable(text)


def first_fault(error: ValidationError) -> str:
    """The place and the text of the first thing that does not fit a model, safe to show."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    text = first["msg"].removeprefix("Value error, ")
    return visible(f"{place}: {text}" if place else text)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: the known name that is nearest, or nothing."""
    import difflib

    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(name.lower(), names, 1)
    return f"; did you mean {visible(names[near[0]])}?" if near else ""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file: its path, and the 1-based line and column, or None without lines."""

    path: str
    line: int | None = None
    column: int | None = None

    def error(self, code: str, /, **fields: object) -> InvalidConfig:
        """An error at this place."""
        path = self.path if self.path.isprintable() else printable(self.path)
        return InvalidConfig(code, path, self.line, self.column, **fields)
