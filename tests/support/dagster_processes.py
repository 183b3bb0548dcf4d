"""Dagster's own processes on a project: a webserver to ask, and a daemon."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.support.dagster_project import Project
from tests.support.programs import BIN, ended
from tests.support.spark_cluster import Daemon, free_port
from tests.support.spark_cluster import daemon as process

# As the demo and the documentation have it.
ONE_WRITER = """concurrency:
  pools:
    default_limit: 1
    granularity: run
"""
# Where no daemon runs that would take a run from the queue.
NO_QUEUE = """run_coordinator:
  module: dagster.core.run_coordinator
  class: DefaultRunCoordinator
"""

LAUNCH = """mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}"""
RETRY = """mutation ($params: ReexecutionParams!) {
  launchPipelineReexecution(reexecutionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}"""
RUN = """query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"""


class Webserver:
    """A webserver on a project."""

    def __init__(self, url: str, location: str) -> None:
        self.url = url
        self.location = location

    def ask(self, query: str, **variables: Any) -> Any:
        """The data of a GraphQL answer."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.url}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310
            data = json.load(answer)
        assert "errors" not in data, data
        return data["data"]

    def launch(self, assets: Sequence[Sequence[str]], tags: Mapping[str, str]) -> str:
        """The id of a new run of these assets."""
        selector = {
            "repositoryLocationName": self.location,
            "repositoryName": "__repository__",
            "jobName": "__ASSET_JOB",
            "assetSelection": [{"path": list(path)} for path in assets],
        }
        metadata = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        params = {"selector": selector, "mode": "default", "executionMetadata": metadata}
        return self._launched(self.ask(LAUNCH, params=params)["launchPipelineExecution"])

    def retry(self, run: str) -> str:
        """The id of a run that does what another has not done."""
        params = {"parentRunId": run, "strategy": "FROM_FAILURE"}
        return self._launched(self.ask(RETRY, params=params)["launchPipelineReexecution"])

    def _launched(self, answer: Any) -> str:
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def status(self, run: str) -> str:
        """The status of a run."""
        return str(self.ask(RUN, id=run)["runOrError"]["status"])

    def end(self, run: str) -> str:
        """The status of a run when it is over."""
        while (status := self.status(run)) not in ("SUCCESS", "FAILURE", "CANCELED"):
            time.sleep(1)  # pytest's timeout ends it
        return status


def environment(project: Project) -> dict[str, str]:
    """What a process needs to find the project, and none of the session of the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return kept | {
        "DAGSTER_HOME": str(project.root / "dagster"),
        "PYTHONPATH": f"{project.root / 'src'}:{Path(__file__).parents[2]}",
        "PYTHONWARNINGS": "ignore",
        "NATS_TRANSFORM_SPARK_MASTER": "local[1]",
        "PYSPARK_PYTHON": sys.executable,  # of workers, where the session is another process
    }


def run_dg(project: Project, *arguments: str, code: int = 0) -> str:
    """All that `dg` says in a project, where it ends with this code; nothing asks for Spark."""
    given = environment(project) | {"COLUMNS": "200", "VIRTUAL_ENV": sys.prefix}
    del given["NATS_TRANSFORM_SPARK_MASTER"]
    done = ended(BIN / "dg", *arguments, cwd=project.root, env=given)
    assert done.returncode == code, done.stdout + done.stderr
    return str(done.stdout + done.stderr)


def _process(project: Project, program: str, *arguments: str) -> AbstractContextManager[Daemon]:
    log = project.root / f"{program}.log"
    return process([str(BIN / program), *arguments], log, environment(project), project.root)


@contextmanager
def webserver(project: Project, *workspace: str) -> Iterator[Webserver]:
    """A dagster-webserver that answers.

    Without options for a workspace a code server of its own executes what is launched.
    """
    module, port = f"{project.name}.definitions", free_port()
    command = ["dagster-webserver", "-h", "127.0.0.1", "-p", str(port)]
    with _process(project, *command, *(workspace or ("-m", module))) as started:
        server = Webserver(f"http://127.0.0.1:{port}", module)
        while True:
            try:
                server.ask("{ version }")
                break
            except urllib.error.URLError:
                assert started.process.poll() is None, started.log.read_text()
                time.sleep(0.5)  # pytest's timeout ends it
        yield server


def daemon(project: Project) -> AbstractContextManager[Daemon]:
    """A dagster-daemon, with a code server of its own."""
    return _process(project, "dagster-daemon", "run", "-m", f"{project.name}.definitions")
