"""Reading the stream configurations of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from nats_transform.stream import StreamConfig


def load_streams(place: Path) -> list[StreamConfig]:
    """The streams in the `*.json` files of a folder, or in one file, by name.

    Raises:
        ClickException: nothing there, or a file that is no stream, or two of one name.
        InvalidConfig: nats-server refuses a stream.
    """
    from nats_transform.config import load
    from nats_transform.stream import StreamConfig

    files = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not files:
        raise click.ClickException(
            f"{place}: no *.json files; save each stream with `nats stream info NAME --json`"
        )
    found: dict[str, tuple[StreamConfig, Path]] = {}
    for file in files:
        stream = load(file)
        if not isinstance(stream, StreamConfig):
            raise click.ClickException(f"{file}: mappings, where a stream configuration is wanted")
        if stream.name in found:
            raise click.ClickException(
                f"{file}: stream {stream.name} is also in {found[stream.name][1]}"
            )
        found[stream.name] = stream, file
    return [stream for stream, _ in found.values()]
