"""The assets of an archive, one in each file. Each calls one job and yields metadata for people.

mapping file ─▶ mapping_version ────────────┬──────────────────┐
stream ─▶ messages ─┬─▶ subject_census      ▼                  ▼
                    └────────────▶ transformed_messages ─▶ weight_audit
                                            └─▶ exported_backup
"""

from __future__ import annotations

from dataclasses import replace

from orchestration.archive import Archive
from orchestration.assets import (
    exported_backup,
    mapping_version,
    messages,
    stream,
    subject_census,
    transformed_messages,
    weight_audit,
)
from orchestration.assets.asset import ArchiveAsset


def assets_of(archive: Archive) -> list[ArchiveAsset]:
    """The assets of an archive, upstream first.

    An archive that nats-server has mapped already is not transformed again; it may have a watch.
    """
    assets = [mapping_version.ASSET, messages.ASSET, subject_census.ASSET]
    if archive.live is not None:
        assets[1:2] = [stream.ASSET, replace(messages.ASSET, deps=("stream",))]
    observed = archive.observed
    if observed is None:
        assets += [transformed_messages.ASSET, weight_audit.REHEARSAL]
        if archive.export is not None:
            assets.append(exported_backup.ASSET)
    else:
        assets.append(weight_audit.OBSERVED)
        if observed.watch is not None:
            assets.append(weight_audit.WATCH)
    return assets
