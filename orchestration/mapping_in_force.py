"""The mappings that apply to an archive: those that Dagster recorded last."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import dagster as dg

from jobs.warehouse import versions
from nats_transform import AccountMappings
from nats_transform.config import load_mappings, mapping_version
from orchestration.archive import Archive

_PAGE = 500


def materialized_version(instance: dg.DagsterInstance, archive: Archive) -> str | None:
    """The mapping version that the archive's asset `mapping_version` was last materialized with."""
    event = instance.get_latest_materialization_event(archive.key("mapping_version"))
    return None if event is None else _version_of(event.asset_materialization)


def _version_of(made: dg.AssetMaterialization | None) -> str | None:
    recorded = None if made is None else made.metadata.get("version")
    return None if recorded is None else str(recorded.value)


def in_force_since(instance: dg.DagsterInstance, archive: Archive, version: str) -> datetime | None:
    """When the asset first had this version in place of another; None if it never had another."""
    since = None
    for record in materializations(instance, archive.key("mapping_version")):
        if _version_of(record.asset_materialization) != version:
            return since
        since = datetime.fromtimestamp(record.timestamp, UTC)
    return None


def materializations(instance: dg.DagsterInstance, key: dg.AssetKey) -> Iterator[dg.EventLogRecord]:
    """The materializations of an asset, the newest first."""
    cursor = None
    while True:
        page = instance.fetch_materializations(key, limit=_PAGE, cursor=cursor)
        yield from page.records
        if not page.has_more:
            return
        cursor = page.cursor


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
