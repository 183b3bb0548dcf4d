"""Turns errors of Spark into ours. It is not in `errors`, because that module needs no Spark."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from numbers import Integral

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from jobs.errors import JobError, text_of
from nats_transform.errors import NatsTransformError

# What Spark raises; pyspark leaves some failures of the JVM as they come through py4j, and py4j
# those of the socket to a JVM that is no longer there.
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)


# What a Python worker raised: the line after the indented ones of its stack trace.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")
_NOTE = "its code and fields: "


def note_fields(error: NatsTransformError) -> None:
    """Lets the stack trace of an error in a Python worker tell `job_error` its code and fields."""
    error.add_note(_NOTE + json.dumps([error.code, error.fields], default=_plain))


def _plain(value: object) -> object:
    return int(value) if isinstance(value, Integral) else str(value)


def job_error(error: Exception) -> JobError:
    """An error that Spark raised, as one of our errors with a text of one line.

    An error that our code raised in a Python worker comes back as text in a stack trace; this
    function finds it there by its name. For any other error the text is the innermost cause.
    """
    try:
        text = str(error)
    except (Py4JError, ConnectionError):  # py4j asks the JVM for the text
        return JobError("spark-gone")
    if _is_of_a_lost_server(error, text):
        return JobError("spark-connect-gone")
    # Errors of py4j itself do not say what happened in the JVM.
    is_mute = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    if isinstance(error, ConnectionError) or (is_mute and "\n" not in text.strip()):
        return JobError("spark-gone")
    for line in text.splitlines():
        if raised := re.match(r"(?:jobs|nats_transform)\.[a-z_.]*\.([A-Z]\w*): (.+)", line):
            # An error of the library has no kind of its own here.
            return _as_noted(_kinds().get(raised[1], JobError), raised[2].strip(), text)
    causes = _RAISED.findall(text) or re.findall("(?m)^Caused by: (.*)", text) or [text_of(error)]
    return JobError("spark-failed", cause=causes[-1].strip())


def _as_noted(kind: type[JobError], reason: str, trace: str) -> JobError:
    """The error with its code and fields, if the trace has some that say the same."""
    # Nothing is noted, or somebody wrote a note that is none of ours.
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        code, fields = json.loads(trace.partition(f"\n{_NOTE}")[2].splitlines()[0])
        if str(noted := kind(code, **fields)) == reason:
            return noted
    return kind("refused", reason=reason)


def _is_of_a_lost_server(error: Exception, text: str) -> bool:
    """Whether Spark Connect says that nobody answers, or somebody who does not know the session."""
    code = error.getGrpcStatusCode() if hasattr(error, "getGrpcStatusCode") else None
    return getattr(code, "name", "") == "UNAVAILABLE" or bool(
        re.search(r"INVALID_HANDLE\.(SESSION|OPERATION)_|RESPONSE_ALREADY_RECEIVED", text)
    )


def _kinds() -> dict[str, type[JobError]]:
    by_name, left = dict[str, type[JobError]](), [JobError]
    while left:
        kind = left.pop()
        by_name[kind.__name__] = kind
        left += kind.__subclasses__()
    return by_name
