"""`nats-transform` and `python -m nats_transform`: the command line.

This name is the same in a checkout and in a wheel, which has `cli` as `nats_transform.cli`.
"""

import gc
import os
import signal
import sys


def interrupted(number: int, frame: object) -> None:
    """Ends this process at once, as nothing has been opened or started yet."""
    start = b"\n" if os.isatty(2) else b""  # below the ^C of the terminal
    os.write(2, start + b"nats-transform: interrupted\n")
    os._exit(128 + number)


def main() -> None:
    """Runs the command line. Its import takes a moment, in which Ctrl-C prints one line too."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
    # Looking for them reads a file of every package of the environment.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # NumPy and SciPy each start a thread for every core, which spin until there is work for them.
    # We have none: their products of matrices are tiny.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # until the modules are there, see `leave_out_modules`
    from cli.main import main as command_line

    sys.exit(command_line())


if __name__ == "__main__":
    main()
