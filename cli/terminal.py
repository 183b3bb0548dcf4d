"""Where commands print: a terminal with color and a width, or a pipe with neither."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

ANY_WIDTH = 100_000  # of a pipe: nothing is cut or wrapped in it
_NO_SIZE = 80  # of a terminal that does not know its size


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
