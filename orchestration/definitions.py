"""The definitions that Dagster loads: all archives under `defs/`, and sensors that report runs."""

from pathlib import Path

import dagster as dg

from orchestration.alarms import canary_alarms
from orchestration.failures import failed_runs
from orchestration.lineage import lineage_sensors
from orchestration.loading import load_archives
from orchestration.orphaned_runs import orphaned_runs


@dg.definitions
def defs() -> dg.Definitions:
    """All definitions of this code location."""
    return dg.Definitions.merge(
        load_archives(Path(__file__).parent),
        dg.Definitions(
            sensors=[failed_runs, canary_alarms, orphaned_runs, *lineage_sensors()],
            # The assets of a run share one Spark session; a process for each would start its own.
            executor=dg.in_process_executor,
        ),
    )
