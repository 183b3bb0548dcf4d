"""What Dagster's catalog shows of every asset and check that we define."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestration.loading import load_archives
from orchestration.metadata.columns import TABLES
from scripts.sessions import blocks
from tests.support.dagster_project import ASSETS, Project, key

PAGE = Path(__file__).parents[2] / "docs" / "orchestration.md"
pytestmark = pytest.mark.dagster

WITHOUT_TABLE = {"exported_backup", "canary_watch"}
FROM_OUTSIDE = {"messages", "mapping_version"}
# What no message decides.
OF_THE_RUN = {"kind", "method", "tolerance", "confidence", "comparisons", "run_id"}
EXPORT = "  export: { to: backups, config: stream.json }\n"
CATALOG = """  owners: ["team:orders", "ada@example.com"]
  tags: { domain: orders }
  fresh_hours: 30
"""


def test_every_asset_and_check_is_described(bare_project: Project) -> None:
    bare_project.add("east", CATALOG + EXPORT, count=4)
    observed = "  observed: { watch: {} }\n" + CATALOG
    bare_project.add("mapped", observed, count=4)
    graph = bare_project.graph()
    keys = graph.materializable_asset_keys
    names = {one.path[-1] for one in keys}
    assert names == {*ASSETS, "exported_backup", "canary_watch"}
    for one in keys:
        node = graph.get(one)
        assert node.description, one
        assert node.kinds, one
        assert set(node.owners) == {"team:orders", "ada@example.com"}
        assert node.tags["domain"] == "orders"
        assert (node.freshness_policy is not None) == (node.partitions_def is not None)
        if (spec := TABLES.get(one.path[-1])) is None:
            assert one.path[-1] in WITHOUT_TABLE
            continue
        columns = node.metadata["dagster/column_schema"].columns
        names = [column.name for column in columns]
        assert set(names) == {field.name for field in spec.schema.fields}
        assert names == sorted(names, key=lambda name: name.endswith("_raw"))  # they're last
        assert all(column.description for column in columns)
        assert node.metadata["dagster/table_name"] == f"nats.{spec.name}"
        if one.path[-1] not in FROM_OUTSIDE:
            made_of = node.metadata["dagster/column_lineage"].deps_by_column
            assert {column.name for column in columns} - made_of.keys() <= OF_THE_RUN
            for dep in (dep for deps in made_of.values() for dep in deps):
                table = TABLES[dep.asset_key.path[-1]]
                assert dep.asset_key in keys
                assert dep.column_name in table.schema.column_names
    for check in graph.asset_check_keys:
        assert graph.get(check).description, check


def test_what_a_project_adds_by_the_words_of_the_page(bare_project: Project) -> None:
    """Assets and sensors beside an archive; `test_conventions.py` changes the archive itself."""
    page = PAGE.read_text(encoding="utf-8")
    added = {block.title: block.text for block in blocks(page) if block.title}
    folder = bare_project.add("orders", CATALOG, count=4)
    for name in ("people.py", "unmapped.py"):
        (folder.parent / name).write_text(added[name])
    repository = load_archives(bare_project.root).get_repository_def()
    sensors = {one.name for one in repository.sensor_defs}
    assert {"failed_runs", "canary_alarms", "orphaned_runs"} <= sensors
    own = repository.asset_graph.get(key("unmapped"))
    assert own.parent_keys == {key("orders/transformed_messages")}


def test_columns_say_what_they_are_made_of(bare_project: Project) -> None:
    bare_project.add("east", "", count=4)
    graph = bare_project.graph()
    for asset, column, made_of in (
        ("transformed_messages", "data", "data"),
        ("transformed_messages", "mapped_subject", "subject cluster stream seq canonical"),
        ("weight_audit", "weight", "rules"),
        ("subject_census", "first_ts", "ts"),
        ("subject_census", "carries", "headers"),
        ("subject_census", "subject_raw", "subject_raw"),
    ):
        node = graph.get(key(f"east/{asset}"))
        lineage = node.metadata["dagster/column_lineage"].deps_by_column
        assert {dep.column_name for dep in lineage[column]} == {*made_of.split()}, column
