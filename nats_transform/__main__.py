"""`nats-transform` and `python -m nats_transform`: the command line.

The same name in a checkout and in a wheel, which holds `cli` as `nats_transform.cli`.
"""

import os
import signal
import sys


def interrupted(number: int, frame: object) -> None:
    """Ends this process at once, as nothing has been opened or started yet."""
    start = b"\n" if os.isatty(2) else b""  # below the ^C of the terminal
    os.write(2, start + b"nats-transform: interrupted\n")
    os._exit(128 + number)


def main() -> None:
    """Runs the command line, which takes a moment to import: Ctrl-C is quiet then, too."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
    from cli.main import main as command_line

    sys.exit(command_line())


if __name__ == "__main__":
    main()
