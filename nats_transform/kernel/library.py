"""The compiled part of the kernel: where it is, what it exports, and what to do without it.

`load_library` serves the other compiled library of ours (`nats_transform.backup`) too.

It is C with a plain interface, compiled when the package is installed (`build`); nothing is
compiled at run time. A library that was made from other source files than those beside
it is refused, because its tables may look different.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from nats_transform.errors import KernelUnavailable, NatsTransformError
from nats_transform.kernel.build import source_digest

POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64
"""What functions of our libraries take."""

NAME = "kernel.so"
"""Its name on every system: a library that is loaded by its path may have any name."""
_FUNCTIONS = {
    "nats_map": [POINTER, POINTER, POINTER, NUMBER, NUMBER],
    "nats_prove": [POINTER, POINTER, POINTER, NUMBER],
    "nats_digest": [POINTER, NUMBER, NUMBER, POINTER],
}
_CURE = "run `make setup` in a checkout, or install the wheel of nats-transform for this platform"

# What a function of the kernel returns instead of a count of rows; keep in step with column.h.
_FAULTS = {-1: "offsets-broken", -2: "subject-over-2-gb", -3: "subjects-over-2-gb"}


@cache
def library(folder: Traversable | None = None) -> ctypes.CDLL:
    """The kernel's library, loaded once a process.

    Args:
        folder: the folder with the library and its source files; by default that of this package,
            which may be in a zip file, as Spark ships it.

    Raises:
        KernelUnavailable: it is missing, cannot be loaded, or was made from other source files.
    """
    return load_library(folder or resources.files(__package__), NAME, _FUNCTIONS)


def load_library(
    folder: Traversable, name: str, functions: Mapping[str, Sequence[Any]]
) -> ctypes.CDLL:
    """A library of ours.

    Args:
        folder: the folder with the library and its source files.
        name: the name of the library.
        functions: what each of its functions takes; it returns a 64-bit number.

    Raises:
        KernelUnavailable: as of `library`.
    """
    if not (folder / name).is_file():
        raise KernelUnavailable("kernel-missing", file=folder / name, cure=_CURE)
    try:
        with resources.as_file(folder / name) as path:
            loaded = ctypes.CDLL(str(path))
        loaded.nats_source.restype = ctypes.c_char_p
        source = loaded.nats_source().decode()
        for function, arguments in functions.items():
            getattr(loaded, function).argtypes = arguments
            getattr(loaded, function).restype = NUMBER
    except (OSError, AttributeError) as error:
        reason = str(error).replace("\n", " ")
        raise KernelUnavailable("kernel-unloadable", file=name, reason=reason, cure=_CURE) from None
    if source != source_digest(folder):
        raise KernelUnavailable("kernel-of-other-sources", file=folder / name, cure=_CURE)
    return loaded


def checked(result: int) -> int:
    """What a function of the kernel returned.

    Raises:
        NatsTransformError: the number is one of a fault.
    """
    if result < 0:
        raise NatsTransformError(_FAULTS[result])
    return result
