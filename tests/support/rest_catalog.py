"""A stand-in for a REST catalog: what PyIceberg asks of one, answered from an SQLite catalog.

The servers of this protocol (Polaris, Nessie, Lakekeeper) do not come as packages of an index that
we use. As they do, this one wants OAuth2 credentials, puts a prefix into its paths, and gives out
the credentials of the object store with each table.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flask import Flask, Response, request
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from werkzeug.exceptions import HTTPException
from werkzeug.serving import make_server

CREDENTIAL = "archivist:secret"
WAREHOUSE = "archive"
_STATUS = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
}


class Catalog:
    """The server's state.

    Attributes:
        failing: a status with which it answers every commit, from now on; before it or after it.
    """

    def __init__(self, folder: Path, warehouse: str, storage: Mapping[str, str]) -> None:
        uri = f"sqlite:///{folder}/rest.db"
        self.tables = SqlCatalog("rest", uri=uri, warehouse=warehouse, **storage)
        self.storage = storage
        self.token = secrets.token_urlsafe()
        self.failing: int | None = None
        self.failing_after: int | None = None

    def app(self) -> Flask:
        """The endpoints."""
        app = Flask(__name__)
        app.before_request(self._authorized)
        app.register_error_handler(Exception, _problem)
        app.post("/v1/oauth/tokens")(self._login)
        app.get("/v1/config")(self._config)
        app.get(f"/v1/{WAREHOUSE}/namespaces")(self._namespaces)
        app.post(f"/v1/{WAREHOUSE}/namespaces")(self._create_namespace)
        one = f"/v1/{WAREHOUSE}/namespaces/<namespace>/tables"
        app.get(one)(self._list)
        app.post(one)(self._create)
        app.get(f"{one}/<name>")(self._load)
        app.post(f"{one}/<name>")(self._commit)
        return app

    def _authorized(self) -> tuple[dict[str, Any], int] | None:
        if request.path == "/v1/oauth/tokens":
            return None
        if request.headers.get("Authorization") == f"Bearer {self.token}":
            return None
        return _error("NotAuthorizedException", "no token, or a wrong one", 401)

    def _login(self) -> Any:
        given = f"{request.form['client_id']}:{request.form['client_secret']}"
        if given != CREDENTIAL:
            return {"error": "invalid_client", "error_description": "wrong credential"}, 401
        return {"access_token": self.token, "token_type": "bearer", "expires_in": 3600}

    def _config(self) -> Any:
        if request.args.get("warehouse") != WAREHOUSE:
            return _error("NotFoundException", "no such warehouse", 404)
        return {"defaults": {}, "overrides": {"prefix": WAREHOUSE}}

    def _namespaces(self) -> Any:
        return {"namespaces": self.tables.list_namespaces()}

    def _create_namespace(self) -> Any:
        wanted = request.get_json()
        self.tables.create_namespace(tuple(wanted["namespace"]))
        return {"namespace": wanted["namespace"], "properties": {}}

    def _list(self, namespace: str) -> Any:
        found = self.tables.list_tables(namespace)
        return {"identifiers": [{"namespace": one[:-1], "name": one[-1]} for one in found]}

    def _create(self, namespace: str) -> Response:
        # What is null is left out of a request, and then missed by its own model.
        optional = dict.fromkeys(("location", "partition-spec", "write-order"))
        wanted = CreateTableRequest.model_validate(optional | request.get_json())
        return self._answer(
            self.tables.create_table(
                (namespace, wanted.name),
                wanted.table_schema,
                location=wanted.location,
                partition_spec=wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC,
                sort_order=wanted.write_order or UNSORTED_SORT_ORDER,
                properties=wanted.properties,
            )
        )

    def _load(self, namespace: str, name: str) -> Response:
        return self._answer(self.tables.load_table((namespace, name)))

    def _commit(self, namespace: str, name: str) -> Any:
        if self.failing is not None:
            return _error("ServerError", "not now", self.failing)
        wanted = CommitTableRequest.model_validate_json(request.get_data())
        table = self.tables.load_table((namespace, name))
        self.tables.commit_table(table, wanted.requirements, wanted.updates)
        if self.failing_after is not None:
            return _error("ServerError", "the connection is gone", self.failing_after)
        return self._load(namespace, name)

    def _answer(self, table: Table) -> Response:
        config = "".join(f'"{name}":"{value}",' for name, value in self.storage.items())
        return Response(
            f'{{"metadata-location":"{table.metadata_location}","config":{{{config.rstrip(",")}}},'
            f'"metadata":{table.metadata.model_dump_json()}}}',
            content_type="application/json",
        )


def _error(kind: str, message: str, status: int) -> tuple[dict[str, Any], int]:
    return {"error": {"message": message, "type": kind, "code": status}}, status


def _problem(error: Exception) -> tuple[dict[str, Any], int]:
    if isinstance(error, HTTPException):
        return _error(error.name, str(error.description), error.code or 500)
    return _error(type(error).__name__, str(error), _STATUS.get(type(error), 500))


@contextmanager
def rest_catalog(
    folder: Path, warehouse: str, storage: Mapping[str, str]
) -> Iterator[tuple[str, Catalog]]:
    """The URL of a server with nothing in it, and its state.

    Args:
        folder: where it keeps its database.
        warehouse: where the tables are put.
        storage: what a client needs to reach that, as PyIceberg's settings.
    """
    catalog = Catalog(folder, warehouse, storage)
    server = make_server("127.0.0.1", 0, catalog.app(), threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", catalog
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        catalog.tables.close()
