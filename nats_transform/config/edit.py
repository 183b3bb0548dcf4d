"""Changes of a nats-server configuration that leave every other byte as it is, comments included.

A change is made in the text, and the new text is read again: if it does not say exactly what the
old one said with the change in it, or if that cannot be known, there is no new text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nats_transform.config.accounts import GLOBAL_ACCOUNT
from nats_transform.config.server_conf import parse_server_text, written
from nats_transform.config.tree import (
    DEFAULT_PERMISSIONS,
    MAPPINGS,
    SECRET_TEXT,
    USER,
    USER_PERMISSIONS,
    Entry,
    Node,
    Section,
    field,
    is_secret,
    plain,
    text_of,
)
from nats_transform.errors import InvalidConfig, NatsTransformError, Place

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|(?<!\S)(?:#|//)[^\n]*|[][{}]|.', re.DOTALL)
# In steps, because one pattern of all three takes quadratic time.
_COMMENT = re.compile(r"(?<!\S)(?:#|//).*")
# In a sentence `key` is no secret, but with a sign or a quote behind it.
_SECRET_WORD = re.compile(
    r"""(?:pass|token|secret|seed)\w*|(?<![^\W_])(?:key|ek)(?=\s*[:=]|\s+["'])""", re.IGNORECASE
)
_SOMETHING = re.compile(r"[^\S ]*[:= ]\s*\S")
# A bcrypt hash, or the public key that `auth_callout` and `proxies` have under `key`.
_OPEN = re.compile(r"""["']?(?:\$2[abxy]\$\d\d\$|[ACNOUX][A-Z2-7]{55}["']?$)""")

_Keys = tuple[str | int, ...]


class Unsafe(NatsTransformError):
    """A configuration cannot be changed safely; the text says why."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one block.

    Attributes:
        kind: `mappings`, `permissions`, `exports` or `imports`.
        name: the name of the account, or of the user for permissions.
        block: the new block, with its key.
    """

    kind: str
    name: str
    block: str


def edited(text: str, path: str, account: str, edits: Sequence[Edit]) -> str:
    """The text with other blocks.

    Args:
        text: the text of a nats-server configuration.
        path: the path of the file, for its includes and for errors.
        account: the account of the users.
        edits: the changes.

    Raises:
        Unsafe: a block is included, stands for a variable, or is not to be found for sure.
        InvalidConfig: the text is no configuration.
    """
    for edit in edits:
        text = _edited(text, path, account, edit)
    return text


def _edited(text: str, path: str, account: str, edit: Edit) -> str:
    tree = parse_server_text(text, path)
    ((key, block),) = _section(parse_server_text(edit.block, "block")).items()
    node, place, names = _holder(tree, account, edit)
    entry = field(_section(node), *names)
    if entry is None:
        start = end = _open(text, path, node)
        new = f"\n{edit.block.strip()}\n"
    else:
        start = _offset(text, path, entry.place)
        end = _end(text, path, entry)
        line = text[text.rfind("\n", 0, start) + 1 : start]
        indent = line[: len(line) - len(line.lstrip())]
        new = edit.block.strip().replace("\n", f"\n{indent}")
        key = entry.key
    new_text = text[:start] + new + text[end:]
    expected: Any = plain(tree)
    inner = expected
    for step in place:
        inner = inner[step]
    inner.pop(key, None)
    inner[key] = plain(block.node)
    try:
        actual = plain(parse_server_text(new_text, path))
    except InvalidConfig:
        actual = None
    if actual != expected:
        raise Unsafe("edit-not-found", kind=edit.kind, name=edit.name)
    return new_text


def block_of(text: str, path: str, account: str) -> tuple[str, int]:
    """The mappings of an account as they are written, from brace to brace, and their line.

    Raises:
        Unsafe: they are included, stand for a variable, or are not to be found for sure.
        InvalidConfig: the text is no configuration.
    """
    node, _ = _account(parse_server_text(text, path), account)
    entry = field(_section(node), *MAPPINGS)
    if entry is None:
        raise Unsafe("edit-no-mappings", account=account)
    start = _offset(text, path, entry.node.place)
    return text[start : _end(text, path, entry)], entry.node.place.line or 1


def _holder(tree: Node, account: str, edit: Edit) -> tuple[Node, _Keys, Sequence[str]]:
    """The section that has the block, where it is in the tree, and the names of the field."""
    if edit.kind != "permissions":
        names = MAPPINGS if edit.kind == "mappings" else (edit.kind,)
        return *_account(tree, edit.name), names
    node, place = _account(tree, account)
    if account == GLOBAL_ACCOUNT:
        entry = field(_section(node), "authorization")
        if entry is None:
            raise Unsafe("edit-no-authorization")
        node, place = entry.node, (*place, entry.key)
        alone = field(_section(node), *USER)
        if alone is not None and alone.node.value == edit.name:
            return node, place, DEFAULT_PERMISSIONS
    users = field(_section(node), "users")
    listed = users.node.value if users and isinstance(users.node.value, tuple) else ()
    numbers = [
        n
        for n, user in enumerate(listed)
        if isinstance(user.value, Mapping) and text_of(user.value, *USER) == edit.name
    ]
    if users is None or len(numbers) != 1:
        raise Unsafe("edit-no-user", name=edit.name)
    return listed[numbers[0]], (*place, users.key, numbers[0]), USER_PERMISSIONS


def _account(tree: Node, name: str) -> tuple[Node, _Keys]:
    if name == GLOBAL_ACCOUNT:
        return tree, ()
    accounts = field(_section(tree), "accounts")
    if accounts is None or name not in _section(accounts.node):
        raise Unsafe("edit-no-account", name=name)
    return _section(accounts.node)[name].node, (accounts.key, name)


def _section(node: Node) -> Section:
    if not isinstance(node.value, Mapping):
        raise Unsafe("edit-no-section")
    return node.value


def _offset(text: str, path: str, place: Place) -> int:
    if place.path != path or place.line is None or place.column is None:
        raise Unsafe("edit-included", included=place.path)
    lines = text.split("\n")
    return sum(len(text) + 1 for text in lines[: place.line - 1]) + place.column - 1


def _open(text: str, path: str, node: Node) -> int:
    """Just behind the brace that opens a section; the end of a text that has none."""
    place = node.place
    if (place.line, place.column) == (1, 1) and text[:1] != "{":
        return len(text)
    start = _offset(text, path, place)
    if text[start : start + 1] != "{":
        raise Unsafe("edit-variable")
    return start + 1


def _end(text: str, path: str, entry: Entry) -> int:
    """Just behind the block of an entry."""
    start = _offset(text, path, entry.node.place)
    if text[start : start + 1] not in ("{", "["):
        raise Unsafe("edit-no-block", key=entry.key)
    depth = 0
    for piece in _PIECE.finditer(text, start):
        depth += (piece[0] in ("{", "[")) - (piece[0] in ("}", "]"))
        if not depth:
            return piece.end()
    raise Unsafe("edit-no-end", key=entry.key)


def name_of_one(text: str, path: str) -> int | None:
    """The line with the name of one server of a cluster; None if all servers can have this text."""
    top = _section(parse_server_text(text, path))
    name = field(top, "server_name")
    together = field(top, "cluster", "gateway")
    if name is None or together is None or name.node.place.path != path:
        return None
    start = _offset(text, path, name.node.place)
    return None if text[start : start + 1] == "$" else name.node.place.line


def secrets(text: str, path: str) -> Iterator[int]:
    """The lines that have a password, token, key, seed or JWT which stands there as it is.

    A bcrypt hash, a public key and a variable of the environment are none.
    """
    starts = [match.start() for match in SECRET_TEXT.finditer(text)]
    for comment in _COMMENT.finditer(text):
        words = _SECRET_WORD.finditer(text, *comment.span())
        if any(_SOMETHING.match(text, word.end()) for word in words):
            starts.append(comment.start())
    line, counted = 1, 0
    for start in sorted(starts):
        line += text.count("\n", counted, start)
        counted = start
        yield line
    variables = set()  # a variable is set above the line that uses it
    for key, token in written(text, path):
        if not (is_secret(key) or key in variables) or _OPEN.match(token):
            continue
        if token.type == "VARIABLE":
            variables.add(token[1:])
        else:
            yield token.line or 1
