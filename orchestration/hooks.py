"""Functions of users that settings and the environment name as `package.module:function`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any


def function_named(name: str, where: str) -> Callable[..., Any]:
    """The function.

    Raises:
        ImportError: there is no such function; the text starts with where the name stands.
    """
    module, _, function = name.partition(":")
    try:
        hook: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImportError(
            f"{where}={name}: {error}; write it as package.module:function"
        ) from error
    return hook


def hook_of(variable: str, otherwise: Callable[[Any], None]) -> Callable[[Any], None]:
    """The function that a variable of the environment names, if it is set.

    Raises:
        ImportError: there is no such function.
    """
    name = os.environ.get(variable)
    return function_named(name, variable) if name else otherwise
