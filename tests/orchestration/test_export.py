"""The asset `exported_backup`: a folder for each run, and what people see of it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import dagster as dg
import pytest

from orchestration.archive import Export
from orchestration.archive_source import ArchiveSource
from orchestration.components import SubjectArchive
from tests.support.dagster_project import told_of
from tests.support.exporting import Exporting, consumer
from tests.support.refused import refused

pytestmark = pytest.mark.dagster


def test_each_run_makes_a_backup(tmp_path: Path) -> None:
    made = Exporting(tmp_path, {"d": [{"subject": "b.x"}]}, d=consumer("d"), all=consumer())
    made.mapping.write_text('mappings { "a.*": "not.in.force.$1" }')
    archive = SubjectArchive(
        name="shop", stream="S", start_date=date(2023, 11, 14),
        sources=[ArchiveSource(backup=made.backup)], mapping=made.mapping,
        warehouse=tmp_path / "warehouse",
        export=Export(to=tmp_path / "new", original=made.backup),
    )  # fmt: skip
    definitions = archive.build_defs(dg.ComponentTree.for_test().load_context)
    asset = definitions.get_assets_def(archive.key("exported_backup"))
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            done = dg.materialize([asset], instance=instance)
            assert done.success
            found = told_of(done, "shop/exported_backup")
            assert found["dagster/row_count"] == 5
            assert found["consumers"] == "all"
            assert "consumer d is left out" in str(found["findings"])
            assert found["backup"] == str(tmp_path / "new" / done.run_id)
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_an_export_needs_a_configuration(tmp_path: Path) -> None:
    with refused(ValueError, "archive-export-without-configuration"):
        Export(to=tmp_path)
