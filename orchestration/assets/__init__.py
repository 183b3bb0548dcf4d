"""The assets of an archive, one in each file. Each calls one job and returns metadata for people.

mapping_version ───────────────┬──────────────────┐
messages ─┬─▶ subject_census   ▼                  ▼
          └─────────▶ transformed_messages ─▶ weight_audit
                               └─▶ exported_backup
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import dagster as dg

from orchestration.archive import Archive
from orchestration.assets.exported_backup import exported_backup_asset
from orchestration.assets.mapping_version import mapping_version_asset
from orchestration.assets.messages import messages_asset
from orchestration.assets.subject_census import subject_census_asset
from orchestration.assets.transformed_messages import transformed_messages_asset
from orchestration.assets.weight_audit import canary_watch_asset, weight_audit_asset
from orchestration.metadata.columns import TABLES, columns_of


def archive_assets(archive: Archive) -> list[dg.AssetsDefinition]:
    """The assets of an archive, upstream first.

    An archive that nats-server has mapped already is not transformed again; it may have a watch.
    """
    assets = [
        mapping_version_asset(archive),
        messages_asset(archive),
        subject_census_asset(archive),
    ]
    observed = archive.observed
    if observed is None:
        assets.append(transformed_messages_asset(archive))
        if archive.export is not None:
            assets.append(exported_backup_asset(archive, archive.export))
    elif observed.watch is not None:
        assets.append(canary_watch_asset(archive, observed))
    return [_described(archive, asset) for asset in (*assets, weight_audit_asset(archive))]


def _described(archive: Archive, asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """The asset with its owners, its table and its freshness policy for Dagster's catalog."""
    name = asset.key.path[-1]
    more: dict[str, Any] = {"owners": archive.owners}
    if archive.fresh_hours is not None and asset.partitions_def is not None:
        window = timedelta(hours=archive.fresh_hours)
        more["freshness_policy"] = dg.FreshnessPolicy.time_window(fail_window=window)
    columns = columns_of(archive, name) if name in TABLES else {}
    return asset.map_asset_specs(
        lambda spec: spec.merge_attributes(metadata=columns).replace_attributes(
            tags={**spec.tags, **archive.tags}, **more
        )
    )
