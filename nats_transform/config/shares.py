"""What accounts export and import, in server configurations and in JWTs.

Sources: nats-server `parseAccountExports` and `parseAccountImports` in `server/opts.go`, `Export`
and `Import` of nats-io/jwt. Only what decides who gets messages is read; nothing else is judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nats_transform.config.tree import Node, Section, field, lower, plain
from nats_transform.sharing import Entry, Shares
from nats_transform.subject import SEPARATOR

_KINDS = ("stream", "service")


def shares_of_config(fields: Section) -> Shares:
    """The exports and imports of an account in a server configuration."""
    exports, imports = [], []
    for one in _sections(fields, "exports"):
        for kind in _KINDS:
            if subject := _text(one, kind):
                exports.append(Entry(kind, subject, rest=_rest(one, kind)))
    for one in _sections(fields, "imports"):
        for kind in _KINDS:
            entry = field(one, kind)
            if entry is not None and isinstance(entry.node.value, Mapping):
                account = _text(entry.node.value, "account")
                subject = _text(entry.node.value, "subject")
                prefix = _text(one, "prefix")
                to = f"{prefix}{SEPARATOR}{subject}" if prefix else _text(one, "to")
                if account and subject:
                    rest = _rest(one, kind, "to", "prefix")
                    imports.append(Entry(kind, subject, account, to, rest))
    return Shares(tuple(exports), tuple(imports))


def shares_of_claims(claims: Section) -> Shares:
    """The exports and imports in the claims of an account JWT."""
    exports = [Entry(_text(one, "type"), _text(one, "subject")) for one in _of(claims, "exports")]
    imports = [
        Entry(
            _text(one, "type"),
            _text(one, "subject"),
            _text(one, "account"),
            _text(one, "local_subject"),
            {"to": to} if (to := _text(one, "to")) else {},
        )
        for one in _of(claims, "imports")
    ]
    return Shares(tuple(exports), tuple(imports))


def _of(claims: Section, name: str) -> Iterator[Section]:
    return (one for one in _sections(claims, name) if _text(one, "type") in _KINDS)


def _rest(fields: Section, *known: str) -> dict[str, object]:
    return {k: plain(entry.node) for k, entry in fields.items() if lower(k) not in known}


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
