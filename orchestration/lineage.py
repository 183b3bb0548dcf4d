"""The sensor that tells a catalog of lineage (OpenLineage) what runs read and made.

It works in the code server, beside all other sensors, so a catalog that is slow, broken or hostile
must cost it neither time nor memory, and no password of its address may reach a log.
"""

from __future__ import annotations

import logging
import os
import re
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any

import dagster as dg
from requests import ConnectionError as NoConnection
from requests import Response, Session

from nats_transform.errors import InvalidValue

VARIABLE = "OPENLINEAGE_URL"
PATIENCE = 5.0
"""Seconds for an event with its answer."""
PAUSE = 30.0
"""Seconds in which a catalog that failed is left alone: a tick has up to 1000 events."""


class Catalog(Session):
    """Sends events to the catalog, each within `PATIENCE`, and to nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self._again = 0.0
        self._asking: Thread | None = None

    def post(self, url: str | bytes, data: Any = None, json: Any = None, **more: Any) -> Response:
        """The answer, whose body is not read.

        Raises:
            ConnectionError: no good answer in time, or the catalog failed a moment ago.
        """
        if monotonic() < self._again or (self._asking is not None and self._asking.is_alive()):
            raise NoConnection("we leave the catalog alone for a while after it fails")
        answers: SimpleQueue[Response | Exception] = SimpleQueue()

        def ask() -> None:
            # A redirect would send our events elsewhere; a body may have no end.
            asked = {**more, "stream": True, "allow_redirects": False}
            try:
                answers.put(super(Catalog, self).post(url, data=data, json=json, **asked))
            except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
                answers.put(error)

        # A timeout of requests begins anew with every byte.
        self._asking = Thread(target=ask, name="openlineage", daemon=True)
        self._asking.start()
        try:
            answer = answers.get(timeout=PATIENCE)
        except Empty:
            answer = NoConnection(f"no answer within {PATIENCE:g} seconds")
        if isinstance(answer, Response):
            self._asking.join()
            if answer.status_code < 300:
                return answer
            answer.close()
            answer = NoConnection(f"it answers with status {answer.status_code}")
        self._again = monotonic() + PAUSE
        raise answer


def lineage_sensors() -> list[dg.SensorDefinition]:
    """The sensor that sends runs and lineage to where `OPENLINEAGE_URL` says, if it does.

    Raises:
        ImportError: the extra is not installed.
        ValueError: the address is none.
    """
    address = os.environ.get(VARIABLE)
    if not address:
        return []
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        raise ImportError(
            f"{VARIABLE} is set: pip install 'nats-transform[openlineage]', or unset it"
        ) from None
    from openlineage.client.transport.http import HttpTransport
    from openlineage.client.transport.http_common import DEFAULT_RETRY_CONFIG

    # Five more tries take 9 seconds an event, in which no other sensor is asked.
    DEFAULT_RETRY_CONFIG.update(total=0, connect=0, read=0)
    try:
        client = OpenLineageClient()
        from dagster_openlineage import openlineage_sensor, sensor
        from dagster_openlineage.adapter import OpenLineageAdapter
        from dagster_openlineage.emitter import OpenLineageEmitter
    except ValueError:  # its text has the password
        raise InvalidValue("catalog-address", variable=VARIABLE) from None
    if isinstance(client.transport, HttpTransport):
        client.transport.session = Catalog()
    sensor._ADAPTER = OpenLineageAdapter(emitter=OpenLineageEmitter(client=client))
    logging.getLogger("dagster_openlineage.emit").addFilter(_without_password)
    # By itself it would send 30 events every 5 minutes; a run has more.
    sensors: dg.SensorDefinition = openlineage_sensor(
        include_asset_events=True, minimum_interval_seconds=30, record_filter_limit=1000
    )
    return [sensors]


def _without_password(record: logging.LogRecord) -> bool:
    """Take the user and password out of addresses in a line of a log."""
    record.msg = re.sub(r"//[^\s]*@", "//", record.getMessage())
    record.args = ()
    return True
