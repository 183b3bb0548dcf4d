"""The component `SubjectArchive`: one archive and all that Dagster does with it."""

from __future__ import annotations

import dagster as dg

from orchestration.archive import Archive
from orchestration.assets import archive_assets


class SubjectArchive(Archive, dg.Component):
    """One archive of NATS messages, transformed under a versioned mapping and audited, day by day.

    Gives the assets `mapping_version`, `messages`, `subject_census`, `transformed_messages` and
    `weight_audit`, with their checks.
    """

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of this archive."""
        return dg.Definitions(assets=archive_assets(self))
