"""A census of the streams of a server, as they are now: no archive, no file, nothing written.

A mapping belongs to an account, so without the name of a stream all streams of the account count,
each message once: mirrors, and what a stream takes from others, are copies. What another stream
republishes counts again, because its subject does not tell it from what is published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from jobs.dry_run.portable import COUNTS, TEXTS, About, Live, PortableCensus, summed
from jobs.errors import ArchiveError
from jobs.jetstream.answers import StreamInfo
from jobs.jetstream.connection import connection
from jobs.jetstream.stream import stream_info
from jobs.jetstream.subjects import pages_of_subjects
from jobs.progress import advance, step
from jobs.settings.connection import NatsSettings
from nats_transform.streams.stream import StreamConfig

_MOST = 20_000_000  # subjects in memory


def live_census(nats: NatsSettings, stream: str, streams: Sequence[StreamConfig]) -> PortableCensus:
    """The subjects of a stream, or, if it is "", of all streams of the account.

    The server has no bytes by subject: a message counts with the mean size of its stream.

    Raises:
        ArchiveError: there is no such stream; or there are no messages, or too many subjects.
    """
    return asyncio.run(_census(nats, stream, streams))


async def _census(
    nats: NatsSettings, stream: str, streams: Sequence[StreamConfig]
) -> PortableCensus:
    rows: list[pa.Table] = []
    infos: list[StreamInfo] = []
    async with connection(nats) as client:
        names = [stream] if stream else [c.name for c in streams if c.mirror is None]
        configs = {config.name: config for config in streams}
        for name in names:
            info = await stream_info(client, name)
            if not info.state.messages:
                continue
            infos.append(info)
            mean = info.state.bytes / info.state.messages
            with step(f"counting the subjects of {name}", info.state.num_subjects, "subjects"):
                async for page in pages_of_subjects(client, info):
                    rows.append(_rows(page if stream else _published(configs[name], page), mean))
                    if sum(map(len, rows)) > _MOST:
                        raise ArchiveError("live-too-many-subjects", where=nats.where, most=_MOST)
                    advance(len(page))
    if not any(map(len, rows)):
        what = f"stream {stream}" if stream else "no stream of the account"
        raise ArchiveError(
            "live-without-messages", what=what, where=nats.where, article="no" if stream else "a"
        )
    counted = tuple(info.config.name for info in infos)
    about = About(
        stream=counted[0] if len(counted) == 1 else "",
        days=(),
        first=min(info.state.first_ts for info in infos),
        last=max(info.state.last_ts for info in infos),
    )
    whole = counted if stream else tuple(name for name in counted if not configs[name].sources)
    live = Live(nats.where, counted, whole)
    subjects = pa.concat_tables(rows).combine_chunks()
    rows.clear()  # to have them once
    return PortableCensus(about, summed(subjects), live)


def _published(config: StreamConfig, page: pa.Table) -> pa.Table:
    """The subjects that a stream did not take from other streams."""
    if not config.sources:
        return page
    return page.filter(pa.array(map(config.captures, page["subject"].to_pylist()), pa.bool_()))


def _rows(page: pa.Table, mean: float) -> pa.Table:
    counts = page["messages"]
    sizes = pc.cast(pc.multiply(counts, mean), pa.int64(), safe=False)
    columns = [page["subject"], pa.nulls(len(page), pa.string()), counts, sizes]
    return pa.table(columns, names=[*TEXTS, *COUNTS])
