"""The streams that accounts export and import, in server configurations and in JWTs.

Sources: nats-server `parseAccountExports` and `parseAccountImports` in `server/opts.go`, `Export`
and `Import` of nats-io/jwt. Only what decides who gets messages is read; nothing else is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nats_transform.config.tree import Node, Section, field
from nats_transform.sharing import Shares


def shares_of_config(fields: Section) -> Shares:
    """The exports and imports of an account in a server configuration."""
    exports = [
        entry.node.value
        for one in _sections(fields, "exports")
        if (entry := field(one, "stream")) is not None and isinstance(entry.node.value, str)
    ]
    imports = []
    for one in _sections(fields, "imports"):
        entry = field(one, "stream")
        if entry is not None and isinstance(entry.node.value, Mapping):
            pair = _text(entry.node.value, "account"), _text(entry.node.value, "subject")
            if all(pair):
                imports.append(pair)
    return Shares(tuple(exports), tuple(imports))


def shares_of_claims(claims: Section) -> Shares:
    """The exports and imports in the claims of an account JWT."""
    exports = [
        _text(one, "subject")
        for one in _sections(claims, "exports")
        if _text(one, "type") == "stream"
    ]
    imports = [
        (_text(one, "account"), _text(one, "subject"))
        for one in _sections(claims, "imports")
        if _text(one, "type") == "stream"
    ]
    return Shares(tuple(exports), tuple(imports))


def _sections(fields: Section, name: str) -> Iterator[Section]:
    entry = field(fields, name)
    nodes: tuple[Node, ...] = ()
    if entry is not None and isinstance(entry.node.value, tuple):
        nodes = entry.node.value
    for node in nodes:
        if isinstance(node.value, Mapping):
            yield node.value


def _text(fields: Section, name: str) -> str:
    entry = field(fields, name)
    return entry.node.value if entry and isinstance(entry.node.value, str) else ""
