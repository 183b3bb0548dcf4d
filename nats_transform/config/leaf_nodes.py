"""The leaf node connections of the accounts in a server configuration.

Sources: nats-server `parseLeafNodes`, `parseLeafAuthorization` and `parseRemoteLeafNodes` in
`server/opts.go`. Who connects with credentials in a file is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

from nats_transform.accounts.leaf_nodes import ANYBODY, LeafNodes
from nats_transform.config.tree import (
    LEAF_NODES,
    USER,
    Section,
    field,
    section_of,
    sections_of,
    text_of,
)


def leaf_nodes_of(
    top: Section, accounts: Mapping[str, Section], unnamed: str
) -> dict[str, LeafNodes]:
    """The connections of each account that has some.

    Args:
        top: the fields of a configuration.
        accounts: the fields of each account.
        unnamed: the account of those that name none.
    """
    own = section_of(top, *LEAF_NODES)
    goes: dict[str, set[str]] = defaultdict(set)
    comes: dict[str, set[str]] = defaultdict(set)
    for remote in sections_of(own, "remotes"):
        if field(remote, "credentials", "creds", "nkey", "seed") is None:
            goes[text_of(remote, "account", "local") or unnamed].update(_users_of_urls(remote))
    if field(own, "port", "listen", "host", "net"):
        rights = section_of(own, "authorization")
        users = [*sections_of(rights, "users"), *([rights] if field(rights, *USER) else [])]
        for user in users:
            comes[text_of(user, "account") or unnamed].add(text_of(user, *USER))
        if not users and (account := text_of(rights, "account")):
            comes[account].add(ANYBODY)
        elif not users:
            comes |= {name: set(_users(fields)) for name, fields in accounts.items()}
            if not any(comes.values()):
                comes[unnamed].add("")
    return {
        name: LeafNodes(frozenset(goes[name]), frozenset(comes[name]))
        for name in goes.keys() | comes.keys()
    }


def _users(fields: Section) -> Iterator[str]:
    """The names of the users of an account; those of the unnamed one have a section."""
    for section in (fields, section_of(fields, "authorization")):
        yield from (text_of(user, *USER) for user in sections_of(section, "users"))
        if field(section, *USER):
            yield text_of(section, *USER)


def _users_of_urls(remote: Section) -> Iterator[str]:
    entry = field(remote, "urls", "url")
    nodes = entry.node.value if entry and isinstance(entry.node.value, tuple) else ()
    for text in (text_of(remote, "urls", "url"), *(node.value for node in nodes)):
        if isinstance(text, str) and text:
            try:
                yield unquote(urlsplit(text).username or "")
            except ValueError:
                continue  # no address
