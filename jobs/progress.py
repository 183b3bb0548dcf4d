"""The progress of a job: what it does at the moment, and how far it is.

As with logging, a job reports whether or not somebody listens, and no function takes a listener as
an argument: `step` says what the job does, and `advance` counts. A watcher gets the current steps
and looks at them whenever it likes, so a count costs only an addition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


class Step:
    """A part of a job that takes a while.

    Attributes:
        what: the text to show, such as "transforming ORDERS". Publishers may have chosen parts of
            it.
        total: how many units there are; None if that is not known or not useful.
        unit: the unit that is counted.
        done: how many units are done.
        started: the start of the step, in seconds of the monotonic clock.
    """

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self.started = time.monotonic()
        self._lock = threading.Lock()

    def advance(self, count: int) -> None:
        """Adds to the units that are done; any thread may call it."""
        with self._lock:
            self.done += count


@dataclass
class _Watch:
    steps: list[Step]
    began: Callable[[str], object] | None


_WATCH: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def step(what: str, total: int | None = None, unit: str = "messages") -> Iterator[None]:
    """Begins a step, which ends with the context. A step that begins within it is a part of it."""
    watch = _WATCH.get()
    if watch is None:
        with watched(), step(what, total, unit):
            yield
        return
    mine = Step(what, total, unit)
    watch.steps.append(mine)
    try:
        if watch.began:
            watch.began(what)
        yield
    finally:
        watch.steps.remove(mine)


def advance(count: int = 1) -> None:
    """Adds to the innermost step. A thread must run in the context of the job."""
    if (step := current()) is not None:
        step.advance(count)


def current() -> Step | None:
    """The innermost step, if there is one."""
    watch = _WATCH.get()
    return watch.steps[-1] if watch is not None and watch.steps else None


@contextmanager
def watched(began: Callable[[str], object] | None = None) -> Iterator[list[Step]]:
    """Watches this context: gives the current steps, the outermost first.

    Args:
        began: a function that is called with the text of each step that begins, such as a log.
    """
    watch = _Watch([], began)
    token = _WATCH.set(watch)
    try:
        yield watch.steps
    finally:
        _WATCH.reset(token)
