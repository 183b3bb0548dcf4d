"""Turns errors of Spark into ours. It is not in `errors`, because that module needs no Spark."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from jobs.errors import JobError, text_of

# What Spark raises; pyspark leaves some failures of the JVM as they come through py4j, and py4j
# those of the socket to a JVM that is no longer there.
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)


# What a Python worker raised: the line after the indented ones of its stack trace.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)")


def job_error(error: Exception) -> JobError:
    """An error that Spark raised, as one of our errors with a text of one line.

    An error that our code raised in a Python worker comes back as text in a stack trace; this
    function finds it there by its name. For any other error the text is the innermost cause.
    """
    try:
        text = str(error)
    except (Py4JError, ConnectionError):  # py4j asks the JVM for the text
        return _gone()
    if _is_of_a_lost_server(error, text):
        return JobError("spark-connect-gone")
    # Errors of py4j itself do not say what happened in the JVM.
    is_mute = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    if isinstance(error, ConnectionError) or (is_mute and "\n" not in text.strip()):
        return _gone()
    for line in text.splitlines():
        if raised := re.match(r"(?:jobs|nats_transform)\.[a-z_.]*\.([A-Z]\w*): (.+)", line):
            # An error of the library has no kind of its own here.
            return _kinds().get(raised[1], JobError)("refused", reason=raised[2].strip())
    causes = _RAISED.findall(text) or re.findall("(?m)^Caused by: (.*)", text) or [text_of(error)]
    return JobError("spark-failed", cause=causes[-1].strip())


def _is_of_a_lost_server(error: Exception, text: str) -> bool:
    """Whether Spark Connect says that nobody answers, or somebody who does not know the session."""
    code = error.getGrpcStatusCode() if hasattr(error, "getGrpcStatusCode") else None
    return getattr(code, "name", "") == "UNAVAILABLE" or bool(
        re.search(r"INVALID_HANDLE\.(SESSION|OPERATION)_|RESPONSE_ALREADY_RECEIVED", text)
    )


def _gone() -> JobError:
    return JobError("spark-gone")


def _kinds() -> dict[str, type[JobError]]:
    by_name, left = dict[str, type[JobError]](), [JobError]
    while left:
        kind = left.pop()
        by_name[kind.__name__] = kind
        left += kind.__subclasses__()
    return by_name
