"""nats-server configuration files as trees.

`server_conf.lark` has the syntax; this module gives it meaning: literals, `$VARIABLE`s and
includes. Source: nats-server `conf/parse.go`.
"""

from __future__ import annotations

import math
import os
import re
from calendar import monthrange
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from lark import Token, Transformer, v_args

from nats_transform.config.files import Files
from nats_transform.config.grammar import grammar, parse
from nats_transform.config.tree import (
    MAPPINGS,
    MAX_DEPTH,
    Entry,
    Node,
    Timestamp,
    array,
    is_secret,
    lower,
    quoted,
    section,
    too_deep,
)
from nats_transform.errors import InvalidConfig, Place
from nats_transform.mappings.subject import decode, encode

MAX_INCLUDE_DEPTH = 16
"""How deep files may include one another, and environment variables may refer to others."""

MAX_FILES = 1000
"""How many files one configuration may include in all."""

_BCRYPT = "2a$"  # an unquoted bcrypt hash starts with $2a$ and is no variable
_ENV_KEY = "pk"  # the server reads an environment variable as the file `pk=VALUE`
_INT64 = 2**63
_UNITS: dict[str, int] = {
    suffix: factor
    for power, letter in enumerate("kmgtpe", start=1)
    for suffix, factor in (
        (letter, pow(1000, power)),
        (f"{letter}b", pow(1024, power)),
        (f"{letter}i", pow(1024, power)),
        (f"{letter}ib", pow(1024, power)),
    )
}
_TRUE = frozenset({"true", "yes", "on"})
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_ESCAPES = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b'"': b'"', b"\\": b"\\"}
_DOUBLE_SO_FAR = re.compile(r'"(?:[^"\\]++|\\[tnr"\\]|\\x[0-9A-Fa-f][0-9A-Fa-f])*+')
_QUOTED_PAIR = re.compile(r'(?P<RAW_DOUBLE>"[^"]*")\s*[=:]\s*(?P<DOUBLE>"[^"]*")')
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


# --- what the grammar gives -----------------------------------------------------------------


class _Map(NamedTuple):
    start: Token
    items: list[_Item]


class _Array(NamedTuple):
    start: Token
    values: list[_Syntax]


class _NumberText(NamedTuple):
    head: Token
    tail: Token | None = None


class _Pair(NamedTuple):
    key: Token
    value: _Syntax | None = None


class _Include(NamedTuple):
    path: Token


_Syntax: TypeAlias = "_Map | _Array | _NumberText | Token"
_Item: TypeAlias = "_Pair | _Include"


@v_args(inline=True)
class _Build(Transformer[Token, list[_Item]]):
    """Makes plain values of what the grammar finds, piece by piece."""

    pair = map_pair = empty = empty_at_end = map_empty = _Pair
    include = map_include = _Include
    number_text = _NumberText

    def start(self, *children: _Item | Token) -> list[_Item]:
        # What is left of the braces around a file is a token.
        return [child for child in children if not isinstance(child, Token)]

    def map(self, brace: Token, *items: Token | _Item | list[_Pair]) -> _Map:
        lists = (item if isinstance(item, list) else [item] for item in items)
        return _Map(brace, [item for some in lists for item in some if not isinstance(item, Token)])

    def array(self, bracket: Token, *values: _Syntax) -> _Array:
        return _Array(bracket, list(values))

    def QUOTED_PAIRS(self, token: Token) -> list[_Pair]:  # noqa: N802 - the terminal's name
        pairs = []
        line, line_start = token.line or 0, 1 - (token.column or 0)
        end = 0
        for found in _QUOTED_PAIR.finditer(token):
            if lines := token.count("\n", end, found.start()):
                line += lines
                line_start = token.rindex("\n", end, found.start()) + 1
            end = found.end()
            key, value = (
                Token(kind, found[kind], line=line, column=found.start(kind) - line_start + 1)
                for kind in ("RAW_DOUBLE", "DOUBLE")
            )
            pairs.append(_Pair(key, value))
        return pairs


