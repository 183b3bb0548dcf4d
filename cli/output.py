"""What commands print: text for people, JSON for programs.

Every command prints through this module alone, so no text of a publisher acts on a terminal or in
the log of a CI job. On a terminal it has color and tables fit the width; into a pipe or file go
plain lines of any length.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from nats_transform.mappings.subject import encode
from nats_transform.untrusted import in_a_log, json_text, visible
from nats_transform.words import plural

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from expectations.expectation import Report
    from jobs.dry_run.result import DryRunResult
    from jobs.plan import PlanResult

_DEBUG = "nats_transform.debug"
"""Key in a click context's `meta`: whether errors show their stack trace."""
_STDOUT, _STDERR = 1, 2
ANY_WIDTH = 100_000  # of a pipe: nothing is cut or wrapped in it
_NO_SIZE = 80  # of a terminal that does not know its size

STYLES = {
    **dict.fromkeys(("error", "outside", "not-random", "differs"), "bold red"),
    **dict.fromkeys(("warning", "undecided"), "yellow"),
    **dict.fromkeys(("info", "nothing to audit", "seen"), "cyan"),
    **dict.fromkeys(("within", "equal"), "green"),
}
"""Severity or verdict -> how a terminal shows it."""


class Verdict(str):
    """A severity or a verdict; a terminal shows it in its color."""

    __slots__ = ()


def console(*, err: bool = False) -> Console:
    """Where rich draws. It takes no text for markup, and NO_COLOR takes the colors away."""
    from rich.console import Console

    stream, width = sys.stderr if err else sys.stdout, ANY_WIDTH
    if is_terminal(err):
        # By itself rich asks stdin, stdout and stderr, which may be something else by now.
        width = os.get_terminal_size(stream.fileno()).columns or _NO_SIZE
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def is_terminal(err: bool = False) -> bool:
    """Whether people read what is printed, on stdout or on stderr."""
    stream = sys.stderr if err else sys.stdout
    return stream is not None and stream.isatty()


def debug() -> click.Option:
    """`--debug`, which every command has."""

    def remember(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        # Given before the command or after it, once is enough.
        ctx.meta[_DEBUG] = value or ctx.meta.get(_DEBUG, False)

    about = "Show the stack trace of an error."
    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, is_eager=True, callback=remember, help=about
    )


def is_debug() -> bool:
    """Whether `--debug` was given."""
    return bool(click.get_current_context().meta.get(_DEBUG))


def print_line(*parts: str, err: bool = False, indent: int = 0) -> None:
    """Print one line; a line break or control character within it is shown as an escape.

    Args:
        indent: of the line, and of the lines into which a terminal wraps it between words.
    """
    if not is_terminal(err):
        click.echo(in_a_log(f"{' ' * indent}{visible(''.join(parts))}").encode(), err=err)
        return
    from rich.padding import Padding

    line = _text(*parts)
    _print(Padding(line, (0, 0, 0, indent)) if indent else line, err=err)


def print_finding(
    where: str, severity: str, code: str, message: str, cure: str, details: Iterable[str] = ()
) -> None:
    """Print a finding: what was found on a line, then its details and the cure, indented."""
    print_line(where, Verdict(severity), f" {code}: {message}")
    for line in (*details, cure):
        print_line(line, indent=4)


def print_help(pages: Mapping[str, str]) -> None:
    """Print where codes are explained, given the address for each."""
    for code, page in list(pages.items())[:1]:
        if len(pages) > 1:
            code, page = "CODE", page.partition("#")[0]
        print_line(f"what it means: nats-transform explain {code}")
        print_lines(page)  # a terminal breaks it so that it stays one address


def print_report(report: Report) -> None:
    """Print what the checks of a table found: that all hold, or the expectations that fail."""
    if report.success:
        print_line(f"checks: {report}")
    for failure in report.failures:
        print_finding(
            "", "error" if failure.blocks else "warning", failure.name, failure.observed,
            failure.expects,
        )  # fmt: skip


def print_lines(text: str, *, err: bool = False) -> None:
    """Print a text that we laid out in lines."""
    click.echo(in_a_log(visible(text, keep="\n")).encode(), err=err)


def print_commands(text: str) -> None:
    """Print lines that are commands for the runner of a CI job, and have nothing raw in them."""
    click.echo(text.encode())


