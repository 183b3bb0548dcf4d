"""The asset `nats/STREAM`: the stream on its server, which Dagster looks at and does not make.

An observation has no data version: a stream grows all the time, and the days that are archived are
not stale because of it.
"""

from __future__ import annotations

import dagster as dg

from jobs.errors import ArchiveError
from jobs.lag import measure_lags
from orchestration.archive import Archive
from orchestration.assets.asset import ArchiveAsset
from orchestration.failures import failing_with_one_line
from orchestration.metadata.values import Results


def run(archive: Archive, context: dg.AssetExecutionContext) -> Results:
    """Looks at the stream and at the table."""
    assert archive.live is not None  # noqa: S101 - else there is no such asset
    with failing_with_one_line():
        stream, name = archive.stream, archive.live.from_stream or archive.stream
        lag = measure_lags(archive.live.nats.settings, {stream: name}, archive.tables)[stream]
        if isinstance(lag, ArchiveError):
            raise lag
    yield dg.ObserveResult(asset_key=archive.key("stream"), metadata=lag.numbers)


ASSET = ArchiveAsset(
    "stream",
    "The stream on its server. An observation says what it holds, and how many of its last "
    "messages the archive lacks.",
    frozenset({"nats"}),
    run,
    is_daily=False,
    is_observed=True,
)
