"""Who may publish and subscribe, from the authorization blocks of a server configuration.

Sources: nats-server `parseAuthorization`, `parseAccounts` and `parseUserPermissions` in
`server/opts.go`; `pubAllowedFullCheck` and `canSubscribeInternal` in `server/client.go`. A publish
is checked after the mapping: the parser maps first (`selectMappedSubject` in `server/parser.go`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nats_transform.config.accounts import GLOBAL_ACCOUNT
from nats_transform.config.tree import (
    DEFAULT_PERMISSIONS,
    USER,
    USER_PERMISSIONS,
    Entry,
    Node,
    Section,
    entries_of,
    field,
    plain,
)
from nats_transform.mappings.subject import is_valid_filter, subscribes
from nats_transform.mappings.subject_index import Interest


@dataclass(frozen=True, slots=True)
class Allowance:
    """One side of a user's permissions.

    Attributes:
        allow: the filters that are allowed; None allows all subjects.
        deny: the filters that are denied.
        allow_groups, deny_groups: filters with a queue group, as written. They hold only for
            members of that group.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    allow_groups: tuple[str, ...] = ()
    deny_groups: tuple[str, ...] = ()

    def allows(self, subject: str) -> bool:
        """Whether a literal subject is allowed."""
        allowed = self.allow is None or any(subscribes(f, subject) for f in self.allow)
        return allowed and not any(subscribes(f, subject) for f in self.deny)


@dataclass(frozen=True, slots=True)
class User:
    """A user who has permissions.

    Attributes:
        name: the user name or public key.
        publish, subscribe: what the user may publish and subscribe to.
        responses: the `allow_responses` of the user as written; None if there is none.
    """

    name: str
    publish: Allowance
    subscribe: Allowance
    responses: object = None


class Rights:
    """Finds the users who are allowed a subject, without asking each of them.

    Sides of a user that allow everything are left out.
    """

    def __init__(self, users: Sequence[User]) -> None:
        sides = [
            ((how, number), side)
            for number, user in enumerate(users)
            for how, side in (("publish", user.publish), ("subscribe", user.subscribe))
            if side != Allowance()
        ]
        self._open = {who for who, side in sides if side.allow is None}
        self._named = Interest(
            (filter, (who, is_allowed))
            for who, side in sides
            for some, is_allowed in ((side.allow or (), True), (side.deny, False))
            for filter in some
        )

    def of(self, subject: str) -> set[tuple[str, int]]:
        """`publish` or `subscribe` with the number of a user, of all that `Allowance.allows`."""
        found = self._named.of(subject)
        allowed = self._open.union(who for who, is_allowed in found if is_allowed)
        return allowed.difference(who for who, is_allowed in found if not is_allowed)


def users_of(config: Node, account: str = GLOBAL_ACCOUNT) -> list[User]:
    """The users of an account that have permissions, as `parse_server_config` read them.

    Raises:
        InvalidConfig: a permission that nats-server refuses, with its place; or no user of the
            account has permissions, but users of another account have.
    """
    top = entries_of(config)
    accounts = field(top, "accounts")
    sections = entries_of(accounts.node) if accounts else {}
    if account != GLOBAL_ACCOUNT and account not in sections:
        raise config.place.error("no-account-of-permissions", account=account)
    users = _of_account(top, sections, account)
    if not users:
        others = [name for name in (GLOBAL_ACCOUNT, *sections) if _of_account(top, sections, name)]
        if others:
            raise config.place.error(
                "account-without-permissions", account=account, others=", ".join(map(repr, others))
            )
    return users


def _of_account(top: Section, sections: Section, account: str) -> list[User]:
    if account == GLOBAL_ACCOUNT:
        block = field(top, "authorization")
        section = entries_of(block.node) if block else {}
        default = field(section, *DEFAULT_PERMISSIONS)
        alone = field(section, "user", "username")
        single = [User(_name(section), *_sides(default.node))] if alone and default else []
        return [*single, *_users(section, default)]
    section = entries_of(sections[account].node)
    return list(_users(section, field(section, "default_permissions")))


def _users(section: Section, default: Entry | None) -> Iterator[User]:
    users = field(section, "users")
    if users is None:
        return
    if not isinstance(users.node.value, tuple):
        raise users.node.place.error("not-a-list-of-users", kind=users.node.kind)
    for node in users.node.value:
        fields = entries_of(node)
        permissions = field(fields, *USER_PERMISSIONS) or default
        if permissions is not None:
            yield User(_name(fields), *_sides(permissions.node))


def _name(fields: Section) -> str:
    entry = field(fields, *USER)
    value = entry.node.value if entry else None
    return value if isinstance(value, str) else "(unnamed)"


def _sides(node: Node) -> tuple[Allowance, Allowance, object]:
    fields = entries_of(node)
    publish = field(fields, "pub", "publish", "import")
    subscribe = field(fields, "sub", "subscribe", "export")
    responses = field(fields, "publish_allow_responses", "allow_responses")
    publishes = _allowance(publish.node, queues=False) if publish else Allowance()
    if responses and responses.node.value is not False and publishes.allow is None:
        # With `allow_responses` and no list of allowed subjects, a user may publish only replies.
        publishes = Allowance((), publishes.deny)
    return (
        publishes,
        _allowance(subscribe.node, queues=True) if subscribe else Allowance(),
        plain(responses.node) if responses else None,
    )


def _allowance(node: Node, queues: bool) -> Allowance:
    if not isinstance(node.value, Mapping):
        subjects, groups = _subjects(node, queues)
        return Allowance(_some(subjects, groups), allow_groups=groups)
    allow, deny = field(node.value, "allow"), field(node.value, "deny")
    allowed, allowed_groups = _subjects(allow.node, queues) if allow else ((), ())
    denied, denied_groups = _subjects(deny.node, queues) if deny else ((), ())
    return Allowance(_some(allowed, allowed_groups), denied, allowed_groups, denied_groups)


def _some(allowed: tuple[str, ...], groups: tuple[str, ...]) -> tuple[str, ...] | None:
    # An empty list is no list to the server, so it allows all subjects.
    return allowed if allowed or groups else None


def _subjects(node: Node, queues: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The filters without a queue group, and those with one."""
    nodes = node.value if isinstance(node.value, tuple) else (node,)
    subjects: list[str] = []
    groups: list[str] = []
    for entry in nodes:
        if not isinstance(entry.value, str):
            raise entry.place.error("permission-not-text", kind=entry.kind)
        parts = entry.value.split() if queues else []
        if is_valid_filter(entry.value):
            subjects.append(entry.value)
        elif len(parts) == 2 and all(map(is_valid_filter, parts)):
            groups.append(" ".join(parts))
        else:
            raise entry.place.error("permission-not-a-subject")
    return tuple(subjects), tuple(groups)
