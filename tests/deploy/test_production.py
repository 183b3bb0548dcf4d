"""The production set-up without containers: every process is real, and a schedule runs.

Postgres keeps what Dagster remembers and the Iceberg catalog; code server, webserver and daemon are
processes of their own; the work is done by a Spark standalone cluster.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyiceberg.catalog import load_catalog

from tests.deploy.parts import COUNT, ENDED, PASSWORD, ask, make_archive, runs_that, until
from tests.support.postgres import Postgres, postgres
from tests.support.programs import BIN, ended, output_of
from tests.support.spark_cluster import Cluster, Daemon, daemon, free_port, spark_cluster

pytestmark = [pytest.mark.dagster, pytest.mark.slow, pytest.mark.cluster]

ROOT = Path(__file__).parents[2]
WITH_SECRETS = str(ROOT / "deploy" / "with_secrets.sh")


@dataclass
class Production:
    """All processes, running.

    Attributes:
        day: whose messages are there.
    """

    root: Path
    home: Path
    url: str
    code_port: int
    environment: dict[str, str]
    database: Postgres
    cluster: Cluster
    day: date
    daemons: dict[str, Daemon]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command with the secrets, as the docs have it."""
        return ended(WITH_SECRETS, *command, cwd=ROOT, env=self.environment)

    def rows(self) -> list[dict[str, Any]]:
        """What the table of the archive has, by the catalog in Postgres."""
        uri = self.database.uri("catalog").replace(PASSWORD, quote(PASSWORD, safe=""))
        catalog = load_catalog("archive", type="sql", uri=uri)
        table = catalog.load_table(("nats", "transformed_messages"))
        found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["seq"])


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("production")
    day = datetime.now(UTC).date() - timedelta(days=1)
    project = make_project(root, day)
    with ExitStack() as running:
        database = running.enter_context(postgres(PASSWORD))
        for name in ("dagster", "catalog"):
            database.create(name)
        cluster = running.enter_context(spark_cluster(root / "spark"))
        code_port, web_port = free_port(), free_port()
        home = make_home(root, database.port, code_port)
        environment = (
            {name: value for name, value in os.environ.items() if not name.startswith("DAGSTER")}
            | cluster.environment
            | {
                "PATH": f"{BIN}:{os.environ['PATH']}",
                "PYTHONPATH": str(project),
                "PYTHONWARNINGS": "ignore",
                "DAGSTER_HOME": str(home),
                "PYICEBERG_HOME": str(home),
                "DAGSTER_POSTGRES_HOST": "127.0.0.1",
                "DAGSTER_POSTGRES_DB": "dagster",
                "DAGSTER_POSTGRES_USER": "archive",
                "NATS_TRANSFORM_CATALOG_HOST": f"127.0.0.1:{database.port}",
                "POSTGRES_PASSWORD_FILE": str(root / "password"),
                "NATS_TRANSFORM_LOGS": str(root / "logs"),
                "NATS_TRANSFORM_CODE_HOST": "127.0.0.1",
                "NATS_TRANSFORM_SPARK_MASTER": cluster.master,
            }
        )
        url = f"http://127.0.0.1:{web_port}"
        made = Production(root, home, url, code_port, environment, database, cluster, day, {})

        def serve(name: str, *command: str) -> None:
            made.daemons[name] = running.enter_context(
                daemon([WITH_SECRETS, *command], root / f"{name}.log", environment, project)
            )

        serve(
            "code", "dagster", "api", "grpc", "--host", "127.0.0.1", "--port", str(code_port),
            "--module-name", "orchestration.definitions",
        )  # fmt: skip
        health = ["dagster", "api", "grpc-health-check", "--port", str(code_port)]
        until(lambda: made.run(*health).returncode == 0)
        workspace = str(home / "workspace.yaml")
        serve(
            "webserver", "dagster-webserver", "--host", "127.0.0.1", "--port", str(web_port),
            "--workspace", workspace,
        )  # fmt: skip
        until(lambda: ask(url, "{ version }"))
        serve("daemon", "dagster-daemon", "run", "--workspace", workspace)
        yield made


def make_project(root: Path, day: date) -> Path:
    """A copy of our Dagster project with one archive, as the image has it."""
    project = root / "project"
    shutil.copytree(
        ROOT / "orchestration",
        project / "orchestration",
        ignore=shutil.ignore_patterns("shop*", "__pycache__"),
    )
    shutil.copy(ROOT / "pyproject.toml", project)
    make_archive(project / "orchestration" / "defs" / "orders", day, root / "reports")
    return project


