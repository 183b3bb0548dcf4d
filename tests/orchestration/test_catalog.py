"""What Dagster's catalog shows of every asset and check that we define."""

from __future__ import annotations

import dagster as dg
import pytest

from orchestration.metadata.columns import TABLES
from tests.support.dagster_project import ASSETS, Project

pytestmark = pytest.mark.dagster

EXPORT = "  export: { to: backups, config: stream.json }\n"
CATALOG = """  owners: ["team:orders", "ada@example.com"]
  tags: { domain: orders }
  fresh_hours: 30
"""


def test_every_asset_and_check_is_described(bare_project: Project) -> None:
    bare_project.add("east", CATALOG + EXPORT, count=4)
    observed = "  observed: { watch: {} }\n" + CATALOG
    bare_project.add("mapped", observed, count=4)
    graph = bare_project.load().get_repository_def().asset_graph
    keys = graph.get_all_asset_keys()
    names = {key.path[-1] for key in keys}
    assert names == {*ASSETS, "exported_backup", "canary_watch"}
    for key in keys:
        node = graph.get(key)
        assert node.description, key
        assert node.kinds, key
        assert set(node.owners) == {"team:orders", "ada@example.com"}
        assert node.tags["domain"] == "orders"
        assert (node.freshness_policy is not None) == (node.partitions_def is not None)
        if (spec := TABLES.get(key.path[-1])) is not None:
            columns = [column.name for column in node.metadata["dagster/column_schema"].columns]
            assert columns == [field.name for field in spec.schema.fields]
            assert node.metadata["dagster/table_name"] == f"nats.{spec.name}"
    for check in graph.asset_check_keys:
        assert graph.get(check).description, check


@pytest.mark.parametrize(
    ("asset", "column", "made_of"),
    [
        ("transformed_messages", "data", {"data"}),
        ("transformed_messages", "mapped_subject", {"subject", "cluster", "stream", "seq"}),
        ("subject_census", "first_ts", {"ts"}),
        ("subject_census", "subject_raw", {"subject_raw"}),
    ],
)
def test_columns_say_what_they_are_made_of(
    bare_project: Project, asset: str, column: str, made_of: set[str]
) -> None:
    bare_project.add("east", "", count=4)
    graph = bare_project.load().get_repository_def().asset_graph
    node = graph.get(dg.AssetKey(["east", asset]))
    known = set(TABLES["messages"].schema.column_names)
    lineage = node.metadata["dagster/column_lineage"].deps_by_column
    assert {dep.column_name for dep in lineage[column]} == made_of
    assert set(lineage) <= set(TABLES[asset].schema.column_names)
    assert {dep.column_name for deps in lineage.values() for dep in deps} <= known
