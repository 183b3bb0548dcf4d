"""The errors of the jobs.

NatsTransformError
└── JobError                what a job cannot do; one line for the user
    ├── SparkUnavailable    no usable Java, or no session
    ├── Refused             staged rows that a check did not let through
    ├── WarehouseError      tables that cannot be opened, read or written
    │   └── ConcurrentWrite another writer changed the same rows first
    └── ArchiveError        a source of messages that cannot be read, or is not what it says
        └── AccountingError source and table do not hold the same messages
"""

from __future__ import annotations

import re

from nats_transform.errors import NatsTransformError


class JobError(NatsTransformError):
    """What a job cannot do."""


class SparkUnavailable(JobError):
    """No usable Java, or a Spark session that cannot be had."""


class Refused(JobError):
    """Staged rows that a check did not let through; nothing was published."""


class WarehouseError(JobError):
    """Tables that cannot be opened, read or written."""


class ConcurrentWrite(WarehouseError):
    """Another writer changed the same rows first; nothing of ours was published."""


class ArchiveError(JobError):
    """A source of messages that cannot be read, or is not what it says."""


class AccountingError(ArchiveError):
    """Source and table do not hold the same messages; nothing was published."""


def one_line(error: BaseException) -> str:
    """The text of any error on one line, without Java or Python stack traces."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].strip()


def raised_in_worker(error: BaseException) -> JobError | None:
    """The JobError that a Python worker of Spark raised, found in the text Spark made of it."""
    found = re.search(r"^jobs\.errors\.(\w+): (.*)$", str(error), re.MULTILINE)
    kind = globals().get(found[1]) if found else None
    if found and isinstance(kind, type) and issubclass(kind, JobError):
        return kind(found[2].strip())
    return None
