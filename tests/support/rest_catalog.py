"""A stand-in for a REST catalog: what PyIceberg asks of one, answered from an SQLite catalog.

The servers of this protocol (Polaris, Nessie, Lakekeeper) do not come as packages of an index that
we use. As they do, this one wants OAuth2 credentials with a scope, ends tokens, puts a prefix into
its paths, names its endpoints (PyIceberg calls no others), refuses a commit whose requirements do
not hold, and gives keys of the object store to who asks for them, for the one table.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
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

from jobs.warehouse.store import StoreIO
from tests.support.serving import serving

CREDENTIAL = "archivist:secret"
SCOPE = "PRINCIPAL_ROLE:ALL"
WAREHOUSE = "archive"
_KEY = re.compile("key|token")  # of a setting that is a secret
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
        tokens: those of logins that have not ended.
        statuses: what it has answered, counted.
        overtaking: what another writer does before the next commit is looked at.
        failing: a status with which it answers every commit, from now on; before it or after it.
    """

    def __init__(self, folder: Path, warehouse: str, storage: Mapping[str, str]) -> None:
        uri = f"sqlite:///{folder}/rest.db"
        own = {"py-io-impl": f"{StoreIO.__module__}.{StoreIO.__name__}"}
        self.tables = SqlCatalog("rest", uri=uri, warehouse=warehouse, **storage, **own)
        self.storage = storage
        self.tokens: set[str] = set()
        self.statuses: Counter[int] = Counter()
        self.endpoints: list[str] = []
        self.overtaking: Callable[[], object] | None = None
        self.failing: int | None = None
        self.failing_after: int | None = None

    def app(self) -> Flask:
        """The endpoints."""
        app = Flask(__name__)
        app.before_request(self._authorized)
        app.register_error_handler(Exception, _problem)
        app.post("/v1/oauth/tokens")(self._login)
        app.get("/v1/config")(self._config)
        app.after_request(self._count)
        one = "namespaces/<namespace>/tables"
        for method, path, answer in (
            ("GET", "namespaces", self._namespaces),
            ("POST", "namespaces", self._create_namespace),
            ("GET", one, self._list),
            ("POST", one, self._create),
            ("GET", f"{one}/<table>", self._load),
            ("POST", f"{one}/<table>", self._commit),
        ):
            app.add_url_rule(f"/v1/{WAREHOUSE}/{path}", view_func=answer, methods=[method])
            named = path.replace("<", "{").replace(">", "}")
            self.endpoints.append(f"{method} /v1/{{prefix}}/{named}")
        return app

    def _count(self, response: Response) -> Response:
        self.statuses[response.status_code] += 1
        return response

    def _authorized(self) -> tuple[dict[str, Any], int] | None:
        if request.path == "/v1/oauth/tokens":
            return None
        if request.headers.get("Authorization", "").removeprefix("Bearer ") in self.tokens:
            return None
        return _error("NotAuthorizedException", "no token, or a wrong one", 401)

    def _login(self) -> Any:
        form = request.form
        if (form["grant_type"], form["scope"]) != ("client_credentials", SCOPE):
            return {"error": "invalid_scope", "error_description": "wrong scope"}, 400
        if f"{form['client_id']}:{form['client_secret']}" != CREDENTIAL:
            return {"error": "invalid_client", "error_description": "wrong credential"}, 401
        token = secrets.token_urlsafe()
        self.tokens.add(token)
        return {"access_token": token, "token_type": "bearer", "expires_in": 3600}

    def _config(self) -> Any:
        if request.args.get("warehouse") != WAREHOUSE:
            return _error("NotFoundException", "no such warehouse", 404)
        return {"defaults": {}, "overrides": {"prefix": WAREHOUSE}, "endpoints": self.endpoints}

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

    def _load(self, namespace: str, table: str) -> Response:
        return self._answer(self.tables.load_table((namespace, table)))

    def _commit(self, namespace: str, table: str) -> Any:
        if self.failing is not None:
            return _error("ServerError", "not now", self.failing)
        overtaking, self.overtaking = self.overtaking, None
        if overtaking is not None:
            overtaking()
        wanted = CommitTableRequest.model_validate_json(request.get_data())
        current = self.tables.load_table((namespace, table))
        self.tables.commit_table(current, wanted.requirements, wanted.updates)
        if self.failing_after is not None:
            return _error("ServerError", "the connection is gone", self.failing_after)
        return self._load(namespace, table)

    def _answer(self, table: Table) -> Response:
        keys = {name: value for name, value in self.storage.items() if _KEY.search(name)}
        config = {name: value for name, value in self.storage.items() if name not in keys}
        asked = request.headers.get("X-Iceberg-Access-Delegation") == "vended-credentials"
        vended = [{"prefix": f"{table.location()}/", "config": keys}] if asked else []
        return Response(
            f'{{"metadata-location":"{table.metadata_location}","config":{json.dumps(config)},'
            f'"storage-credentials":{json.dumps(vended)},'
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
    with serving(server), closing(catalog.tables):
        yield f"http://127.0.0.1:{server.server_port}", catalog
