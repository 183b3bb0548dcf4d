"""A real dagster-webserver: through GraphQL, and once through a headless Chromium."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.browser import CHROMIUM
from tests.support.dagster_processes import NO_QUEUE, webserver
from tests.support.dagster_project import MAPPING, Project

# A webserver, a code server and a run of its own: half a minute and more.
pytestmark = [pytest.mark.dagster, pytest.mark.slow]

ASSETS = """{ assetNodes {
  assetKey { path } isPartitioned
  assetChecksOrError { ... on AssetChecks { checks { name blocking } } }
} }"""
STALE = """{ assetNodes(assetKeys: [
  { path: ["east", "transformed_messages"] }, { path: ["east", "weight_audit"] }
]) {
  assetKey { path }
  staleStatus(partition: "2026-03-01")
  staleCauses(partition: "2026-03-01") { key { path } reason }
} }"""
MATERIALIZATIONS = """{ assetNodes {
  assetKey { path }
  assetMaterializations(limit: 1) { partition metadataEntries { label __typename } }
} }"""


def page(url: str) -> str:
    """The page as a browser has it once its scripts have run."""
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH: apt-get install chromium")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=30000", "--window-size=1600,2400", url]
    return subprocess.run(command, capture_output=True, text=True).stdout


@pytest.mark.parametrize("bare_project", [NO_QUEUE], indirect=True, ids=["no-queue"])
def test_graphql_and_browser(bare_project: Project) -> None:
    folder = bare_project.add("east", count=200)
    day = {"dagster/partition": "2026-03-01"}
    with webserver(bare_project) as server:
        nodes = {
            "/".join(node["assetKey"]["path"]): node for node in server.ask(ASSETS)["assetNodes"]
        }
        assert len(nodes) == 6  # with the mapping file
        checks = nodes["east/transformed_messages"]["assetChecksOrError"]["checks"]
        assert {check["name"]: check["blocking"] for check in checks}[
            "weights_within_tolerance"
        ] is True

        assert server.end(server.launch([["east", "mapping_version"]], {})) == "SUCCESS"
        assets = ["messages", "subject_census", "transformed_messages", "weight_audit"]
        run = server.launch([["east", asset] for asset in assets], day)
        assert server.end(run) == "SUCCESS"

        made = {
            node["assetKey"]["path"][-1]: node["assetMaterializations"][0]
            for node in server.ask(MATERIALIZATIONS)["assetNodes"]
            if node["assetMaterializations"]
        }
        kinds = {
            entry["label"]: entry["__typename"]
            for entry in made["transformed_messages"]["metadataEntries"]
        }
        # Numbers, so that the UI plots their history.
        assert kinds["mapped"] == "IntMetadataEntry"
        assert kinds["messages per second"] == "FloatMetadataEntry"
        assert kinds["fates"] == "MarkdownMetadataEntry"
        assert kinds["split"] == "MarkdownMetadataEntry"

        shown = page(f"{server.url}/assets/east/mapping_version?view=events")
        assert "orders.v1" in shown
        assert "number of rules" in shown
        shown = page(
            f"{server.url}/assets/east/transformed_messages?view=partitions&partition=2026-03-01"
        )
        assert "orders.v1.$1.$2" in shown
        assert "█" in shown
        shown = page(f"{server.url}/assets/east/weight_audit?view=partitions&partition=2026-03-01")
        assert "worst split" in shown
        assert "█" in shown

        assert [node["staleStatus"] for node in server.ask(STALE)["assetNodes"]] == ["FRESH"] * 2
        (folder / "mapping.conf").write_text(MAPPING.replace("60%", "50%").replace("40%", "50%"))
        assert server.end(server.launch([["east", "mapping_version"]], {})) == "SUCCESS"
        causes = {
            node["assetKey"]["path"][-1]: {
                (*cause["key"]["path"], cause["reason"]) for cause in node["staleCauses"]
            }
            for node in server.ask(STALE)["assetNodes"]
            if node["staleStatus"] == "STALE"
        }
        assert causes.keys() == {"transformed_messages", "weight_audit"}
        reason = ("east", "mapping_version", "has a new data version")
        assert all(reason in found for found in causes.values()), causes
