"""Object stores on this machine: servers of three protocols, each with one empty bucket."""

from __future__ import annotations

import os
import shutil
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from tests.support.serving import serving
from tests.support.spark_cluster import Daemon, daemon, free_port

BUCKET = "archive"
_AZURITE = "azurite@3.37.0"
# The account that this server always has, with the key that its manual names.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass
class ObjectStore:
    """A running server.

    Attributes:
        bucket: the address of its bucket.
        settings: what PyIceberg needs to reach it.
        files: the same by PyArrow alone.
        stop: ends the server early.
    """

    bucket: str
    settings: dict[str, str]
    files: pafs.FileSystem
    stop: Callable[[], object]

    def names(self) -> set[str]:
        """The paths of all files, without the markers of folders."""
        found = self.files.get_file_info(pafs.FileSelector(BUCKET, recursive=True))
        return {entry.path for entry in found if entry.type == pafs.FileType.File}


@contextmanager
def s3(folder: Path) -> Iterator[ObjectStore]:
    """One that speaks S3 and Glue, from the package moto."""
    app = DomainDispatcherApplication(create_backend_app)
    handler = MotoRequestHandler
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=handler)
    endpoint = f"http://127.0.0.1:{server.server_port}"
    with serving(server):
        # moto keeps what earlier tests put there.
        urllib.request.urlopen(f"{endpoint}/moto-api/reset", b"").close()  # noqa: S310
        files = pafs.S3FileSystem(
            access_key="key",
            secret_key="secret",  # noqa: S106 - the server takes any
            endpoint_override=endpoint,
            region="eu-west-1",
            allow_bucket_creation=True,
        )
        files.create_dir(BUCKET)
        settings = {
            "s3.endpoint": endpoint,
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.region": "eu-west-1",
        }
        yield ObjectStore(f"s3://{BUCKET}", settings, files, server.shutdown)


@contextmanager
def gcs(folder: Path) -> Iterator[ObjectStore]:
    """One that speaks the protocol of Google Cloud Storage, from gcp-storage-emulator."""
    program = str(Path(__file__).with_name("gcs_server.py"))
    with daemon([sys.executable, program, BUCKET], folder / "gcs.log", os.environ) as server:
        address = server.wait_for(r"listens on (\S+)\n")[1]
        ends = datetime(2100, 1, 1, tzinfo=UTC)
        files = pafs.GcsFileSystem(
            access_token="token",  # noqa: S106 - the server takes any
            credential_token_expiration=ends,
            scheme="http",
            endpoint_override=address,
        )
        settings = {
            "gcs.service.host": f"http://{address}",
            "gcs.oauth2.token": "token",
            "gcs.oauth2.token-expires-at": f"{ends.timestamp() * 1000:.0f}",
        }
        yield ObjectStore(f"gs://{BUCKET}", settings, files, server.kill)


@contextmanager
def azure(folder: Path) -> Iterator[ObjectStore]:
    """One that speaks the Blob protocol of Azure: Azurite, which npm brings.

    The test is skipped where npm is missing, or cannot bring it.
    """
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm, which brings Azurite, is not installed")
    port = free_port()
    command = [npm, "exec", "--yes", f"--package={_AZURITE}", "--", "azurite-blob"]
    command += ["--blobHost=127.0.0.1", f"--blobPort={port}"]
    command += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with daemon(command, folder / "azurite.log", os.environ, folder) as server:
        _wait_for_azurite(server)
        address = f"127.0.0.1:{port}"
        options = {"blob_storage_authority": address, "dfs_storage_authority": address}
        options |= {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
        files = pafs.AzureFileSystem(_ACCOUNT, account_key=_KEY, **options)
        files.create_dir(BUCKET)
        settings = {"adls.account-name": _ACCOUNT, "adls.account-key": _KEY}
        settings |= {f"adls.{name.replace('_', '-')}": value for name, value in options.items()}
        yield ObjectStore(f"abfss://{BUCKET}", settings, files, server.kill)


def _wait_for_azurite(server: Daemon) -> None:
    while "successfully listens" not in (told := server.log.read_text()):
        if "npm error" in told:
            pytest.skip(f"npm cannot bring {_AZURITE}")
        assert server.process.poll() is None, told
        time.sleep(0.2)
