"""Parts of a nats-server configuration as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from nats_transform.mappings.mapping import AccountMappings


def mapping_fields(
    mappings: AccountMappings, written: Callable[[str], str] = str
) -> dict[str, list[dict[str, Any]]]:
    """Mappings in the form of an account's claims and of the server's configuration.

    Args:
        written: the text that stands for a source, a destination or the name of a cluster.
    """
    return {
        written(mapping.source): [
            {"destination": written(destination.subject), "weight": destination.weight}
            | ({"cluster": written(destination.cluster)} if destination.cluster else {})
            for destination in mapping.destinations
        ]
        for mapping in mappings.mappings
    }


def mappings_block(mappings: Mapping[str, Any]) -> str:
    """The block `mappings` of an account in the configuration of a server."""
    lines = ["mappings {"]
    for source, destinations in mappings.items():
        lines.append(f"  {_key(source)}: [")
        for share in destinations:
            cluster = f", cluster: {quoted_string(share['cluster'])}" if "cluster" in share else ""
            where = f"destination: {quoted_string(share['destination'])}"
            lines.append(f"    {{ {where}, weight: {share['weight']}%{cluster} }}")
        lines.append("  ]")
    return "\n".join([*lines, "}"]) + "\n"


def configured(value: Any) -> str:
    """A value in the syntax of a server's configuration."""
    if isinstance(value, Mapping):
        fields = ", ".join(f"{name}: {configured(field)}" for name, field in value.items())
        return f"{{ {fields} }}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(configured, value)) + "]"
    return quoted_string(value) if isinstance(value, str) else json.dumps(value)


def _key(text: str) -> str:
    # nats-server knows no escapes in a key: the quotes are those that it does not hold. One that
    # holds both kinds can be shown, but not read back.
    quote = "'" if '"' in text else '"'
    return f"{quote}{text}{quote}"


def quoted_string(text: str) -> str:
    """A string of a server's configuration."""
    escaped = _ACTING.sub(lambda m: _ESCAPES.get(m[0], f"\\x{ord(m[0]):02x}"), text)
    return f'"{escaped}"'


# All escapes that nats-server knows, beside those of bytes (`lexDubQuotedString`).
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ACTING = re.compile(r'[\\"\x00-\x1f]')
