"""Subject transforms and mappings exactly as nats-server does them.

`nats_transform.spark` compiles them to Columns; it is imported by name, so that this package
needs no Spark. Names that need Pydantic or a parser are imported when they are first used: that
takes longer than all the rest, and `nats-transform map` should answer at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from nats_transform.errors import (
    InvalidConfig,
    InvalidMapping,
    InvalidStream,
    InvalidTransform,
    NatsTransformError,
)
from nats_transform.imports import AccountImport, ImportKind
from nats_transform.mapping import AccountMappings, Destination, Fate, Mapping, Outcome
from nats_transform.transform import Transform

if TYPE_CHECKING:
    from nats_transform.config.load import load
    from nats_transform.stream import StreamConfig, parse_stream
    from nats_transform.stream_source import StreamSource, bucket_source

_ON_USE = {
    "StreamConfig": "nats_transform.stream",
    "StreamSource": "nats_transform.stream_source",
    "bucket_source": "nats_transform.stream_source",
    "load": "nats_transform.config",
    "parse_stream": "nats_transform.stream",
}

__all__ = [
    "AccountImport",
    "AccountMappings",
    "Destination",
    "Fate",
    "ImportKind",
    "InvalidConfig",
    "InvalidMapping",
    "InvalidStream",
    "InvalidTransform",
    "Mapping",
    "NatsTransformError",
    "Outcome",
    "StreamConfig",
    "StreamSource",
    "Transform",
    "bucket_source",
    "load",
    "parse_stream",
]


def __getattr__(name: str) -> object:
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_ON_USE[name]), name)
