"""Whether what streams keep about old names has its new ones: schedules that wait, and counters.

The streams are read once from the first message to the last, through consumers that the server
forgets. A counter is carried over by increments under its new name whose header `CARRIED` names the
old one; together they must be what the old counter holds, so nothing is added twice. A stream that
gives both names one sum has the old value already: there, what is carried over must first be taken
away under the old name, with the same header, before the mappings change.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from jobs.jetstream.account import account_streams
from jobs.jetstream.connection import connection
from jobs.jetstream.headers import first_values
from jobs.jetstream.reader import RangeReader
from jobs.jetstream.schedules import Rewriting, new_name
from jobs.jetstream.stream import JetStreamSettings, StreamState, stream_state
from jobs.settings.connection import NatsSettings
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import decode
from nats_transform.plan.model import Plan
from nats_transform.plan.state import expected, mappings_of
from nats_transform.streams.features import sums
from nats_transform.streams.network import Feed, Network
from nats_transform.streams.stream import StreamConfig

CARRIED = b"Nats-Transform-Carried"
_INCR = b"Nats-Incr"
_NUMBER = re.compile(rb"[+-]?[0-9]{1,4000}")
_MOST = 20  # lines of each stream


def unsettled(nats: NatsSettings, plan: Plan, step: int) -> Iterator[str]:
    """One line for each schedule or counter that is not settled, of all steps up to this one.

    Raises:
        ApiError: the user sees no such stream.
        ArchiveError: the server stays away.
    """
    mappings = mappings_of(expected(plan, step).get(("mappings", plan.account), {}))
    network = Network(())
    if any(planned.settles == "counters" for planned in plan.steps[:step]):
        network = Network(asyncio.run(_streams(nats)))
    for planned in plan.steps[:step]:
        for stream in planned.streams:
            is_schedules = planned.settles == "schedules"
            batches = _read(nats, JetStreamSettings(stream=stream, headers_only=is_schedules))
            lines = list(
                _schedules(stream, batches, mappings)
                if is_schedules
                else _counters(stream, batches, mappings, network)
            )
            yield from lines[:_MOST]
            if more := lines[_MOST:]:
                yield f"stream {stream}: {len(more):,} more {planned.settles} like these"


async def _streams(nats: NatsSettings) -> tuple[StreamConfig, ...]:
    async with connection(nats) as client:
        return await account_streams(client)


def _read(nats: NatsSettings, wanted: JetStreamSettings) -> Iterator[pa.RecordBatch]:
    async def state() -> StreamState:
        async with connection(nats) as client:
            return await stream_state(client, wanted.stream)

    now = asyncio.run(state())
    if now.messages:
        yield from RangeReader(nats, wanted, now)((now.first, now.last))


def _schedules(
    stream: str, batches: Iterable[pa.RecordBatch], mappings: AccountMappings
) -> Iterator[str]:
    # Nothing maps the subject of a schedule, which is in its stream already.
    rows = (batch.append_column("mapped_subject", batch.column("subject")) for batch in batches)
    rewriting = Rewriting.of(rows, None, mappings, lambda subject: None)
    for seq, new in rewriting.values.items():
        for name, value in new.items():
            yield (
                f"stream {stream}: the schedule with sequence {seq} names an old subject: publish "
                f"it again with {name.decode()}: {decode(value)}, or wait until it has fired"
            )
    for seq, why in rewriting.faults.items():
        yield (
            f"stream {stream}: the schedule with sequence {seq} names an old subject, and its "
            f"{why}: publish it again with the subject that you want"
        )


def _counters(
    stream: str, batches: Iterable[pa.RecordBatch], mappings: AccountMappings, network: Network
) -> Iterator[str]:
    feeds = [feed for feed in network.feeds(stream) if sums(feed.taker)]
    last: dict[bytes, bytes] = {}
    is_whole: dict[bytes, bool] = {}  # whether the first increment is still there
    carried: dict[bytes, int] = defaultdict(int)
    taken: dict[bytes, int] = defaultdict(int)  # away, under the old name
    for batch in batches:
        subjects = batch.column("subject").view(pa.binary()).to_pylist()
        data = batch.column("data").to_pylist()
        last.update(zip(subjects, data, strict=True))
        for row, named in first_values(batch.column("headers"), [_INCR, CARRIED]):
            increment = _number(named.get(_INCR, b""))
            if subjects[row] not in is_whole:
                is_whole[subjects[row]] = increment == _value(data[row])
            if named.get(CARRIED) == subjects[row]:
                taken[subjects[row]] -= increment or 0
            elif CARRIED in named:
                carried[named[CARRIED]] += increment or 0
    for old in sorted(last):
        held = _value(last[old])
        new, why = new_name(mappings, old)
        if held is None or new == old:
            continue
        both = _sums(feeds, old) & _sums(feeds, new)
        lacking = taken[old] - carried[old] + (0 if both else held)
        if not lacking:
            continue
        where = f"stream {stream}: counter {decode(old)} holds {held + taken[old]}"
        if both:
            kept = f"{taken[old]} were taken from counter {decode(old)}"
            where = f"stream {stream}: {kept}, which {min(both)[0]} adds up with {decode(new)}"
        if why:
            yield (
                f"{where}, and {why}: add {lacking:+} under the name that you want, with the "
                f"header {CARRIED.decode()}: {decode(old)}"
            )
        elif not (is_whole.get(new, True) and (is_whole[old] or not both)):
            yield (
                f"{where}, but the stream keeps too few messages to show whether {decode(new)} "
                "has it: raise max_msgs_per_subject until the old names are gone"
            )
        else:
            says = f"of which {decode(new)} lacks {lacking}"
            if lacking < 0 and both:
                says = f"so {-lacking} under {decode(new)} count twice"
            subject = old if new_name(mappings, new)[0] != new else new
            yield f"{where}, {says}: {_command(subject, old, lacking)}"


def _sums(feeds: Iterable[Feed], subject: bytes) -> set[tuple[str, str]]:
    """The streams that add a counter up, each with the name of the sum."""
    stored = decode(subject)
    results = ((feed.taker, feed.take(stored).subject) for feed in feeds)
    return {
        (taker.name, taker.ingress(name, None).subject or name)
        for taker, name in results
        if name is not None
    }


def _command(subject: bytes, old: bytes, lacking: int) -> str:
    headers = (f"{_INCR.decode()}:{lacking:+}", f"{CARRIED.decode()}:{decode(old)}")
    if subject.startswith(b"-") or b"{{" in subject + old:
        # Publishers choose subjects, and `nats` takes such ones for options and templates.
        return f"publish {decode(subject)} from a program, with the headers {', '.join(headers)}"
    words = ["nats", "pub", "--jetstream", decode(subject), ""]
    for header in headers:
        words += ["-H", header]
    return shlex.join(words)


def _value(data: bytes | None) -> int | None:
    """What a message of a counter holds."""
    try:
        document: Any = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    value = document.get("val") if isinstance(document, Mapping) else None
    return _number(value.encode("utf-8", "replace")) if isinstance(value, str) else None


def _number(text: bytes) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None
