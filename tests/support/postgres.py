"""A private Postgres for tests, on a free loopback port."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.support.spark_cluster import free_port

USER = "archive"


def _programs() -> Path:
    """The folder of Postgres' programs; Debian keeps those of a server away from PATH."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not versions:
        pytest.skip("no Postgres is installed")
    return versions[-1].parent


@dataclass
class Postgres:
    """A running server.

    Attributes:
        password: of the user `archive`, who may do everything.
    """

    port: int
    password: str
    home: Path
    process: subprocess.Popen[bytes] | None = None

    def connect(self, database: str = "postgres") -> Any:
        """A connection that commits by itself."""
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self.password, dbname=database
        )
        connection.autocommit = True
        return connection

    def create(self, database: str) -> None:
        """Makes a database."""
        with contextlib.closing(self.connect()) as connection:
            connection.cursor().execute(f"CREATE DATABASE {database}")

    def uri(self, database: str) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg2://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def environment(self) -> dict[str, str]:
        """For Postgres' own programs."""
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": USER,
            "PGPASSWORD": self.password,
        }

    def start(self) -> None:
        """Starts it, and waits until it takes connections."""
        command = [str(_programs() / "postgres"), "-D", str(self.home / "data")]
        command += ["-p", str(self.port), "-k", str(self.home), "-c", "listen_addresses=127.0.0.1"]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.home, **_somebody()
            )
        while True:
            try:
                self.connect().close()
                return
            except psycopg2.OperationalError:
                log_text = (self.home / "log").read_text()
                assert self.process.poll() is None, log_text
                time.sleep(0.1)  # pytest's timeout ends it

    def stop(self) -> None:
        """Ends it at once, with every connection, as a failing host would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()  # pytest's timeout ends it
            self.process = None


def _somebody() -> dict[str, Any]:
    """Postgres refuses to run as root."""
    if os.getuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def postgres(password: str = "p@ss:word/%1") -> Iterator[Postgres]:  # noqa: S107 - a test's
    """A server with a new, empty data folder."""
    programs = _programs()
    # Not in pytest's folder, which its owner alone may enter.
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        home = Path(folder)
        (home / "password").write_text(password)
        somebody = _somebody()
        if somebody:
            for path in (home, home / "password"):
                os.chown(path, somebody["user"], somebody["group"])
        command = [str(programs / "initdb"), "-D", str(home / "data"), "-U", USER, "-E", "UTF8"]
        command += ["--auth", "scram-sha-256", "--pwfile", str(home / "password"), "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, cwd=home, **somebody)
        server = Postgres(free_port(), password, home)
        try:
            server.start()
            yield server
        finally:
            server.stop()
