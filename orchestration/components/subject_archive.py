"""The component `SubjectArchive`: one archive and all that Dagster does with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dagster as dg

from orchestration.archive import Archive
from orchestration.archive_yaml import template
from orchestration.assets import archive_assets
from orchestration.automation import automation
from orchestration.dry_run import dry_run_job


class SubjectArchiveScaffolder(dg.Scaffolder[Any]):
    """Writes a YAML with a comment on every line that matters, and a mapping file to edit."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Writes the two files into the new folder."""
        name = "".join(c if c.isascii() and c.isalnum() else "_" for c in request.target_path.name)
        root = request.project_root or request.target_path
        warehouse = Path(os.path.relpath(root / "warehouse", request.target_path)).as_posix()
        for source, file in (("archive.yaml", "defs.yaml"), ("mapping.conf", "mapping.conf")):
            text = template(source, NAME=name, STREAM=name.upper(), WAREHOUSE=warehouse)
            (request.target_path / file).write_text(text, encoding="utf-8")


@dg.scaffold_with(SubjectArchiveScaffolder)
class SubjectArchive(Archive, dg.Component):
    """One archive of NATS messages, transformed under a versioned mapping and audited, day by day.

    It makes the assets `mapping_version`, `messages`, `subject_census`, `transformed_messages` and
    `weight_audit` with their checks, `exported_backup` if it is asked for, three jobs, and the
    schedules and sensor of its YAML.
    """

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of this archive."""
        definitions = dg.Definitions(assets=archive_assets(self), jobs=[dry_run_job(self)])
        return dg.Definitions.merge(definitions, automation(self))