def _parse(text: str, path: str) -> list[_Item]:
    """The entries of a file as they are written."""
    return _BUILD.transform(parse(grammar("server_conf.lark"), text, path, _WORDS, _complaint))


_BUILD = _Build()
_WORDS = {
    "TEXT": "a value",
    "KEY": "a key",
    "MAP_KEY": "a key",
    "PATH": "the file to include",
    "_ASSIGN": "'='",
    "_SPACE": "a space",
    "_NL": "a new line",
    "_COMMA": "','",
    "_SEMICOLON": "';'",
    "_RBRACE": "'}'",
    "_RSQB": "']'",
    "_NESTED_CLOSE": "'}'",
}


def _complaint(text: str, position: int, expected: list[str]) -> tuple[int, str] | None:
    """What is wrong with a string or number that the grammar does not take."""
    character = text[position : position + 1]
    if character == '"' and "a value" in expected:
        # Either it is not closed, or a wrong escape is in it.
        so_far = _DOUBLE_SO_FAR.match(text, position)
        stopped = so_far.end() if so_far else position
        if text[stopped : stopped + 1] == "\\":
            position, character = stopped, "\\"
    message = None
    if character == "\\":
        message = r"unknown escape; use \xXX, \t, \n, \r, \" or \\, or single quotes"
    elif character and character in "\"'":
        what = "string" if "a value" in expected else "key" if "a key" in expected else "path"
        if what != "path" or "the file to include" in expected:
            message = f"the {what} that starts here has no closing quote"
    elif "a value" in expected:
        if character == "(":
            message = "the block that starts here needs a closing ) on a line of its own"
        elif character and (character.isdigit() or character in "-."):
            message = "this is not a number, date or address; if it's text, quote it"
        elif character == "}":
            message = "the key before this } has no value"
            if "{{" in text[text.rfind("\n", 0, position) + 1 : position]:
                message += '; put quotes around "{{"'
    return (position, message) if message else None


# --- what it means --------------------------------------------------------------------------


def parse_server_config(path: str | os.PathLike[str]) -> Node:
    """The tree of a nats-server configuration file; its variables and includes are resolved.

    If a key is twice in a map, the last one counts, as in the server. The meaning of the sections
    is not checked.

    Raises:
        InvalidConfig: the file, or one that it includes, cannot be read or parsed.
    """
    files, name = Files(), os.fspath(path)
    return parse_server_text(files.text(name), name, files)


def parse_server_text(text: str, path: str, files: Files | None = None) -> Node:
    """The same as `parse_server_config`, for a file whose text has been read already.

    Args:
        text: the text.
        path: the path of the file, for its includes and for errors.
        files: reads what it includes; by default as the files are now.
    """
    return section(_Reader(files or Files()).file(path, text), Place(path, 1, 1))


def written(text: str, path: str) -> Iterator[tuple[str, Token]]:
    """Each string, number and variable in a text with its key, as it is written, the last first.

    This has what a later value of the same key replaces, but neither what is included nor mappings,
    whose keys are subjects.
    """
    left: list[tuple[str, _Item | _Syntax | None]] = [("", item) for item in _parse(text, path)]
    while left:
        key, item = left.pop()
        match item:
            case _Pair(name, value):
                left.append((_key_text(name), value))
            case _Map(_, items) if lower(key) not in MAPPINGS:
                left += [("", item) for item in items]
            case _Array(_, values):
                left += [(key, value) for value in values]
            case _NumberText(token, _) | (Token() as token):
                yield key, token


