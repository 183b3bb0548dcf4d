"""Subject transforms and mappings exactly as nats-server does them.

`nats_transform.spark` applies them to DataFrames. It must be imported by its own name, so that this
package needs no Spark. Every name of this package is imported when it is first used. So
`nats-transform map` answers at once, and Ctrl-C ends it without a stack trace from the first
moment.
"""

from importlib import import_module

# Type checkers know this name. The import of `typing` would take longer than this whole module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from nats_transform.accounts.imports import AccountImport, ImportKind
    from nats_transform.config.load import load
    from nats_transform.errors import (
        InvalidConfig,
        InvalidMapping,
        InvalidStream,
        InvalidTransform,
        NatsTransformError,
    )
    from nats_transform.mappings.mapping import AccountMappings, Destination, Fate, Mapping, Outcome
    from nats_transform.mappings.transform import Transform
    from nats_transform.streams.source import StreamSource, bucket_source
    from nats_transform.streams.stream import StreamConfig, parse_stream

_ON_USE = {
    "AccountImport": "nats_transform.accounts.imports",
    "AccountMappings": "nats_transform.mappings.mapping",
    "Destination": "nats_transform.mappings.mapping",
    "Fate": "nats_transform.mappings.mapping",
    "ImportKind": "nats_transform.accounts.imports",
    "InvalidConfig": "nats_transform.errors",
    "InvalidMapping": "nats_transform.errors",
    "InvalidStream": "nats_transform.errors",
    "InvalidTransform": "nats_transform.errors",
    "Mapping": "nats_transform.mappings.mapping",
    "NatsTransformError": "nats_transform.errors",
    "Outcome": "nats_transform.mappings.mapping",
    "StreamConfig": "nats_transform.streams.stream",
    "StreamSource": "nats_transform.streams.source",
    "Transform": "nats_transform.mappings.transform",
    "bucket_source": "nats_transform.streams.source",
    "load": "nats_transform.config",
    "parse_stream": "nats_transform.streams.stream",
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
