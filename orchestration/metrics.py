"""Metrics of runs and assets for Prometheus; every scrape reads them from Dagster's storage.

Run one as `python -m orchestration.metrics --port 9464` where DAGSTER_HOME is set. It keeps nothing
itself, so it may be stopped and started at any time. It needs no Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import dagster as dg
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

PORT = 9464
_ENDED = (
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
)
_RECENT = 200
"""Runs that are looked through for the last one of each job and outcome."""


class Runs(Collector):
    """What Dagster's storage knows of runs, assets and daemons at the moment of a scrape."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All metrics."""
        yield from self._runs()
        yield from self._last_runs()
        yield from self._assets()
        yield self._daemons()

    def _runs(self) -> Iterator[GaugeMetricFamily]:
        count = GaugeMetricFamily(
            "nats_transform_runs", "Runs in Dagster's storage, by status.", labels=["status"]
        )
        age = GaugeMetricFamily(
            "nats_transform_oldest_run_age_seconds",
            "How long ago the oldest run with this status was requested. No such run, no sample.",
            labels=["status"],
        )
        for status in dg.DagsterRunStatus:
            chosen = dg.RunsFilter(statuses=[status])
            count.add_metric([status.value], self.instance.get_runs_count(chosen))
            if status in _ENDED:
                continue
            for record in self.instance.get_run_records(chosen, limit=1, ascending=True):
                age.add_metric([status.value], time.time() - record.create_timestamp.timestamp())
        yield count
        yield age

    def _last_runs(self) -> Iterator[GaugeMetricFamily]:
        labels = ["job", "status", "archive"]
        end = GaugeMetricFamily(
            "nats_transform_last_run_end_timestamp_seconds",
            "When the last run of a job on an archive ended this way, among the last "
            f"{_RECENT} runs.",
            labels=labels,
        )
        duration = GaugeMetricFamily(
            "nats_transform_last_run_duration_seconds", "How long that run took.", labels=labels
        )
        seen: set[tuple[str, str, str]] = set()
        for record in self.instance.get_run_records(limit=_RECENT):
            run = record.dagster_run
            key = (run.job_name, run.status.value, _archive_of(run))
            if record.end_time is None or key in seen:
                continue
            seen.add(key)
            end.add_metric(list(key), record.end_time)
            if record.start_time is not None:  # else it ended before it began
                duration.add_metric(list(key), record.end_time - record.start_time)
        yield end
        yield duration

    def _assets(self) -> Iterator[GaugeMetricFamily]:
        times = GaugeMetricFamily(
            "nats_transform_asset_made_timestamp_seconds",
            "When an asset was last materialized.",
            labels=["asset"],
        )
        values = GaugeMetricFamily(
            "nats_transform_asset_value",
            "A number reported by an asset's last materialization.",
            labels=["asset", "name"],
        )
        for key in self.instance.get_asset_keys():
            event = self.instance.get_latest_materialization_event(key)
            if event is None or event.asset_materialization is None:
                continue
            asset = key.to_user_string()
            times.add_metric([asset], event.timestamp)
            for name, entry in event.asset_materialization.metadata.items():
                if isinstance(entry.value, int | float):
                    values.add_metric([asset, name], entry.value)
        yield times
        yield values

    def _daemons(self) -> GaugeMetricFamily:
        healthy = GaugeMetricFamily(
            "nats_transform_daemon_healthy",
            "Whether a thread of the daemon sent a heartbeat lately (1) or not (0).",
            labels=["daemon"],
        )
        for name, status in self.instance.get_daemon_statuses().items():
            healthy.add_metric([name], float(bool(status.healthy)))
        return healthy


def _archive_of(run: dg.DagsterRun) -> str:
    """How a run's asset keys begin: `east`, or `prod/ORDERS` for a stream of an account."""
    # All streams of an account share its mapping version, whose key is shorter.
    longest = max((key.path for key in run.asset_selection or ()), key=len, default=[])
    return "/".join(longest[:-1])


@click.command(help="Serve metrics of runs and assets for Prometheus, until stopped.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=PORT, show_default=True)
def main(host: str, port: int) -> None:
    """Serves until it is stopped."""
    with dg.DagsterInstance.get() as instance:
        registry = CollectorRegistry()
        registry.register(Runs(instance))
        server, thread = start_http_server(port, host, registry)
        click.echo(f"metrics at http://{host}:{server.server_port}/metrics", err=True)
        thread.join()


if __name__ == "__main__":
    main()