class _Reader:
    """Reads the files of one configuration and keeps to the limits."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._included = 0
        self._chain: list[str] = []  # files that are being read, the including ones first
        self._environment: dict[str, Node] = {}
        self._resolving: list[str] = []  # environment variables that are being read
        self.depth = 0  # maps and arrays that are open, in all files together

    def file(self, path: str, text: str) -> dict[str, Entry]:
        """The entries of a file."""
        self._chain.append(os.path.realpath(path))
        try:
            return _Scope(self, path, os.path.dirname(path) or ".").entries(_parse(text, path))
        finally:
            self._chain.pop()

    def include(self, path: str, asked_at: Place) -> dict[str, Entry]:
        """The entries of an included file."""
        self._included += 1
        if os.path.realpath(path) in self._chain:
            raise asked_at.error("include-loop", include=quoted(path))
        if len(self._chain) > MAX_INCLUDE_DEPTH:
            raise asked_at.error("includes-too-deep", most=MAX_INCLUDE_DEPTH)
        if self._included > MAX_FILES:
            raise asked_at.error("includes-too-many", most=MAX_FILES)
        return self.file(path, self._files.text(path, asked_at))

    def environment(self, name: str, asked_at: Place) -> Node | None:
        """The value of an environment variable, read as a value of the file; None if not set."""
        if name in self._environment:
            return self._environment[name]
        if name in self._resolving:
            raise asked_at.error("variable-loop", name=quoted(name))
        if len(self._resolving) >= MAX_INCLUDE_DEPTH:
            raise asked_at.error("variables-too-deep", most=MAX_INCLUDE_DEPTH)
        text = os.environ.get(name)
        if text is None:
            return None
        path = f"${name}"
        self._resolving.append(name)
        try:
            entries = _Scope(self, path, ".").entries(_parse(f"{_ENV_KEY}={text}", path))
        except InvalidConfig:
            # Its text may be a secret: say nothing of it.
            raise asked_at.error("variable-invalid", name=quoted(name)) from None
        finally:
            self._resolving.pop()
        # Only a later `pk` in the text itself could take the key away; it cannot be missing.
        self._environment[name] = entries[_ENV_KEY].node
        return self._environment[name]


class _Scope:
    """Gives the entries of one file their meaning, from the first to the last."""

    def __init__(self, reader: _Reader, path: str, folder: str) -> None:
        self._reader = reader
        self._path = path
        self._folder = folder
        self._maps: list[dict[str, Entry]] = []  # the maps that are open, the outermost first
        self._keys: list[str] = []

    def entries(self, items: list[_Item]) -> dict[str, Entry]:
        """The entries of a map, or of the whole file."""
        entries: dict[str, Entry] = {}
        self._maps.append(entries)
        for item in items:
            pairs = self._included(item) if isinstance(item, _Include) else [self._pair(item)]
            for entry in pairs:
                entries.pop(entry.key, None)  # so that the last of two also stands last
                entries[entry.key] = entry
        self._maps.pop()
        return entries

    def _pair(self, item: _Pair) -> Entry:
        key, place = _key_text(item.key), self._place(item.key)
        self._keys.append(key)
        node = Node("", place) if item.value is None else self._node(item.value)
        self._keys.pop()
        return Entry(key, place, node)

    def _included(self, item: _Include) -> list[Entry]:
        name = item.path.removesuffix("'") if item.path.type == "PATH" else _unquoted(item.path)
        # Always below the folder of the including file, also if it starts with a slash.
        path = os.path.normpath(f"{self._folder}/{name}")
        return list(self._reader.include(path, self._place(item.path)).values())

    def _node(self, syntax: _Syntax) -> Node:
        match syntax:
            case _Map(start, items):
                with self._deeper(start) as place:
                    return section(self.entries(items), place)
            case _Array(start, values):
                with self._deeper(start) as place:
                    return array([self._node(value) for value in values], place)
            case _NumberText(head, tail):
                text = _unescaped(tail.removesuffix("'")) if tail is not None else ""
                return Node(f"{head}{text}", self._place(head))
            case token:
                return self._literal(token)

    @contextmanager
    def _deeper(self, start: Token) -> Iterator[Place]:
        place = self._place(start)
        if self._reader.depth == MAX_DEPTH:
            raise too_deep(place)
        self._reader.depth += 1
        yield place
        self._reader.depth -= 1

    def _literal(self, token: Token) -> Node:
        place = self._place(token)
        match token.type:
            case "DOUBLE":
                return Node(_unescaped(_unquoted(token)), place)
            case "SINGLE" | "BLOCK":
                return Node(_unquoted(token), place)
            case "BLOCK_AT_END":
                return Node(str(token[1:]), place)  # the server keeps this one's parenthesis
            case "ADDRESS":
                return Node(str(token), place)
            case "DATE":
                return Node(_timestamp(token, place), place)
            case "FLOAT":
                return Node(_float(token, place), place)
            case "INTEGER":
                return Node(_integer(token, place), place)
            case "BOOLEAN":
                return Node(token.lower() in _TRUE, place)
            case "VARIABLE":
                return self._variable(str(token[1:]), place)
            case _:
                return Node(_unescaped(token.removesuffix("'")), place)

    def _variable(self, name: str, place: Place) -> Node:
        if name.startswith(_BCRYPT):
            return Node(f"${name}", place)
        for entries in reversed(self._maps):
            if name in entries:
                entries[name] = replace(entries[name], is_variable=True)
                return replace(entries[name].node, place=place)
        # Under `password: $ecret` the name is the secret.
        hidden = is_secret(self._keys[-1]) or not _NAME.fullmatch(name)
        node = self._reader.environment(name, place)
        if node is None and hidden:
            raise place.error("no-such-variable")
        if node is None:
            raise place.error("variable-not-set", name=quoted(name))
        return replace(node, place=place)

    def _place(self, token: Token) -> Place:
        return Place(self._path, token.line, token.column)


# --- literals -------------------------------------------------------------------------------


def _key_text(token: Token) -> str:
    if token.type in ("RAW_DOUBLE", "RAW_SINGLE"):
        return _unquoted(token)
    return token.removeprefix("/") if token.type == "MAP_KEY" else str(token)


def _unquoted(token: Token) -> str:
    return str(token[1:-1])


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return str(text)
    # On bytes: \xc3\xa9 is one character.
    data = _ESCAPE.sub(
        lambda match: bytes.fromhex(match[1].decode()) if match[1] else _ESCAPES[match[2]],
        encode(text),
    )
    return decode(data)


def _integer(token: Token, place: Place) -> int:
    written = token.rstrip("kKmMgGtTpPeEbBiI")
    suffix = token[len(written) :].lower()
    digits = written.removeprefix("-").lstrip("0") or "0"
    if not digits.isascii():
        raise place.error("not-a-number")
    if suffix and suffix not in _UNITS:
        raise place.error("no-unit-of-size", suffix=quoted(suffix))
    number = int(digits) if len(digits) < 20 else _INT64
    if written.startswith("-"):
        number = -number
    if len(digits) >= 20 or not -_INT64 <= number < _INT64:
        raise place.error("number-over-64-bits")
    # With a unit it may overflow: it wraps around in the server, and so it does here.
    factor = _UNITS[suffix] if suffix else 1
    return (number * factor + _INT64) % (2 * _INT64) - _INT64


def _float(token: Token, place: Place) -> float:
    number = float(token) if token.isascii() else math.inf  # Python reads any script's digits
    if math.isinf(number):
        raise place.error("decimal-too-large")
    return number


def _timestamp(token: Token, place: Place) -> Timestamp:
    year, month, day, hour, minute, second = map(int, re.findall(r"\d+", token))
    leap_year = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = monthrange(2000 if leap_year else 2001, month)[1] if 1 <= month <= 12 else 0
    if not (1 <= day <= days and hour < 24 and minute < 60 and second < 60):
        raise place.error("no-such-time")
    return Timestamp(str(token))
