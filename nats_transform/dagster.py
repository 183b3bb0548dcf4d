"""The component types, for `type:` in a YAML under `defs/` of a Dagster project, with what their
subclasses get; resources; and three sensors.

This name is the same in a checkout and in a wheel, which has `orchestration` as
`nats_transform.orchestration`.
"""

from orchestration.alarms import canary_alarms
from orchestration.assets.asset import ArchiveAsset
from orchestration.components import AccountArchive, SubjectArchive, SubmittedJob
from orchestration.failures import failed_runs
from orchestration.orphaned_runs import orphaned_runs
from orchestration.resources import NatsResource, SparkResource, WarehouseResource

__all__ = [
    "AccountArchive",
    "ArchiveAsset",
    "NatsResource",
    "SparkResource",
    "SubjectArchive",
    "SubmittedJob",
    "WarehouseResource",
    "canary_alarms",
    "failed_runs",
    "orphaned_runs",
]
