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
    from nats_transform.config.load import load
    from nats_transform.errors import (
        InvalidConfig,
        InvalidMapping,
        InvalidStream,
        InvalidTransform,
        NatsTransformError,
    )
    from nats_transform.imports import AccountImport, ImportKind
    from nats_transform.mapping import AccountMappings, Destination, Fate, Mapping, Outcome
    from nats_transform.stream import StreamConfig, parse_stream
    from nats_transform.stream_source import StreamSource, bucket_source
    from nats_transform.transform import Transform

_ON_USE = {
    "AccountImport": "nats_transform.imports",
    "AccountMappings": "nats_transform.mapping",
    "Destination": "nats_transform.mapping",
    "Fate": "nats_transform.mapping",
    "ImportKind": "nats_transform.imports",
    "InvalidConfig": "nats_transform.errors",
    "InvalidMapping": "nats_transform.errors",
    "InvalidStream": "nats_transform.errors",
    "InvalidTransform": "nats_transform.errors",
    "Mapping": "nats_transform.mapping",
    "NatsTransformError": "nats_transform.errors",
    "Outcome": "nats_transform.mapping",
    "StreamConfig": "nats_transform.stream",
    "StreamSource": "nats_transform.stream_source",
    "Transform": "nats_transform.transform",
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
