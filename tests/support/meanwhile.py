"""What others do while a job works, in the middle of it."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest


def just_before(
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    act: Callable[..., object],
    when: Callable[..., bool] = lambda *_: True,
) -> None:
    """Does something once, just before a function is called.

    Args:
        monkeypatch: of the test.
        place: the name of the function, with that of its module or class.
        act: what is done; it gets what the call is given by position.
        when: whether a call is the one, from the same.
    """
    owner_name, _, name = place.rpartition(".")
    owner = pkgutil.resolve_name(owner_name)
    function = getattr(owner, name)
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    kind: Callable[[Any], Any] = staticmethod if is_static else lambda function: function

    def late(*given: Any, **more: Any) -> Any:
        if when(*given):
            monkeypatch.setattr(owner, name, kind(function))
            act(*given)
        return function(*given, **more)

    monkeypatch.setattr(owner, name, kind(late))
