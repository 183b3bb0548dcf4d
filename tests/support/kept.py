"""What calls leave open in this process: descriptors and threads."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any


def kept_of(call: Callable[[], Any], calls: int, collecting: bool = False) -> Counter[str]:
    """What is open after some calls and was not before, by its name.

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
        before = _open()
        for _ in range(calls):
            call()
        return _open() - before
    finally:
        gc.enable()


def _open() -> Counter[str]:
    names = Counter(f"thread {thread.name}" for thread in threading.enumerate())
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # that of the folder itself
            continue
        names[name.partition(":[")[0]] += 1  # sockets and pipes have numbers
    return names
