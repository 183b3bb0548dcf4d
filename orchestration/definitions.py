"""The definitions that Dagster loads: all archives under `defs/`, and sensors that report runs."""

import os
from pathlib import Path

import dagster as dg

from orchestration.alarms import canary_alarms
from orchestration.failures import failed_runs
from orchestration.loading import load_archives


@dg.definitions
def defs() -> dg.Definitions:
    """All definitions of this code location."""
    return dg.Definitions.merge(
        load_archives(Path(__file__).parent),
        dg.Definitions(
            sensors=[failed_runs, canary_alarms, *_lineage()],
            # The assets of a run share one Spark session; a process for each would start its own.
            executor=dg.in_process_executor,
        ),
    )


def _lineage() -> list[dg.SensorDefinition]:
    """The sensor that sends runs and lineage to where `OPENLINEAGE_URL` says, if it does."""
    if not os.environ.get("OPENLINEAGE_URL"):
        return []
    try:
        from dagster_openlineage import openlineage_sensor
    except ImportError:
        raise ImportError(
            "OPENLINEAGE_URL is set: pip install 'nats-transform[openlineage]', or unset it"
        ) from None
    # By itself it would send 30 events every 5 minutes; a run has more.
    sensor: dg.SensorDefinition = openlineage_sensor(
        include_asset_events=True, minimum_interval_seconds=30, record_filter_limit=1000
    )
    return [sensor]
