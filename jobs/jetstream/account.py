"""Reads the streams and consumers of an account from a server, into files that jobs read.

It only asks for `STREAM.LIST` and `CONSUMER.LIST` of the JetStream API, and for
`$SYS.REQ.USER.INFO`, which names the account. So it changes nothing on the server.

A user of the account who may subscribe to these requests can answer in the place of the server.
So names are no paths (`jobs.jetstream.answers`), and the answers have limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import nats.errors
from pydantic import ValidationError

from jobs.errors import ArchiveError, text_of
from jobs.jetstream.answers import (
    NO_JETSTREAM,
    ApiError,
    Config,
    Consumers,
    Streams,
    User,
    parse_answer,
)
from jobs.jetstream.connection import RawClient, api, connection
from jobs.settings.connection import NatsSettings
from nats_transform.streams.stream import StreamConfig

_WHO = "$SYS.REQ.USER.INFO"
_BUCKETS = ("KV_", "OBJ_")
MOST_BYTES = 256 * 1024 * 1024
"""What all answers have together at most: hundreds of thousands of streams and consumers."""
_LONGEST = 250  # bytes: a file's name has at most 255
_P = TypeVar("_P", Streams, Consumers)


@contextlib.contextmanager
def account_files(settings: NatsSettings, account: str) -> Iterator[tuple[Path, Path | None]]:
    """Temporary folders with the streams and the durable consumers (None if there are none).

    The files have only what somebody configured, so the same account gives the same bytes.

    Args:
        account: the account that it should be.

    Raises:
        ArchiveError: the server cannot be reached, has no JetStream for the account, or the user is
            of another account; or there is no stream.
    """
    with tempfile.TemporaryDirectory(prefix="nats-transform-") as name:
        folders = Path(name, "streams"), Path(name, "consumers")
        for folder in folders:
            folder.mkdir(mode=0o700)
        asyncio.run(_write(settings, account, *folders))
        if not any(folders[0].iterdir()):
            raise ArchiveError("no-streams", where=settings.where)
        yield folders[0], folders[1] if any(folders[1].iterdir()) else None


async def _write(settings: NatsSettings, account: str, streams: Path, consumers: Path) -> None:
    """Writes the files one by one: all answers together need not fit into memory."""

    numbers = count()

    def write(folder: Path, name: str, document: dict[str, Any]) -> None:
        if len(name.encode()) > _LONGEST:  # no name of a stream or a consumer has a dot
            name = f"{name[:50]}..{next(numbers)}"
        (folder / f"{name}.json").write_text(json.dumps(document, sort_keys=True), "utf-8")

    async with connection(settings) as client:
        await _check_account(client, account)
        names = []
        async for stream in _streams(client):
            names.append(stream.name)
            write(streams, stream.name, {"config": stream.model_dump(exclude_unset=True)})
        for name in names:
            async for consumer in _listed(client, Consumers, f"CONSUMER.LIST.{name}"):
                if consumer.config.durable_name:  # others come and go
                    config = consumer.config.model_dump(exclude_unset=True)
                    shown = {"stream_name": name, "name": consumer.name, "config": config}
                    write(consumers, f"{name}.{consumer.name}", shown)


async def account_streams(
    client: RawClient, account: str | None = None
) -> tuple[StreamConfig, ...]:
    """The streams of the account; none if it has no JetStream.

    Raises:
        ArchiveError: the user is of another account, or the server has something else to show.
    """
    if account is not None:
        await _check_account(client, account)
    try:
        streams = [stream async for stream in _streams(client)]
        shown = (stream.model_dump(exclude_unset=True) for stream in streams)
        return tuple(map(StreamConfig.model_validate, shown))
    except ValidationError as error:
        raise ArchiveError(
            "streams-not-shown", where=client.where, reason=text_of(error)
        ) from error
    except ApiError as error:
        if error.err_code != NO_JETSTREAM:
            raise
        return ()


def stream_origins(settings: NatsSettings) -> dict[str, list[str]]:
    """Each stream of the account -> the streams of the account that it copies from.

    Raises:
        ArchiveError: the server cannot be reached, or has something else to show.
    """

    async def listed() -> dict[str, list[str]]:
        origins: dict[str, list[str]] = {}
        async with connection(settings) as client:
            async for stream in _streams(client):
                copied = [stream.mirror, *(stream.sources or ())]
                origins[stream.name] = [o.name for o in copied if o and o.external is None]
        return origins

    return asyncio.run(listed())


def fits(stream: str, patterns: Iterable[str]) -> bool:
    """Whether a stream has one of these names, in which `*` stands for any text.

    A `*` at the start leaves out the streams of key-value and object buckets.
    """
    is_bucket = stream.startswith(_BUCKETS)
    return any(
        re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), stream, re.DOTALL)
        for pattern in patterns
        if not (is_bucket and pattern.startswith("*"))
    )


async def _streams(client: RawClient) -> AsyncIterator[Config]:
    async for stream in _listed(client, Streams, "STREAM.LIST"):
        yield stream.config


async def _listed(client: RawClient, model: type[_P], subject: str) -> AsyncIterator[Any]:
    """Every entry of a list that comes in pages.

    Raises:
        ArchiveError: the list is not whole, is no list, or does not end.
    """
    count = 0
    while True:
        page = await api(client, model, subject, {"offset": count})
        if page.missing:
            raise ArchiveError(
                "streams-missing", where=client.where, missing=", ".join(page.missing)
            )
        if client.stats["in_bytes"] > MOST_BYTES:
            raise ArchiveError("streams-too-large", where=client.where, most=MOST_BYTES // 2**20)
        entries = page.entries or ()
        for entry in entries:
            yield entry
        count += len(entries)
        if not entries or count >= page.total:
            return


async def _check_account(client: RawClient, account: str) -> None:
    try:
        answer = await client.request(_WHO, timeout=client.settings.connect_timeout)
    except nats.errors.Error:  # servers before 2.10, or no permission to ask
        return
    shown = parse_answer(User, client.where, _WHO, answer.data).data
    names = [name for name in (shown.account, shown.account_name) if name]
    if names and account not in names:
        raise ArchiveError("other-account", where=client.where, names=names[0], account=account)
