"""The sensor on the mapping file of an archive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

import dagster as dg

from nats_transform import NatsTransformError
from nats_transform.config import load_mappings, mapping_version
from orchestration.archive import Archive
from orchestration.automation.runs import busy_assets, run_requests, select, sensor_status
from orchestration.mapping_in_force import materializations, materialized_version

DERIVED = ("transformed_messages", "weight_audit")
"""The assets whose content depends on the mapping version."""


def mapping_sensor(name: str, archives: Sequence[Archive]) -> dg.SensorDefinition:
    """The sensor that the YAML of some archives with one mapping asks for."""
    archive, sensor_name = archives[0], f"{name}_mapping"
    settings = archive.mapping_sensor
    assert settings is not None  # noqa: S101 - the caller asked
    key = archive.key("mapping_version")

    def look(
        context: dg.SensorEvaluationContext,
    ) -> dg.RunRequest | dg.SensorResult | dg.SkipReason:
        try:
            mappings = load_mappings(archive.mapping, archive.account)
        except NatsTransformError as error:
            # The tick fails, and shows in the UI, for as long as the file is not mended.
            raise dg.Failure(str(error), allow_retries=False) from None
        version = mapping_version(mappings, archive.seed)
        known = materialized_version(context.instance, archive)
        recorded = context.instance.get_latest_materialization_event(key)
        # Dagster starts no second run with the same key: one that fails is repeated after an hour.
        after = recorded.run_id if recorded is not None else "none"
        run_key = f"{version} after {after} {datetime.now(UTC):%Y-%m-%dT%H}"
        busy = busy_assets(context.instance, sensor_name)
        if known != version:
            if key in busy:
                return dg.SkipReason(f"a run records version {version[:12]} of {archive.mapping}")
            return dg.RunRequest(run_key=f"mapping {run_key}", asset_selection=[key])
        # What a server has mapped stays as it is, whatever the file says now.
        if settings.reprocess == "stale_days" and archive.observed is None:
            requests = [
                request
                for each in archives
                if each.key("transformed_messages") not in busy
                for request in run_requests(
                    each,
                    days_of_other_versions(context.instance, each, version),
                    assets=DERIVED,
                    key=run_key,
                )
            ]
            if requests:
                return dg.SensorResult(run_requests=requests)
        return dg.SkipReason(f"{archive.mapping} is still version {known[:12]}")

    return dg.SensorDefinition(
        name=sensor_name,
        evaluation_fn=look,
        asset_selection=select(
            archives, ("mapping_version", *(DERIVED if archive.observed is None else DERIVED[1:]))
        ),
        minimum_interval_seconds=settings.interval_seconds,
        default_status=sensor_status(running=settings.running),
        description="Records a new mapping version when the mapping file changes what it does.",
    )


def days_of_other_versions(
    instance: dg.DagsterInstance, archive: Archive, version: str
) -> list[date]:
    """The days that have been transformed, but not under this version."""
    tag = f"dagster/input_data_version/{archive.key('mapping_version').to_user_string()}"
    key = archive.key("transformed_messages")
    # A new `start_date` or `include_today` leaves days behind that Dagster would refuse to run.
    days = instance.get_materialized_partitions(key) & {*archive.partitions.get_partition_keys()}
    versions: dict[str, str | None] = {}
    for record in materializations(instance, key):
        if days <= versions.keys():
            break
        event = record.asset_materialization
        if event is not None and event.partition is not None:
            # What comes first is what the day has now.
            versions.setdefault(event.partition, (event.tags or {}).get(tag))
    return sorted(date.fromisoformat(day) for day in days if versions.get(day) != version)
