"""The mappings that apply to an archive: those that Dagster recorded last."""

from __future__ import annotations

import dagster as dg

from jobs.warehouse import versions
from nats_transform import AccountMappings
from nats_transform.config import load_mappings, mapping_version
from orchestration.archive import Archive


def materialized_version(instance: dg.DagsterInstance, archive: Archive) -> str | None:
    """The mapping version that the archive's asset `mapping_version` was last materialized with."""
    event = instance.get_latest_materialization_event(archive.key("mapping_version"))
    if event is None or event.asset_materialization is None:
        return None
    recorded = event.asset_materialization.metadata.get("version")
    return None if recorded is None else str(recorded.value)


def mapping_in_force(instance: dg.DagsterInstance, archive: Archive) -> tuple[AccountMappings, str]:
    """The mappings and the version of the last materialization of `mapping_version`.

    So a day is transformed under what the graph shows, even if the file has changed since. The file
    counts only while no version was ever materialized.
    """
    version = materialized_version(instance, archive)
    if version is not None:
        return versions.find(archive.tables, version).mappings, version
    mappings = load_mappings(archive.mapping, archive.account)
    return mappings, mapping_version(mappings, archive.seed)
