"""The definitions that Dagster loads: all archives under `defs/`, and sensors that report runs."""

import logging
import os
import re
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
    from openlineage.client.transport.http_common import DEFAULT_RETRY_CONFIG

    # Five more tries take 9 seconds an event, in which no other sensor is asked.
    DEFAULT_RETRY_CONFIG.update(total=0, connect=0, read=0)
    logging.getLogger("dagster_openlineage.emit").addFilter(_without_password)
    # By itself it would send 30 events every 5 minutes; a run has more.
    sensor: dg.SensorDefinition = openlineage_sensor(
        include_asset_events=True, minimum_interval_seconds=30, record_filter_limit=1000
    )
    return [sensor]


def _without_password(record: logging.LogRecord) -> bool:
    """Take the user and password out of addresses in a line of a log."""
    record.msg = re.sub(r"//[^/\s]*@", "//", record.getMessage())
    record.args = ()
    return True
