"""Subject transforms and mappings exactly as nats-server does them.

`nats_transform.spark` compiles them to Columns; it is imported by name, so that this package
needs no Spark.
"""

from nats_transform.errors import (
    InvalidConfig,
    InvalidMapping,
    InvalidStream,
    InvalidTransform,
    NatsTransformError,
)
from nats_transform.imports import AccountImport, ImportKind, LeafNode
from nats_transform.mapping import AccountMappings, Destination, Fate, Mapping, Outcome
from nats_transform.stream import StreamConfig, StreamSource, bucket_source, parse_stream
from nats_transform.transform import Transform

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
    "LeafNode",
    "Mapping",
    "NatsTransformError",
    "Outcome",
    "StreamConfig",
    "StreamSource",
    "Transform",
    "bucket_source",
    "parse_stream",
]
