"""A real dagster-webserver: through GraphQL, and once through a headless Chromium."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.orchestration.conftest import Project

# A webserver, a code server and a run of its own: half a minute and more.
pytestmark = [pytest.mark.dagster, pytest.mark.slow]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

LAUNCH = """mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}"""
ASSETS = """{ assetNodes {
  assetKey { path } isPartitioned
  assetChecksOrError { ... on AssetChecks { checks { name blocking } } }
} }"""
RUN = """query ($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"""
MATERIALIZATIONS = """{ assetNodes {
  assetKey { path }
  assetMaterializations(limit: 1) { partition metadataEntries { label __typename } }
} }"""


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
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            data = json.load(answer)
        assert "errors" not in data, data
        return data["data"]

    def launch(self, assets: list[list[str]], tags: dict[str, str]) -> str:
        """The status of a run of these assets, when it is over."""
        selector = {
            "repositoryLocationName": self.location,
            "repositoryName": "__repository__",
            "jobName": "__ASSET_JOB",
            "assetSelection": [{"path": path} for path in assets],
        }
        metadata = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        params = {"selector": selector, "mode": "default", "executionMetadata": metadata}
        launched = self.ask(LAUNCH, params=params)["launchPipelineExecution"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        end = time.monotonic() + 240
        status = ""
        while status not in ("SUCCESS", "FAILURE", "CANCELED") and time.monotonic() < end:
            time.sleep(1)
            status = self.ask(RUN, id=launched["run"]["runId"])["runOrError"]["status"]
        return status


@contextmanager
def running(project: Project) -> Iterator[Webserver]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    module = f"{project.name}.definitions"
    command = [str(Path(sys.executable).parent / "dagster-webserver"), "-m", module]
    command += ["-h", "127.0.0.1", "-p", str(port)]
    environment = os.environ | {
        "DAGSTER_HOME": str(project.root / "dagster"),
        "PYTHONPATH": str(project.root / "src"),
        "PYTHONWARNINGS": "ignore",
    }
    log = project.root / "webserver.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            command, cwd=project.root, env=environment, stdout=output, stderr=output
        ) as process,
    ):
        try:
            server = Webserver(f"http://127.0.0.1:{port}", module)
            end = time.monotonic() + 120
            while True:
                try:
                    server.ask("{ version }")
                    break
                except urllib.error.URLError:
                    assert process.poll() is None, log.read_text()
                    assert time.monotonic() < end, log.read_text()
                    time.sleep(0.5)
            yield server
        finally:
            process.terminate()
            process.wait(60)


def page(url: str) -> str:
    """The page as a browser has it once its scripts have run."""
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH: apt-get install chromium")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=30000", "--window-size=1600,2400", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.timeout(600)
def test_graphql_and_browser(bare_project: Project) -> None:
    bare_project.add("east", count=200)
    day = {"dagster/partition": "2026-03-01"}
    # No daemon runs here that would take a run from the queue.
    with (bare_project.root / "dagster" / "dagster.yaml").open("a") as file:
        file.write(
            "run_coordinator:\n"
            "  module: dagster._core.run_coordinator\n"
            "  class: DefaultRunCoordinator\n"
        )
    with running(bare_project) as server:
        nodes = {
            "/".join(node["assetKey"]["path"]): node for node in server.ask(ASSETS)["assetNodes"]
        }
        assert len(nodes) == 5
        checks = nodes["east/transformed_messages"]["assetChecksOrError"]["checks"]
        assert {check["name"]: check["blocking"] for check in checks}["weights"] is True

        assert server.launch([["east", "mapping_version"]], {}) == "SUCCESS"
        assets = ["messages", "subject_census", "transformed_messages", "weight_audit"]
        assert server.launch([["east", asset] for asset in assets], day) == "SUCCESS"

        made = {
            node["assetKey"]["path"][-1]: node["assetMaterializations"][0]
            for node in server.ask(MATERIALIZATIONS)["assetNodes"]
        }
        kinds = {
            entry["label"]: entry["__typename"]
            for entry in made["transformed_messages"]["metadataEntries"]
        }
        # Numbers, so that the UI plots their history.
        assert kinds["mapped"] == "IntMetadataEntry"
        assert kinds["messages per second"] == "FloatMetadataEntry"
        assert kinds["fates"] == "MarkdownMetadataEntry"

        shown = page(f"{server.url}/assets/east/mapping_version?view=events")
        assert "orders.v1" in shown
        assert "number of rules" in shown
        shown = page(f"{server.url}/assets/east/weight_audit?view=partitions&partition=2026-03-01")
        assert "largest deviation in points" in shown
        assert "█" in shown
