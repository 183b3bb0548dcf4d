"""The compiled library that unpacks S2, and that finds and writes the entries of archives."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

from nats_transform.errors import InvalidBackup
from nats_transform.kernel.library import NUMBER, POINTER, load_library

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

NAME = "backup.so"
_FUNCTIONS = {
    "nats_s2_decode": [POINTER, NUMBER, POINTER, NUMBER, POINTER, POINTER],
    "nats_archive_scan": [POINTER, NUMBER, NUMBER, NUMBER, POINTER, POINTER],
    "nats_archive_write": [POINTER, POINTER, POINTER, NUMBER, POINTER],
    "nats_checksum": [POINTER, NUMBER],
    "nats_gather": [POINTER, POINTER, POINTER, NUMBER, POINTER],
}
# What a function returns instead of a count; keep in step with backup.h.
_FAULTS = {
    -1: "s2-not-a-stream",
    -2: "s2-damaged",
    -3: "s2-checksum",
    -4: "s2-unknown-chunk",
    -5: "entry-without-number",
    -6: "entry-name-too-long",
    -7: "entry-too-large",
    -8: "sequence-above-63-bits",
}


@cache
def library() -> ctypes.CDLL:
    """The library, loaded once a process.

    An array is given to its functions as `array.ctypes`. It must be contiguous.

    Raises:
        KernelUnavailable: it is missing, cannot be loaded, or was made from other source files.
    """
    loaded = load_library(resources.files(__package__), NAME, _FUNCTIONS)
    loaded.nats_checksum.restype = ctypes.c_uint32
    loaded.nats_gather.restype = None
    return loaded


def checked(result: int) -> int:
    """The result of a function of the library.

    Raises:
        InvalidBackup: the result is the number of a fault.
    """
    if result < 0:
        raise InvalidBackup(_FAULTS[result])
    return result
