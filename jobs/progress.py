"""What a job does at the moment, and how far it is, for whoever watches.

As with logging, a job says it whether or not somebody listens, and no function passes a listener
down: `step` says what it does, `advance` counts. Who watches has the steps at work and looks at
them when it likes, so a count costs an addition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


class Step:
    """Something that takes a while.

    Attributes:
        what: it is, such as "transforming ORDERS"; publishers may have chosen a part of the text.
        total: how many units there are; None if nobody knows, or if units say nothing.
        unit: what is counted.
        done: so many units.
        started: when, by the monotonic clock, in seconds.
    """

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self.started = time.monotonic()
        self._lock = threading.Lock()

    def advance(self, count: int) -> None:
        """Count what is done; any thread may."""
        with self._lock:
            self.done += count


@dataclass
class _Watch:
    steps: list[Step]
    began: Callable[[str], object] | None


_WATCH: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def step(what: str, total: int | None = None, unit: str = "messages") -> Iterator[None]:
    """While it lasts, a step is at work; a step that begins meanwhile is a part of it.

    Args:
        what, total, unit: as `Step` has them.
    """
    watch = _WATCH.get()
    if watch is None:
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
    """Count what is done in the innermost step; a thread needs the context of the job for it."""
    if (step := current()) is not None:
        step.advance(count)


def current() -> Step | None:
    """The innermost step at work, if somebody watches."""
    watch = _WATCH.get()
    return watch.steps[-1] if watch is not None and watch.steps else None


@contextmanager
def watched(began: Callable[[str], object] | None = None) -> Iterator[list[Step]]:
    """While it lasts, the steps at work of this context, the outermost first.

    Args:
        began: called with what a step is when it begins, such as the function of a log.
    """
    watch = _Watch([], began)
    token = _WATCH.set(watch)
    try:
        yield watch.steps
    finally:
        _WATCH.reset(token)
