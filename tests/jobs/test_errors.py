"""Errors that come back from Spark are ours again, on one line."""

from __future__ import annotations

import socket
import ssl

import pytest
from pyspark.errors import PythonException

from jobs.errors import ArchiveError, JobError, text_of
from jobs.jetstream.answers import ApiError
from jobs.spark_errors import job_error, note_fields
from nats_transform.errors import KernelUnavailable, NatsTransformError
from tests.support.refused import refused


def from_a_worker(error: Exception) -> Exception:
    """What the driver raises when a Python worker has raised an error."""
    kind = type(error)
    trace = "\n".join(
        [
            "An exception was thrown from the Python worker. Please see the stack trace below.",
            "Traceback (most recent call last):",
            '  File "/opt/project/jobs/jetstream/reader.py", line 1, in read',
            f"{kind.__module__}.{kind.__qualname__}: {error}",
            *getattr(error, "__notes__", ()),
            "",
            "\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)",
        ]
    )
    return PythonException(trace)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ArchiveError("server-does-not-answer", where="hub"), ArchiveError),
        (ApiError("server-does-not-answer", where="hub"), ApiError),
        (KernelUnavailable("offsets-broken"), JobError),
    ],
    ids=["of the jobs", "of a wing of the jobs", "of the library"],
)
def test_an_error_of_a_worker(raised: NatsTransformError, kind: type[JobError]) -> None:
    found = job_error(from_a_worker(raised))
    assert (type(found), str(found)) == (kind, str(raised))
    note_fields(raised)
    found = job_error(from_a_worker(raised))
    assert (type(found), str(found)) == (kind, str(raised))
    assert (found.code, found.fields) == (raised.code, raised.fields)


@pytest.mark.parametrize(
    "note",
    ["", "7", "[]", '["no-such", {}]', '["row-groups-differ", {}]', '["canceled", {}]', "[" * 9999],
    ids=range(7),
)
def test_what_a_trace_notes_is_not_believed(note: str) -> None:
    raised = ArchiveError("server-does-not-answer", where="hub")
    raised.add_note(f"its code and fields: {note}")
    with refused(ArchiveError, "refused", reason=str(raised)):
        raise job_error(from_a_worker(raised))


CAUSED = "Job aborted.\nCaused by: org.apache.spark.api.python.PythonException: "


@pytest.mark.parametrize("text", ["", CAUSED], ids=["plain", "as the cause of a job's"])
def test_what_is_not_ours_is_its_cause_on_one_line(text: str) -> None:
    with refused(JobError, "spark-failed", cause="builtins.ValueError: planted"):
        raise job_error(PythonException(f"{text}{from_a_worker(ValueError('planted'))}"))


NO_FILE = "No such file or directory"
REFUSED = "Connect call failed ('127.0.0.1', 4222)"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FileNotFoundError(2, NO_FILE, "a/b"), f"{NO_FILE}: a/b"),
        (ConnectionRefusedError(111, REFUSED), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL] bad certificate"), "bad certificate"),
        (OSError("access denied"), "access denied"),
    ],
    ids=["file", "of asyncio", "name of a host", "of OpenSSL", "without a number"],
)
def test_an_error_of_the_system_is_told_in_words(error: OSError, told: str) -> None:
    assert text_of(error).endswith(told)
    assert "rrno" not in text_of(error)
