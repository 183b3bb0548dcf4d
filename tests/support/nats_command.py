"""The `nats` command, as far as the pages of the documentation use it.

It is not to be had as a package of Python. This program does what the real one does, by the same
calls of the JetStream API; its options are those of natscli 0.3.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nats

from tests.conformance.client import Client
from tests.support.programs import BIN
from tests.support.stream_backups import back_up, restore

ROOT = Path(__file__).parents[2]
_AT_ONCE = 500


def environment(folder: Path) -> dict[str, str]:
    """What the commands of a page need: this program, in a new folder, and ours on PATH."""
    folder.mkdir()
    program = folder / "nats"
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
        "from tests.support.nats_command import main; main(sys.argv[1:])"
    )
    # Not Python's own first line: its path may have a space.
    command = shlex.join([sys.executable, "-c", code])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)
    path = f"{folder}:{BIN}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "COLUMNS": "100"}


def main(arguments: Sequence[str]) -> None:
    """Does what the arguments say.

    Raises:
        ValueError: the pages use more of the command than this program has.
    """
    url = os.environ.get("NATS_URL", "")
    match arguments:
        case ["--context", context, *arguments]:
            contexts = Path(os.environ["XDG_CONFIG_HOME"]) / "nats/context"
            url = json.loads((contexts / f"{context}.json").read_text())["url"]
    match arguments:
        case ["stream", "backup", name, folder]:
            back_up(SimpleNamespace(server=SimpleNamespace(url=url), name=name), Path(folder))
        case ["stream", "restore", folder]:
            restore(url, Path(folder))
        case ["stream", "add", name, "--subjects", subjects, "--defaults"]:
            config = {"name": name, "subjects": subjects.split(","), "storage": "file"}
            _ask(url, f"STREAM.CREATE.{name}", config)
        case ["stream", "rm", name, "--force"]:
            _ask(url, f"STREAM.DELETE.{name}")
        case ["stream", "edit", name, "--config", file, "--force"]:
            _ask(url, f"STREAM.UPDATE.{name}", json.loads(Path(file).read_text()))
        case ["stream", "info", name, "--json"]:
            print(json.dumps(_ask(url, f"STREAM.INFO.{name}"), indent=2))
        case ["consumer", "add", stream, name, "--filter", subjects, "--pull", "--defaults"]:
            config = {"durable_name": name, "name": name, "ack_policy": "explicit"}
            config["filter_subject"] = subjects
            _consumer(url, stream, name, config)
        case ["consumer", "edit", stream, name, "--config", file, "--force"]:
            _consumer(url, stream, name, json.loads(Path(file).read_text()))
        case ["consumer", "info", stream, name, "--json"]:
            print(json.dumps(_ask(url, f"CONSUMER.INFO.{stream}.{name}"), indent=2))
        case ["pub", subject, text, "--count", count, "--jetstream"]:
            _publish(url, subject, text, int(count))
        case _:
            raise ValueError(f"the stand-in for nats has no {arguments}")


def _consumer(url: str, stream: str, name: str, config: dict[str, Any]) -> None:
    _ask(url, f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})


def _ask(url: str, subject: str, body: dict[str, Any] | None = None) -> Any:
    with Client(url) as client:
        found = client.request(f"$JS.API.{subject}", body)
    if "error" in found:
        raise SystemExit(f"nats: error: {found['error']['description']}")
    return found


def _publish(url: str, subject: str, text: str, count: int) -> None:
    async def published() -> None:
        async with await nats.connect(url) as client:
            context = client.jetstream()
            for first in range(0, count, _AT_ONCE):
                messages = range(first, min(first + _AT_ONCE, count))
                await asyncio.gather(*(context.publish(subject, text.encode()) for _ in messages))

    asyncio.run(published())
