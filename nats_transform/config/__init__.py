"""Reads the configurations that people already have, and computes versions of their meaning.

In `nats_transform` only these readers open files.
"""

from nats_transform.config.accounts import Located
from nats_transform.config.folders import load_consumers, load_streams
from nats_transform.config.load import load, load_all, load_mappings, shared_by
from nats_transform.config.server_conf import parse_server_config
from nats_transform.config.tree import plain
from nats_transform.config.version import canonical, from_canonical, mapping_version

__all__ = [
    "Located",
    "canonical",
    "from_canonical",
    "load",
    "load_all",
    "load_consumers",
    "load_mappings",
    "load_streams",
    "mapping_version",
    "parse_server_config",
    "plain",
    "shared_by",
]
