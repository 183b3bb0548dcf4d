"""What calls leave in this process: open descriptors, threads, and objects."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

_OBJECTS = 100  # a call may leave some, in caches that have a limit


def kept_of(call: Callable[[], Any], calls: int, collecting: bool = False) -> Counter[str]:
    """What is there after some calls and was not before, by its name.

    Of objects that the garbage collector left it counts those of a call, if they are many.

    Args:
        call: the call. It is made twice before, for what is imported and started once.
        calls: how many calls are looked at.
        collecting: whether the garbage collector may close what they left open.
    """
    for _ in range(2):
        call()
    gc.collect()
    if not collecting:
        gc.disable()
    try:
        before, objects = _open(), len(gc.get_objects())
        for _ in range(calls):
            call()
        kept = _open() - before
    finally:
        gc.enable()
    gc.collect()
    if (of_a_call := (len(gc.get_objects()) - objects) // calls) > _OBJECTS:
        kept["objects of a call"] = of_a_call
    return kept


def _open() -> Counter[str]:
    names = Counter(f"thread {thread.name}" for thread in threading.enumerate())
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # that of the folder itself
            continue
        names[name.partition(":[")[0]] += 1  # sockets and pipes have numbers
    return names
