"""The leaf node connections of the accounts in a server configuration.

Sources: nats-server `parseLeafNodes`, `parseLeafAuthorization` and `parseRemoteLeafNodes` in
`server/opts.go`. Who connects with credentials in a file is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

from nats_transform.accounts.leaf_nodes import ANYBODY, LeafNodes
from nats_transform.config.tree import LEAF_NODES, USER, Node, Section, field


def leaf_nodes_of(
    top: Section, accounts: Mapping[str, Section], unnamed: str
) -> dict[str, LeafNodes]:
    """The connections of each account that has some.

    Args:
        top: the fields of a configuration.
        accounts: the fields of each account.
        unnamed: the account of those that name none.
    """
    entry = field(top, *LEAF_NODES)
    own = _section(entry.node if entry else None)
    goes: dict[str, set[str]] = defaultdict(set)
    comes: dict[str, set[str]] = defaultdict(set)
    for remote in _sections(own, "remotes"):
        if field(remote, "credentials", "creds", "nkey", "seed") is None:
            goes[_text(remote, "account", "local") or unnamed].update(_users_of_urls(remote))
    if field(own, "port", "listen", "host", "net"):
        rights = _section(entry.node if (entry := field(own, "authorization")) else None)
        users = [*_sections(rights, "users"), *([rights] if field(rights, *USER) else [])]
        for user in users:
            comes[_text(user, "account") or unnamed].add(_name(user))
        if not users and (account := _text(rights, "account")):
            comes[account].add(ANYBODY)
        elif not users:
            comes |= {name: set(_users(fields)) for name, fields in accounts.items()}
            if not any(comes.values()):
                comes[unnamed].add("")
    return {
        name: LeafNodes(frozenset(goes[name]), frozenset(comes[name]))
        for name in [*{**goes, **comes}]
    }


def _users(fields: Section) -> Iterator[str]:
    """The names of the users of an account; those of the unnamed one have a section."""
    block = field(fields, "authorization")
    for section in (fields, *([_section(block.node)] if block else [])):
        yield from map(_name, _sections(section, "users"))
        if field(section, *USER):
            yield _name(section)


def _name(user: Section) -> str:
    return _text(user, *USER)


def _users_of_urls(remote: Section) -> Iterator[str]:
    entry = field(remote, "urls", "url")
    nodes = entry.node.value if entry and isinstance(entry.node.value, tuple) else ()
    for text in (_text(remote, "urls", "url"), *(node.value for node in nodes)):
        if isinstance(text, str) and text:
            try:
                yield unquote(urlsplit(text).username or "")
            except ValueError:
                continue  # no address


def _section(node: Node | None) -> Section:
    return node.value if node is not None and isinstance(node.value, Mapping) else {}


def _sections(fields: Section, name: str) -> Iterator[Section]:
    entry = field(fields, name)
    if entry is not None and isinstance(entry.node.value, tuple):
        yield from filter(None, map(_section, entry.node.value))


def _text(fields: Section, *names: str) -> str:
    entry = field(fields, *names)
    return entry.node.value if entry and isinstance(entry.node.value, str) else ""
