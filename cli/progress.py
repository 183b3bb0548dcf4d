"""How far a command is, drawn on the terminal while it works."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from jobs.progress import Step, watched
from nats_transform.untrusted import visible

_WIDE = 72  # columns of a terminal that has room for a bar and a rate


@contextmanager
def drawn(terminal: Console) -> Iterator[None]:
    """While it lasts, a terminal has a line for each step at work; then they disappear."""
    # Drawn anew a few times a second, and when a step begins, however short it is.
    with watched(lambda _: live.refresh()) as steps:

        def lines() -> Table:
            return lines_of(list(steps), time.monotonic(), is_wide=terminal.width >= _WIDE)

        with Live(get_renderable=lines, console=terminal, transient=True) as live:
            yield


def lines_of(steps: list[Step], now: float, *, is_wide: bool) -> Table:
    """What each step is, the share that is done, the rate, and the time that is left."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for _ in range(4 if is_wide else 2):
        table.add_column(justify="right", no_wrap=True)
    for step in steps:
        elapsed = now - step.started
        rate = step.done / elapsed if elapsed else 0.0
        bar: RenderableType = ""
        share, clock = "", f"{_clock(elapsed)} so far"
        if step.total:
            done = min(step.done, step.total)
            bar = ProgressBar(step.total, done, width=16)
            share = f"{done / step.total:.0%}"
            if rate:
                clock = f"{_clock((step.total - done) / rate)} left"
        speed = f"{rate:,.0f} {step.unit}/s" if step.done else ""
        more = [bar, share, speed, clock] if is_wide else [share, clock]
        # As a text, of which nothing is markup.
        table.add_row(Text(visible(step.what)), *more)
    return table


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
