"""What Dagster loads: every archive under `defs/`, and the Spark session they share."""

import os
from pathlib import Path

import dagster as dg

from orchestration.alarms import canary_alarms
from orchestration.failures import failed_runs
from orchestration.loading import load_archives
from orchestration.resources import SparkResource


@dg.definitions
def defs() -> dg.Definitions:
    """All definitions of this code location."""
    spark = SparkResource(
        master=os.environ.get("NATS_TRANSFORM_SPARK_MASTER"),
        remote=os.environ.get("NATS_TRANSFORM_SPARK_REMOTE"),
    )
    return dg.Definitions.merge(
        load_archives(Path(__file__).parent),
        dg.Definitions(
            resources={"spark": spark},
            sensors=[failed_runs, canary_alarms],
            # The assets of a run share one Spark session; a process for each would start its own.
            executor=dg.in_process_executor,
        ),
    )
