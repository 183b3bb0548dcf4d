"""Loads the streams and consumers of an account from the output of the `nats` command."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from nats_transform.config.files import Files
from nats_transform.config.load import load_all
from nats_transform.errors import InvalidConfig, InvalidStream
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import encode

if TYPE_CHECKING:
    from nats_transform.streams.consumer import Consumer
    from nats_transform.streams.stream import StreamConfig


def load_streams(place: Path) -> tuple[StreamConfig, ...]:
    """The streams in the `*.json` files of a folder, or in one file, in the order of the names.

    Raises:
        InvalidConfig: there is no such file, a file is no stream, nats-server refuses the stream,
            or two files have a stream of the same name.
    """
    streams = []
    for file in _json_files(place, "nats stream info NAME --json"):
        stream = load_all(file)[0].config
        if isinstance(stream, AccountMappings):
            raise InvalidConfig("mappings-as-stream", str(file))
        streams.append((stream, str(file)))
    refuse_twins(streams)
    return tuple(stream for stream, _ in streams)


def refuse_twins(streams: Iterable[tuple[StreamConfig, str]]) -> None:
    """Refuses two streams of one name; each comes with its file, or where else it is.

    Raises:
        InvalidConfig: two have the same name.
    """
    places: dict[str, str] = {}
    for stream, place in streams:
        if stream.name in places:
            raise InvalidConfig(
                "stream-twice", place, stream=stream.name, places=places[stream.name]
            )
        places[stream.name] = place


def load_consumers(place: Path, streams: Iterable[StreamConfig]) -> tuple[Consumer, ...]:
    """The consumers in the `*.json` files of a folder, or in one file, in the order of the names.

    Raises:
        InvalidConfig: there is no such file, a file is no consumer, or its stream is not given.
    """
    from nats_transform.streams.consumer import parse_consumer

    names = {stream.name for stream in streams}
    consumers = []
    for file in _json_files(place, "nats consumer info STREAM NAME --json"):
        text = Files().text(file)
        try:
            consumer = parse_consumer(json.loads(encode(text)))
        except InvalidStream as error:
            raise InvalidConfig("refused", str(file), reason=error) from error
        except (ValueError, RecursionError) as error:
            raise InvalidConfig("not-json", str(file)) from error
        if consumer.stream not in names:
            raise InvalidConfig("consumer-without-stream", str(file), stream=consumer.stream)
        consumers.append(consumer)
    return tuple(consumers)


def _json_files(place: Path, command: str) -> list[Path]:
    files = sorted(place.glob("*.json")) if place.is_dir() else [place]
    if not files:
        raise InvalidConfig("folder-without-json", str(place), command=command)
    return files
