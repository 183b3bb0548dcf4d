"""Parts of a nats-server configuration as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def mappings_block(mappings: Mapping[str, Any]) -> str:
    """The block `mappings` of an account in the configuration of a server."""
    lines = ["mappings {"]
    for source, destinations in mappings.items():
        lines.append(f"  {_key(source)}: [")
        for one in destinations:
            cluster = f", cluster: {quoted_string(one['cluster'])}" if "cluster" in one else ""
            where = f"destination: {quoted_string(one['destination'])}"
            lines.append(f"    {{ {where}, weight: {one['weight']}%{cluster} }}")
        lines.append("  ]")
    return "\n".join([*lines, "}"]) + "\n"


def _key(text: str) -> str:
    # nats-server knows no escapes in a key: the quotes are those that it does not hold.
    quote = "'" if '"' in text else '"'
    return f"{quote}{text}{quote}"


def quoted_string(text: str) -> str:
    """A string of a server's configuration, which has no escapes for other characters."""
    return json.dumps(text, ensure_ascii=False)
