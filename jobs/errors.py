"""The errors of the jobs.

NatsTransformError
└── JobError                a job cannot do what it was asked to do
    ├── SparkUnavailable    there is no usable Java, or Spark does not start
    ├── WarehouseError      the tables cannot be opened, read or written
    │   ├── NoTable         no job has made the table yet
    │   ├── NoBranch        the table has no such branch
    │   └── ConcurrentWrite another writer changed the same rows first
    └── ArchiveError        a source of messages cannot be read, or is not as expected
        └── AccountingError the source and the table do not hold the same messages
"""

from __future__ import annotations

import os
import socket

from pydantic import ValidationError

from nats_transform.errors import NatsTransformError, first_fault
from nats_transform.untrusted import visible


class JobError(NatsTransformError):
    """A job cannot do what it was asked to do."""


class SparkUnavailable(JobError):
    """There is no usable Java, or Spark does not start."""


class WarehouseError(JobError):
    """The tables cannot be opened, read or written."""


class NoTable(WarehouseError):
    """No job has made the table yet."""


class NoBranch(WarehouseError):
    """The table has no such branch."""


class ConcurrentWrite(WarehouseError):
    """Another writer changed the same rows first; nothing of ours was published."""


class ArchiveError(JobError):
    """A source of messages cannot be read, or its contents are not as expected."""


class AccountingError(ArchiveError):
    """The source and the table do not hold the same messages; nothing was published."""


def text_of(error: BaseException) -> str:
    """The first line of any error's text, safe to show; of bad settings only the first fault."""
    if isinstance(error, ValidationError):
        return first_fault(error)
    text = str(error).strip() or type(error).__name__
    if isinstance(error, OSError) and error.errno and error.strerror:
        if isinstance(error, socket.gaierror):
            text = error.strerror
        elif type(error).__module__ == "builtins":  # errors of OpenSSL have numbers of their own
            # Not its own text: asyncio and Arrow put more numbers into it.
            text = os.strerror(error.errno) + (f": {error.filename}" if error.filename else "")
    return visible(text.splitlines()[0].strip())
