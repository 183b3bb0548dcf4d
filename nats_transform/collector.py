"""Python's garbage collector, off where it only costs time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """Turns off the search for cycles: what is read or counted has none, and it would go through
    all of it again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def leave_out_modules() -> None:
    """Turns the search for cycles on, if the start of a program has turned it off.

    It never goes through what the modules have made so far, which stays until the end anyway.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
