"""A configuration file as a tree. Every key and value has its place in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import TypeAlias

from nats_transform.errors import InvalidConfig, Place, printable

MAX_DEPTH = 100
"""The deepest nesting that is accepted. Real files stay below 10."""

MAX_VALUES = 2_000_000
"""The most values of a file, after its variables and aliases are replaced."""

_LONGEST_QUOTE = 60
# How the names of secrets end in nats-server (`server/opts.go`): not `key_file`, `token_cookie`,
# `max_sub_tokens`, nor `nkey` and `xkey`, where only a seed is a secret.
_SECRET_KEY = re.compile(
    r"(?:pass(?:word|wd|phrase)?|token|secret|seed|(?:^|_)(?:key|ek))$", re.IGNORECASE
)
SECRET_TEXT = re.compile(
    r"(?<![A-Z2-7])[SP][A-Z2-7]{40}|\beyJ[\w-]{8}|//[^/\s]*@"
    r"|[?&][\w.-]*(?i:pass(?:word|wd|phrase)?|token|secret|seed|key|sig(?:nature)?)=[^\s&)'\"]"
)
"""Seeds and private keys (nkeys), JWTs, what the query of a URL names as a secret, and a userinfo,
which is a token if it has no ':' in it."""
_HASH = re.compile(r"\$2[abxy]\$")

# The names of one field in nats-server (`server/opts.go`), where several readers need them.
MAPPINGS = ("mappings", "maps")
LEAF_NODES = ("leafnodes", "leaf")
USER = ("user", "username", "nkey")
USER_PERMISSIONS = ("permissions", "permission", "authorization")
DEFAULT_PERMISSIONS = ("default_permissions", "default_permission", "permissions")
OPERATOR = ("operator", "operators", "root", "roots", "root_operator", "root_operators")


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A date and time as it is written, `2006-01-02T15:04:05Z`; no string to the server."""

    text: str


_KINDS = {
    bool: "a boolean",
    int: "a whole number",
    float: "a decimal number",
    str: "a string",
    Timestamp: "a date",
    tuple: "a list",
    NoneType: "nothing",
}

Value: TypeAlias = "str | int | float | bool | Timestamp | tuple[Node, ...] | Section | None"
Section: TypeAlias = "Mapping[str, Entry]"


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its place. A map is a `Mapping` from key to `Entry`, an array a tuple of nodes.

    Attributes:
        value: the value.
        place: the place where the value starts.
        depth: how many levels of maps and arrays it has, with itself.
        size: how many values it has, with itself.
    """

    value: Value
    place: Place
    depth: int = 0
    size: int = 1

    @property
    def kind(self) -> str:
        """What the value is, in words for a message."""
        return _KINDS.get(type(self.value), "a section")


@dataclass(frozen=True, slots=True)
class Entry:
    """A key, its place and its node.

    Attributes:
        key: the key as written.
        place: the place where the key starts.
        node: the value.
        is_variable: whether a later `$KEY` refers to it. nats-server accepts such an entry even if
            it knows no field of that name.
    """

    key: str
    place: Place
    node: Node
    is_variable: bool = False


def section(entries: Mapping[str, Entry], place: Place) -> Node:
    """The node of a map."""
    return _container(entries, [entry.node for entry in entries.values()], place)


def array(nodes: list[Node], place: Place) -> Node:
    """The node of an array."""
    return _container(tuple(nodes), nodes, place)


def _container(value: Value, children: list[Node], place: Place) -> Node:
    depth = 1 + max((child.depth for child in children), default=0)
    size = 1 + sum(child.size for child in children)
    if depth > MAX_DEPTH:
        raise too_deep(place)
    if size > MAX_VALUES:
        raise place.error("too-many-values", most=MAX_VALUES)
    return Node(value, place, depth, size)


def too_deep(place: Place) -> InvalidConfig:
    """The error for what is nested deeper than `MAX_DEPTH`."""
    return place.error("too-deep", most=MAX_DEPTH)


def plain(node: Node) -> object:
    """The bare value: dict, list, str, int, float, bool or None; a date as its text."""
    match node.value:
        case Timestamp(text):
            return text
        case tuple() as nodes:
            return [plain(child) for child in nodes]
        case Mapping() as entries:
            return {key: plain(entry.node) for key, entry in entries.items()}
        case value:
            return value


def walk(node: Node) -> Iterator[Node]:
    """Each node of a tree."""
    yield node
    if isinstance(node.value, tuple):
        for item in node.value:
            yield from walk(item)
    elif isinstance(node.value, Mapping):
        for entry in node.value.values():
            yield from walk(entry.node)


def entries_of(node: Node) -> Section:
    """The entries of a map.

    Raises:
        InvalidConfig: the node is no map.
    """
    if isinstance(node.value, Mapping):
        return node.value
    raise node.place.error("not-a-section", kind=node.kind)


def field(entries: Section, *names: str) -> Entry | None:
    """The entry of a field under any of its names; case does not matter.

    nats-server reads a map in random order, so of two spellings of one field either may win.

    Args:
        entries: the map.
        names: the names of the field, in lower case.

    Raises:
        InvalidConfig: the field is there more than once.
    """
    named = [entry for key, entry in entries.items() if lower(key) in names]
    if len(named) > 1:
        first, second = named[0], named[1]
        raise second.place.error(
            "same-key-twice",
            key=quoted(second.key),
            first=quoted(first.key),
            first_line=first.place.line,
        )
    return named[0] if named else None


def text_of(entries: Section, *names: str) -> str:
    """The text of a `field`; "" if it is not there, or no string."""
    entry = field(entries, *names)
    return entry.node.value if entry and isinstance(entry.node.value, str) else ""


def section_of(entries: Section, *names: str) -> Section:
    """The map in a `field`; an empty one if it is not there, or no map."""
    entry = field(entries, *names)
    return entry.node.value if entry and isinstance(entry.node.value, Mapping) else {}


def sections_of(entries: Section, *names: str) -> Iterator[Section]:
    """The maps in the list of a `field`, without the empty ones."""
    entry = field(entries, *names)
    for node in entry.node.value if entry and isinstance(entry.node.value, tuple) else ():
        if node.value and isinstance(node.value, Mapping):
            yield node.value


def has_variables(tree: Node) -> bool:
    """Whether a `$KEY` refers to an entry, which only nats-server reads so.

    The server takes such an entry under any name, so its name does not tell the kind of the file.
    """
    return isinstance(tree.value, Mapping) and any(e.is_variable for e in tree.value.values())


def lower(key: str) -> str:
    """A key in lower case as Go's `strings.ToLower` has it."""
    return key.replace("\u0130", "i").lower()  # Python makes two characters of it


def quoted(text: str) -> str:
    """Text from a file, quoted for a message: short, on one line, and no secret."""
    if SECRET_TEXT.search(text) or _HASH.search(text):
        return "(hidden)"
    shown = text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…"
    return printable(shown)


def is_secret(key: str) -> bool:
    """Whether the value of a key must not be shown or copied."""
    return _SECRET_KEY.search(key) is not None
