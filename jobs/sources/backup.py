"""A stream backup, read without the server it came from.

`nats stream backup` writes a folder with `backup.json` (configuration and state of the stream) and
`stream.arc.s2`, which older versions of the command call `stream.tar.s2`. The content decides how
it is read. nats-server from 2.15 on writes an archive, which `jobs.sources.archive` reads. An older
server wrote its blocks as a tar file: a private nats-server restores it and then serves it as any
stream, because only the server knows every version of its blocks.

The restored stream gets a configuration that keeps everything: with the original one the server
would at once delete what is too old, or start to mirror. Source: nats-server `RestoreStream`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import nats.errors
from pydantic import BaseModel, ValidationError

from jobs.errors import ArchiveError, text_of
from jobs.jetstream.answers import Answer, ApiError, Config, Restore, parse_answer
from jobs.jetstream.connection import RawClient, api, connection
from jobs.jetstream.process import USER, nats_server
from jobs.jetstream.stream import stream_state
from jobs.scratch import everything_in
from jobs.settings.connection import NatsSettings
from nats_transform.backup.archive import MAGIC, first_bytes
from nats_transform.errors import InvalidBackup
from nats_transform.streams.state import StreamNumbers

INFO, CONTENTS = "backup.json", ("stream.arc.s2", "stream.tar.s2")
_CHUNK_BYTES = 512 * 1024  # below the server's default for the largest message
SPARE_BYTES = 64 * 2**20  # what a small backup may unpack to
_ANSWER_SECONDS = 120  # the server answers the last chunk once it has read the whole stream

# What survives of the original configuration; the rest could change or remove messages.
_KEPT = ("name", "compression", "metadata", "description")
_NEUTRAL: dict[str, Any] = {
    "retention": "limits",
    "storage": "file",
    "num_replicas": 1,
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "discard": "old",
}


class _Description(BaseModel):
    """What `backup.json` has."""

    config: Config
    state: StreamNumbers


@dataclass(frozen=True)
class Backup:
    """A backup as its `backup.json` describes it.

    Attributes:
        content: the file with the messages.
    """

    folder: Path
    content: Path
    config: dict[str, Any]
    state: dict[str, Any]

    @property
    def stream(self) -> str:
        """The name of the stream."""
        name: str = self.config["name"]
        return name

    def is_archive(self) -> bool:
        """Whether the backup is in the format of nats-server 2.15 and not a tar file.

        Raises:
            ArchiveError: its content cannot be read.
        """
        with opened(self.content) as file:
            return first_bytes(file) == MAGIC


@contextmanager
def opened(content: Path) -> Iterator[BinaryIO]:
    """The file with the messages of a backup.

    Raises:
        ArchiveError: it cannot be read, or is damaged.
    """
    try:
        with content.open("rb") as file:
            yield file
    except InvalidBackup as error:
        raise ArchiveError(
            "backup-file-damaged", folder=content.parent, name=content.name, reason=error
        ) from error
    except OSError as error:
        raise ArchiveError(
            "backup-file-unreadable",
            folder=content.parent,
            name=content.name,
            reason=text_of(error),
        ) from error


def open_backup(folder: Path) -> Backup:
    """The backup in a folder.

    Raises:
        ArchiveError: the folder has none, or its description cannot be read.
    """
    contents = [folder / name for name in CONTENTS if (folder / name).is_file()]
    if not (folder / INFO).is_file() or not contents:
        missing = " or ".join(CONTENTS) if (folder / INFO).is_file() else INFO
        raise ArchiveError("not-a-backup", folder=folder, missing=missing)
    if len(contents) > 1:
        raise ArchiveError("backup-of-both", folder=folder, contents=" and ".join(CONTENTS))
    try:
        described = _Description.model_validate_json((folder / INFO).read_bytes())
    except (OSError, ValidationError) as error:
        raise ArchiveError(
            "backup-info-unreadable", folder=folder, info=INFO, reason=text_of(error)
        ) from error
    return Backup(folder, contents[0], **described.model_dump(exclude_unset=True))


@contextmanager
def restored(backup: Backup) -> Iterator[NatsSettings]:
    """A private server that has the stream of the backup, until the block ends.

    Raises:
        ArchiveError: the backup is damaged, or not what its description says.
    """
    most = _most_bytes(backup)
    with nats_server(login=True) as server:
        nats_settings = NatsSettings.model_validate(
            {"servers": server.url, "user": USER, "password": server.password}
        )
        asyncio.run(_restore_within(backup, nats_settings, server.store, most))
        yield nats_settings


def _most_bytes(backup: Backup) -> int:
    """What the server may write: blocks keep deleted messages for a while, and have an index.

    Raises:
        ArchiveError: there is no room for what the backup says it has.
    """
    blocks = backup.content.stat().st_size
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if backup.state["bytes"] + blocks > free:
        raise ArchiveError(
            "backup-no-room",
            folder=backup.folder,
            bytes=backup.state["bytes"],
            place=tempfile.gettempdir(),
            free=free,
        )
    return min(4 * int(backup.state["bytes"]) + blocks + SPARE_BYTES, free)


async def _restore_within(
    backup: Backup, settings: NatsSettings, store: Path, most_bytes: int
) -> None:
    """Restores, unless the blocks unpack to far more than their description says."""
    restore = asyncio.create_task(_restore(backup, settings))
    try:
        while not restore.done():
            await asyncio.wait([restore], timeout=0.1)
            size = await asyncio.to_thread(_size, store)
            if size > most_bytes:
                raise ArchiveError(
                    "backup-unpacks-too-large",
                    folder=backup.folder,
                    info=INFO,
                    said=backup.state["bytes"],
                    name=backup.content.name,
                    size=size,
                )
        await restore
    finally:
        restore.cancel()


def _size(folder: Path) -> int:
    total = 0
    for entry in everything_in(folder):
        with contextlib.suppress(FileNotFoundError):
            total += entry.stat(follow_symlinks=False).st_size
    return total


async def _restore(backup: Backup, settings: NatsSettings) -> None:
    config = {key: backup.config[key] for key in _KEPT if key in backup.config} | _NEUTRAL
    # A stream without subjects would get its own name as one.
    config["subjects"] = [f"$nats-transform.{backup.stream}"]
    body = {"config": config, "state": backup.state}
    where = f"backup {backup.folder}"
    async with connection(settings) as client:
        try:
            subject = f"STREAM.RESTORE.{backup.stream}"
            answer = await api(client, Restore, subject, body)
            await _send(client, backup.content, answer.deliver_subject)
        except (ApiError, nats.errors.Error, OSError) as error:
            raise ArchiveError("backup-not-restored", where=where, reason=text_of(error)) from error
        state = await stream_state(client, backup.stream)
    # Messages with a time to live of their own may have reached its end since.
    expires = bool(backup.config.get("allow_msg_ttl"))
    for name, restored_value, is_expired in (
        ("messages", state.messages, state.messages < backup.state["messages"]),
        ("bytes", state.bytes, state.bytes < backup.state["bytes"]),
        ("first_seq", state.first, state.first > backup.state["first_seq"]),
        ("last_seq", state.last, False),
    ):
        if restored_value != backup.state[name] and not (expires and is_expired):
            raise ArchiveError(
                "restored-differs",
                where=where,
                info=INFO,
                key=name,
                said=backup.state[name],
                file=backup.content.name,
                read=restored_value,
            )


async def _send(client: RawClient, path: Path, subject: str) -> None:
    """Sends the blocks; each chunk is acknowledged, an error comes instead of one."""
    with path.open("rb") as blocks:
        while chunk := await asyncio.to_thread(blocks.read, _CHUNK_BYTES):
            _check(await client.request(subject, chunk, timeout=_ANSWER_SECONDS))
    _check(await client.request(subject, b"", timeout=_ANSWER_SECONDS))


def _check(answer: Any) -> None:
    if answer.data:
        parse_answer(Answer, "the server", "a part of the backup", answer.data)
