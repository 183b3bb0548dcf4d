"""Reads the streams and consumers of an account from a server, into files that jobs read.

It only asks for `STREAM.LIST` and `CONSUMER.LIST` of the JetStream API, and for
`$SYS.REQ.USER.INFO`, which names the account. So it changes nothing on the server.

A user of the account who may subscribe to these requests can answer in the place of the server.
So a name becomes that of a file only if it is no path, and the answers have limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats.errors

from jobs.errors import ArchiveError
from jobs.jetstream.connection import NatsSettings, RawClient, api, connection, document

_WHO = "$SYS.REQ.USER.INFO"
_MOST_BYTES = 256 * 1024 * 1024
"""What all answers have together at most: hundreds of thousands of streams and consumers."""
_NAME = re.compile(r"[^\x00-\x20\x7f.*>/\ud800-\udfff]{1,255}")


@contextlib.contextmanager
def account_files(settings: NatsSettings, account: str) -> Iterator[tuple[Path, Path | None]]:
    """Temporary folders with the streams and the durable consumers (None if there are none).

    The files have only what somebody configured, so the same account gives the same bytes.

    Args:
        settings: how to reach the server.
        account: the account that it should be.

    Raises:
        ArchiveError: the server cannot be reached, has no JetStream for the account, or the user is
            of another account; or there is no stream.
    """
    streams, consumers = asyncio.run(_read(settings, account))
    if not streams:
        raise ArchiveError(f"the account has no stream on {settings.where}")
    with tempfile.TemporaryDirectory(prefix="nats-transform-") as name:
        folders = []
        for kind, documents in (("streams", streams), ("consumers", consumers)):
            folder = Path(name) / kind
            folder.mkdir(mode=0o700)
            folders.append(folder)
            for file, document in documents.items():
                text = json.dumps(document, sort_keys=True)
                (folder / f"{file}.json").write_text(text, "utf-8")
        yield folders[0], folders[1] if consumers else None


async def _read(
    settings: NatsSettings, account: str
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    async with connection(settings) as client:
        await _check_account(client, settings, account)
        streams: dict[str, dict[str, Any]] = {}
        consumers: dict[str, dict[str, Any]] = {}
        for info in await _listed(client, settings, "STREAM.LIST", "streams"):
            name = _name(settings, info["config"])
            streams[name] = {"config": info["config"]}
            for one in await _listed(client, settings, f"CONSUMER.LIST.{name}", "consumers"):
                if one["config"].get("durable_name"):  # others come and go
                    durable = _name(settings, one)
                    consumers[f"{name}.{durable}"] = {
                        "stream_name": name,
                        "name": durable,
                        "config": one["config"],
                    }
        return streams, consumers


def _name(settings: NatsSettings, of: dict[str, Any]) -> str:
    name = of.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ArchiveError(
            f"{settings.where} shows a name that no stream or consumer can have: {str(name)[:100]}"
        )
    return name


async def _listed(
    client: RawClient, settings: NatsSettings, subject: str, field: str
) -> list[dict[str, Any]]:
    """Every entry of a list that comes in pages. Each of them has a `config`.

    Raises:
        ArchiveError: the list is not whole, is no list, or does not end.
    """
    found: list[dict[str, Any]] = []
    while True:
        page = await api(client, settings, subject, {"offset": len(found)})
        entries, total = page.get(field) or [], page.get("total")
        if missing := page.get("missing"):
            names = ", ".join(map(str, missing)) if isinstance(missing, list) else missing
            raise ArchiveError(
                f"{settings.where} cannot show {names} now: try again when every "
                "server of the cluster is there"
            )
        if (
            not isinstance(total, int)
            or not isinstance(entries, list)
            or not all(
                isinstance(one, dict) and isinstance(one.get("config"), dict) for one in entries
            )
        ):
            raise ArchiveError(
                f"{settings.where} answers with no list of {field}: does a nats-server answer?"
            )
        if client.stats["in_bytes"] > _MOST_BYTES:
            raise ArchiveError(
                f"{settings.where} shows more than {_MOST_BYTES // 2**20} MiB of streams and "
                "consumers: give their files instead (--streams, --consumers)"
            )
        found += entries
        if not entries or len(found) >= total:
            return found


async def _check_account(client: RawClient, settings: NatsSettings, account: str) -> None:
    try:
        answer = await client.request(_WHO, timeout=settings.connect_timeout)
    except nats.errors.Error:  # servers before 2.10, or no permission to ask
        return
    told = document(settings, answer.data).get("data")
    told = told if isinstance(told, dict) else {}
    names = [name for name in (told.get("account"), told.get("account_name")) if name]
    if names and account not in names:
        raise ArchiveError(
            f"this user of {settings.where} is of the account {names[0]}, and the mappings are of "
            f"{account}: name the account with --account, or give credentials of {account}"
        )