def make_home(root: Path, database_port: int, code_port: int) -> Path:
    """A DAGSTER_HOME from the files of deploy/production; only ports and folders differ."""
    home = root / "home"
    home.mkdir()
    (root / "logs").mkdir()
    (root / "password").write_text(PASSWORD + "\n")
    changes = {
        "dagster.yaml": ("port: 5432", f"port: {database_port}"),
        "workspace.yaml": ("port: 4000", f"port: {code_port}"),
        "pyiceberg.yaml": ("file:///srv/warehouse", f"file://{root}/warehouse"),
    }
    for name, (ours, here) in changes.items():
        text = (ROOT / "deploy" / "production" / name).read_text()
        assert ours in text
        target = home / (".pyiceberg.yaml" if name == "pyiceberg.yaml" else name)
        # The schedule ticks every minute: runs wait in the queue and not beside each other.
        text = text.replace("max_concurrent_runs: 4", "max_concurrent_runs: 1")
        target.write_text(text.replace(ours, here))
    return home


def test_a_tick_of_the_schedule_runs_to_the_end(production: Production) -> None:
    runs = until(lambda: runs_that(production.url, *ENDED))
    logs = production.daemons["code"].log.read_text()[-5000:]
    assert {run["status"] for run in runs} == {"SUCCESS"}, (runs, logs)
    assert runs[0]["tags"]["dagster/schedule_name"] == "orders_nightly"
    assert runs[0]["tags"]["dagster/partition"] == production.day.isoformat()
    rows = production.rows()
    assert [row["seq"] for row in rows] == list(range(1, COUNT + 1))
    assert {row["fate"] for row in rows} == {"mapped"}
    assert {row["mapped_subject"].rsplit(".", 1)[0] for row in rows} == {"orders.v1", "orders.v2"}
    # The run was a driver, and the cluster's executors did the work.
    logs = [worker.log.read_text() for worker in production.cluster.workers]
    assert any("Asked to launch executor" in log for log in logs), logs


def test_health(production: Production) -> None:
    assert until(lambda: production.run("dagster-daemon", "liveness-check").returncode == 0)
    page = f"{production.url}/server_info"
    with urllib.request.urlopen(page, timeout=600) as answer:  # noqa: S310 - our own server
        assert answer.status == 200


def test_maintenance_of_the_catalog_in_postgres(production: Production) -> None:
    done = production.run("nats-transform", "maintain", "--catalog", "archive", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"]["snapshots_left"] >= 1


def test_a_backup_is_restored(production: Production) -> None:
    """With the commands of docs/operations.md, into databases that lost everything."""
    for name in ("daemon", "code"):
        process = production.daemons[name].process
        process.terminate()
        process.wait()  # pytest's timeout ends it
        until(lambda: not runs_that(production.url, "STARTING", "STARTED"))
    before = production.rows()
    text = (ROOT / "docs" / "operations.md").read_text()
    dumps = re.findall(r"^pg_dump .*$", text, re.MULTILINE)
    restores = re.findall(r"^pg_restore .*$", text, re.MULTILINE)
    assert len(dumps) == len(restores) == 2
    environment = os.environ | production.database.environment()

    for command in dumps:
        output_of(*command.split(), cwd=production.root, env=environment)
    with production.database.connect("catalog") as connection:
        connection.cursor().execute("TRUNCATE iceberg_tables")
    for command in restores:
        output_of(*command.split(), cwd=production.root, env=environment)
    assert production.rows() == before


def test_the_password_is_nowhere(production: Production) -> None:
    """Not in logs, metadata, reports, tables or what Dagster keeps in its database."""
    environment = os.environ | production.database.environment()
    dump = output_of("pg_dump", "dagster", env=environment, text=False)
    (production.root / "everything.sql").write_bytes(dump)
    needles = [PASSWORD.encode(), quote(PASSWORD, safe="").encode()]
    found = [
        str(path)
        for path in production.root.rglob("*")
        if path.is_file() and path.name != "password"
        if any(needle in path.read_bytes() for needle in needles)
    ]
    assert found == []
    assert len(dump) > 10_000
