"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


def awaited(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The test, run in an event loop of its own."""

    @functools.wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*given, **named))

    return run
