"""An archive is changed as any component: translation, op, post-processing, subclass, resources."""

import asyncio
import json
from pathlib import Path

import dagster as dg
import pytest

from jobs.jetstream.process import NatsServer
from nats_transform.dagster import NatsResource, SparkResource, WarehouseResource
from orchestration.days import range_tags
from orchestration.loading import load_archives
from scripts.sessions import blocks
from tests.support.dagster_project import DAYS, Project, failures
from tests.support.streams import new_stream

PAGE = Path(__file__).parents[2] / "docs" / "orchestration.md"
pytestmark = pytest.mark.dagster


def of_the_page(project: Project) -> None:
    """Adds an archive `orders` with all that the page shows."""
    page = {block.title: block.text for block in blocks(PAGE.read_text()) if block.title}
    folder = project.add("orders", page["attributes in defs.yaml"], count=40)
    (folder.parents[1] / "ours.py").write_text(page["our_archive.py"])
    file = folder / "defs.yaml"
    text = file.read_text() + page["end of defs.yaml"]
    file.write_text(text.replace("nats_transform.dagster.Subject", f"{project.name}.ours.Our"))


def test_by_the_words_of_the_page(bare_project: Project) -> None:
    of_the_page(bare_project)
    group = ["lake", "orders"]
    definitions = load_archives(bare_project.root)
    repository = definitions.get_repository_def()
    graph = repository.asset_graph
    nodes = {key.path[-1]: graph.get(key) for key in graph.materializable_asset_keys}
    assert {*map(tuple, (node.key.path[:-1] for node in nodes.values()))} == {tuple(group)}
    for node in nodes.values():
        assert node.group_name == "sales"  # translation
        assert node.tags["tier"] == "gold"
        assert set(node.owners) == {"team:sales"}  # post-processing, which selects by that tag
        assert node.code_version == "7"  # the subclass
    assert [name for name, node in nodes.items() if node.automation_condition] == ["messages"]
    assert nodes["messages"].pools == {"archive_orders"}
    assert nodes["transformed_messages"].pools == {"large_drivers"}
    assert nodes["weight_audit"].parent_keys == {
        dg.AssetKey([*group, name]) for name in ("mapping_version", "transformed_messages")
    }
    lineage = nodes["transformed_messages"].metadata["dagster/column_lineage"].deps_by_column
    assert lineage["data"][0].asset_key == dg.AssetKey([*group, "messages"])
    op = definitions.resolve_assets_def(dg.AssetKey([*group, "messages"])).op
    assert op.retry_policy == dg.RetryPolicy(3, 60, dg.Backoff.EXPONENTIAL)
    tags = definitions.resolve_assets_def(dg.AssetKey([*group, "transformed_messages"])).op.tags
    assert "8Gi" in json.dumps(tags["dagster-k8s/config"])
    job = repository.get_job("orders_reprocess")
    assert len(job.asset_layer.selected_asset_keys) == 4


def test_it_runs_under_its_new_keys(bare_project: Project) -> None:
    of_the_page(bare_project)
    defs = load_archives(bare_project.root)
    result = bare_project.run("orders_reprocess", tags=range_tags(*DAYS), defs=defs)
    assert result.success, failures(result)
    checked = {check.asset_key.path[0] for check in result.get_asset_check_evaluations()}
    assert checked == {"lake"}
    logged = [log.user_message for log in bare_project.instance.all_logs(result.run_id)]
    assert "our transformed_messages of ORDERS" in logged
    key = dg.AssetKey(["lake", "orders", "transformed_messages"])
    assert len(bare_project.instance.get_materialized_partitions(key)) == 2


RETRIES = """  op:
    mapping_version: { retries: { max: 1, delay: 0 } }
    messages: { retries: { max: 1, delay: 0 } }
"""


def test_retries_are_for_what_may_pass(bare_project: Project) -> None:
    """A source that is away is tried again; a mapping that is refused waits for a person."""
    folder = bare_project.add("east", RETRIES, mapping="mappings { this is none")
    (folder / "messages.jsonl").unlink()
    tried = {}
    for asset in ("mapping_version", "messages"):
        result = bare_project.materialize("east", [asset])
        assert list(failures(result)) == [f"east/{asset}"]
        tried[asset] = sum(event.is_step_up_for_retry for event in result.all_events)
    assert tried == {"mapping_version": 0, "messages": 1}


@pytest.mark.server
def test_assets_of_a_project_use_what_the_archive_uses(
    bare_project: Project, nats_server: NatsServer
) -> None:
    stream = new_stream(nats_server)
    bare_project.add("east", count=40)
    bare_project.made("east", ["mapping_version", "messages"])
    bare_project.add("live", count=0)
    source = f"- server: {nats_server.url}\n      password: sesame\n      user: someone"
    bare_project.edit("live", ("- jsonl: messages.jsonl", source))

    @dg.asset
    def ours(
        east_warehouse: WarehouseResource, live_nats: NatsResource, live_spark: SparkResource
    ) -> dg.MaterializeResult[None]:
        async def names() -> str:
            async with live_nats.connect() as client:
                return str((await client.jetstream().stream_info(stream.name)).config.name)

        table = east_warehouse.load_table("messages")
        assert live_spark.on_demand.settings.driver_memory == "512m"
        assert live_nats.settings.has_credentials
        return dg.MaterializeResult(
            metadata={"rows": table.scan().count(), "stream": asyncio.run(names())}
        )

    resources = bare_project.load().resources or {}
    assert set(resources) == {
        "east_warehouse", "east_spark", "live_warehouse", "live_spark", "live_nats",
    }  # fmt: skip
    made = dg.materialize([ours], resources=resources)
    (event,) = made.asset_materializations_for_node("ours")
    assert event.metadata["rows"].value == 40
    assert event.metadata["stream"].value == stream.name
    # The UI shows the fields of a resource.
    assert not isinstance(resources["live_nats"], NatsResource)
    assert not isinstance(resources["live_spark"], SparkResource)