def print_subject(subject: str) -> None:
    """Print a subject: its bytes into a pipe or file, its visible form on a terminal."""
    click.echo(visible(subject).encode() if is_terminal() else encode(subject))


def looked_at(result: DryRunResult | PlanResult) -> str:
    """Which streams and consumers a result is about, and where they came from."""
    counts = f"{plural(result.streams, 'stream')}, {plural(result.consumers, 'consumer')}"
    return f"looked at {counts}{f' of {result.streams_from}' if result.streams_from else ''}"


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    click.echo(json_text(document))


def print_table(
    rows: Sequence[Sequence[str]], *, head: Sequence[str] = (), right: Sequence[int] = ()
) -> None:
    """Print rows whose columns are aligned, two blanks before and between them; or nothing.

    Args:
        head: the names of the columns, if they need some.
        right: the columns, by index, whose cells end below each other.
    """
    if not rows:
        return
    from rich.table import Table

    table = Table(box=None, show_header=bool(head), padding=(0, 0, 0, 2))
    lines = [head, *rows] if head else rows
    words = [max(map(_longest_word, column)) for column in zip(*lines, strict=True)]
    # No word is broken that need not be.
    fits = sum(words) + 2 * len(words) <= console().width
    for index in range(len(rows[0])):
        name = _text(head[index]) if head else ""
        # A verdict is a word, and stays one on a narrow terminal.
        whole = any(isinstance(row[index], Verdict) for row in rows)
        table.add_column(name, overflow="fold", no_wrap=whole, header_style="bold")
        table.columns[index].min_width = words[index] if fits else None
        if index in right:
            table.columns[index].justify = "right"
    for row in rows:
        table.add_row(*map(_text, row))
    _print(table)


def _longest_word(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, visible(text).split()), default=0)


def print_counts(counts: Mapping[str, int]) -> None:
    """Print each count on a line of its own, aligned."""
    print_table([(name, f"{count:,}") for name, count in counts.items()], right=[1])


def _text(*parts: str) -> Text:
    """Parts of a line, with nothing in them that acts."""
    from rich.text import Text

    line = Text()
    for part in parts:
        line.append(visible(part), STYLES[part] if isinstance(part, Verdict) else "")
    return line


def _print(what: RenderableType, *, err: bool = False) -> None:
    drawing = console(err=err)
    with drawing.capture() as drawn:
        drawing.print(what)
    # Cells are filled up to the width of their column, also in the last one.
    lines = [line.rstrip(" ") for line in drawn.get().removesuffix("\n").split("\n")]
    text = "\n".join(lines)
    click.echo((text if is_terminal(err) else in_a_log(text)).encode(), err=err)


@contextlib.contextmanager
def quiet_work() -> Iterator[None]:
    """While it lasts, stdout is kept for the result, and a terminal sees how far the work is.

    What libraries print on stdout goes to stderr. Processes that it starts are silent: a JVM has
    nothing to say there that is not also in our errors, but says it at length; `--debug` lets it.
    """
    with contextlib.ExitStack() as undo:
        if not is_debug():
            # py4j logs a stack trace on Ctrl-C; where nobody handles it, logging prints it.
            silent = logging.NullHandler()
            logging.getLogger().addHandler(silent)
            undo.callback(logging.getLogger().removeHandler, silent)
        # A caller may have closed a stream, or put something else in its place.
        is_ours = sys.stdout is sys.__stdout__
        if is_ours and sys.stdout is not None and sys.stderr is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            undo.enter_context(_streams_apart())
        undo.enter_context(contextlib.redirect_stdout(sys.stderr))
        if is_terminal(err=True):
            from cli.progress import drawn  # rich takes a while to import

            undo.enter_context(drawn(console(err=True)))
        yield


@contextlib.contextmanager
def _streams_apart() -> Iterator[None]:
    """While it lasts, only `sys.stderr` reaches our stderr; processes inherit something else."""
    with contextlib.ExitStack() as undo:
        ours = undo.enter_context(open(os.dup(_STDERR), "w", buffering=1, errors="replace"))
        nobody = undo.enter_context(open(os.devnull, "w"))
        theirs = ours if is_debug() else nobody
        for stream in (_STDOUT, _STDERR):
            undo.callback(os.close, saved := os.dup(stream))
            undo.callback(os.dup2, saved, stream)
            os.dup2(theirs.fileno(), stream)
        undo.enter_context(contextlib.redirect_stderr(ours))
        yield
