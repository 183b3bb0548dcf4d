"""Reads the configurations that people already have, and computes versions of their meaning.

In `nats_transform` only these readers open files.
"""

from nats_transform.config.accounts import Located
from nats_transform.config.folders import load_consumers, load_streams
from nats_transform.config.jwt import decode_account
from nats_transform.config.load import accounts, load, load_all, load_mappings, shared_by
from nats_transform.config.server_conf import parse_server_config
from nats_transform.config.tree import Entry, Node, plain
from nats_transform.config.version import canonical, from_canonical, mapping_version
from nats_transform.errors import Place

__all__ = [
    "Entry",
    "Located",
    "Node",
    "Place",
    "accounts",
    "canonical",
    "decode_account",
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
