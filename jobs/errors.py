"""The errors of the jobs.

NatsTransformError
└── JobError                what a job cannot do; one line for the user
    ├── SparkUnavailable    no usable Java, or no session
    ├── Refused             staged rows that a check did not let through
    ├── WarehouseError      tables that cannot be opened, read or written
    │   ├── NoTable         a table that no job has made yet
    │   └── ConcurrentWrite another writer changed the same rows first
    └── ArchiveError        a source of messages that cannot be read, or is not what it says
        └── AccountingError source and table do not hold the same messages
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError
from pydantic import ValidationError
from pyspark.errors import PySparkException

from nats_transform.errors import NatsTransformError
from nats_transform.untrusted import visible

# What Spark raises; pyspark leaves some failures of the JVM as they come through py4j, and py4j
# those of the socket to a JVM that is no longer there.
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)


class JobError(NatsTransformError):
    """What a job cannot do."""


class SparkUnavailable(JobError):
    """No usable Java, or a Spark session that cannot be had."""


class Refused(JobError):
    """Staged rows that a check did not let through; nothing was published."""


class WarehouseError(JobError):
    """Tables that cannot be opened, read or written."""


class NoTable(WarehouseError):
    """A table that no job has made yet."""


class ConcurrentWrite(WarehouseError):
    """Another writer changed the same rows first; nothing of ours was published."""


class ArchiveError(JobError):
    """A source of messages that cannot be read, or is not what it says."""


class AccountingError(ArchiveError):
    """Source and table do not hold the same messages; nothing was published."""


def one_line(error: BaseException) -> str:
    """What any error says, on one line that is safe to show; of bad settings, the first one."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        text = first["msg"].removeprefix("Value error, ")
        return visible(f"{place}: {text}" if place else text)
    text = str(error).strip() or type(error).__name__
    return visible(text.splitlines()[0].strip())


def job_error(error: Exception) -> JobError:
    """What Spark raised as one of our errors, on one line.

    An error that our code raised in a Python worker comes back as text in a stack trace; it is
    found there by its name. Anything else is the innermost cause.
    """
    try:
        text = str(error)
    except (Py4JError, ConnectionError):  # py4j asks the JVM for the text
        return _gone()
    # All of py4j's own that says nothing of what went on in the JVM.
    is_mute = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    if isinstance(error, ConnectionError) or (is_mute and "\n" not in text.strip()):
        return _gone()
    for line in text.splitlines():
        if found := re.match(r"(?:jobs|nats_transform)\.[a-z_.]*\.([A-Z]\w*): (.+)", line):
            # An error of the library has no kind of its own here.
            return _kinds().get(found[1], JobError)(found[2].strip())
    causes = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    cause = causes[-1].removeprefix("Caused by: ").strip() if causes else one_line(error)
    if file := re.search(r"error while reading file (.+?)\.\s+SQLSTATE", text):
        return WarehouseError(f"{file[1]} cannot be read: {cause}")
    return JobError(f"Spark: {cause}")


def _gone() -> JobError:
    return JobError(
        "Spark's JVM is gone: killed, or out of memory; its log says which, then run this again"
    )


def _kinds() -> dict[str, type[JobError]]:
    found, left = dict[str, type[JobError]](), [JobError]
    while left:
        kind = left.pop()
        found[kind.__name__] = kind
        left += kind.__subclasses__()
    return found
