"""What the tests of the jobs share: an empty warehouse, and streams on the module's server."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import Table

from jobs.jetstream.process import NatsServer
from jobs.session import SessionOnDemand
from jobs.settings.connection import NatsSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import MESSAGES
from jobs.warehouse.tables import open_table
from tests.support.jobs import HERE
from tests.support.killing import Work, work_in
from tests.support.streams import Stream, new_stream


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """An empty warehouse; its path has a space."""
    return Warehouse(dir=tmp_path / "ware house")


@pytest.fixture
def table(warehouse: Warehouse) -> Table:
    """The table of its messages, which has none."""
    return open_table(warehouse, MESSAGES, create=True)


@pytest.fixture
def here() -> SessionOnDemand:
    """Lets a job do its work in this process, without Spark."""
    return HERE


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """A transform that is to be done."""
    return work_in(tmp_path)


@pytest.fixture
def make_stream(nats_server: NatsServer) -> Callable[..., Stream]:
    """Makes streams with a name of their own that capture `<name>.>`."""
    return functools.partial(new_stream, nats_server)


@pytest.fixture
def stream(make_stream: Callable[..., Stream]) -> Stream:
    """An empty stream of its own."""
    return make_stream()


@pytest.fixture(scope="module")
def shared_stream(nats_server: NatsServer) -> Stream:
    """A stream with 100 messages, for tests that only read."""
    stream = new_stream(nats_server)
    stream.count(100)
    return stream


@pytest.fixture
def nats(nats_server: NatsServer) -> NatsSettings:
    """How to reach the module's server."""
    return NatsSettings(servers=nats_server.url)
