"""The sensor on the lag of archives behind their streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from jobs.errors import ArchiveError
from jobs.lag import Lag, first_missing_day, measure_lags
from nats_transform import NatsTransformError
from orchestration.archive import Archive
from orchestration.automation.runs import busy_assets, run_requests, select, sensor_status

_ASSETS = ("messages",)


def lag_sensor(name: str, archives: Sequence[Archive]) -> dg.SensorDefinition:
    """The sensor that the YAML of some archives with one server asks for."""
    archive, sensor_name = archives[0], f"{name}_lag"
    settings, live = archive.lag_sensor, archive.live
    assert settings is not None  # noqa: S101 - the caller asked
    assert live is not None  # noqa: S101 - the YAML would be refused

    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            names = {each.stream: live.from_stream or each.stream for each in archives}
            lags = measure_lags(live.nats.settings, names, archive.tables)
            before = json.loads(context.cursor or "{}")
            seen = {
                stream: [lag.state.last, lag.last]
                for stream, lag in lags.items()
                if isinstance(lag, Lag)
            }
            failed = [str(lag) for lag in lags.values() if isinstance(lag, ArchiveError)]
            if len(failed) == len(lags):
                raise ArchiveError("refused", reason="; ".join(failed))
            busy = busy_assets(context.instance, sensor_name)
            events: list[dg.AssetObservation] = []
            requests: list[dg.RunRequest] = []
            for each in archives:
                lag = lags[each.stream]
                if isinstance(lag, ArchiveError):
                    continue  # the other streams go on
                if before.get(each.stream) != seen[each.stream]:
                    observation = dg.AssetObservation(each.key("stream"), metadata=lag.numbers)
                    events.append(observation)
                if lag.messages > settings.limit and each.key("messages") not in busy:
                    requests += _requests(each, names[each.stream], lag)
        except NatsTransformError as error:
            # The tick fails, and shows in the UI, for as long as it is so.
            raise dg.Failure(str(error), allow_retries=False) from None
        reason = "no archive is too far behind"
        if failed:
            reason = f"{len(failed)} of {len(lags)} streams have no lag: {'; '.join(failed)}"
            context.log.warning(reason)
        return dg.SensorResult(
            run_requests=requests,
            asset_events=events,
            cursor=json.dumps(seen),
            skip_reason=None if requests else dg.SkipReason(reason),
        )

    return dg.SensorDefinition(
        name=sensor_name,
        evaluation_fn=look,
        asset_selection=select(archives, _ASSETS),
        minimum_interval_seconds=settings.interval_seconds,
        default_status=sensor_status(running=settings.running),
        description=f"Ingests when more than {settings.limit:,} messages of a stream are new.",
    )


def _requests(archive: Archive, name: str, lag: Lag) -> Iterator[dg.RunRequest]:
    """The runs from the day of the first message that is missing to the last that has a partition.

    One that fails is repeated after an hour, unless the archive has got on.
    """
    assert archive.live is not None  # noqa: S101 - the caller has asked its server
    now = datetime.now(UTC)
    first = first_missing_day(archive.live.nats.settings, name, lag, archive.start_date)
    last = now.date() - timedelta(days=0 if archive.include_today else 1)
    count = 0 if first is None else (last - first).days + 1
    days = [last - timedelta(days=n) for n in reversed(range(count))]
    return run_requests(archive, days, assets=_ASSETS, key=f"{lag.last} {now:%Y-%m-%dT%H}")
