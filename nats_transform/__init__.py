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

_MODULES = {
    "accounts.imports": ("AccountImport", "ImportKind"),
    "config": ("load",),
    "errors": (
        *("InvalidConfig", "InvalidMapping", "InvalidStream", "InvalidTransform"),
        "NatsTransformError",
    ),
    "mappings.mapping": ("AccountMappings", "Destination", "Fate", "Mapping", "Outcome"),
    "mappings.transform": ("Transform",),
    "streams.source": ("StreamSource", "bucket_source"),
    "streams.stream": ("StreamConfig", "parse_stream"),
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
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
