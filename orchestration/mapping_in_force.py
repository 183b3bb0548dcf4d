"""The mappings that apply to an archive: those that Dagster recorded last."""

from __future__ import annotations

from typing import NamedTuple

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


class InForce(NamedTuple):
    """The mappings in force, their version, and the seed that belongs to it."""

    mappings: AccountMappings
    version: str
    seed: int


def mapping_in_force(instance: dg.DagsterInstance, archive: Archive) -> InForce:
    """What `mapping_version` was last materialized with.

    So a day is transformed under what the graph shows, even if the file or the seed in the YAML has
    changed since. These count only while no version was ever materialized.
    """
    version = materialized_version(instance, archive)
    if version is not None:
        recorded = versions.find(archive.tables, version)
        return InForce(recorded.mappings, version, recorded.seed)
    mappings = load_mappings(archive.mapping, archive.account)
    return InForce(mappings, mapping_version(mappings, archive.seed), archive.seed)
