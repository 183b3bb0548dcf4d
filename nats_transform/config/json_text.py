"""JSON as a tree."""

from __future__ import annotations

import json
import math
import re

from lark import Token, Tree

from nats_transform.config.grammar import grammar, parse
from nats_transform.config.tree import Entry, Node, array, quoted, section
from nats_transform.errors import Place

_LONGEST_NUMBER = 400  # a 64-bit float needs fewer digits; Python reads very long ones slowly
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORDS = {
    "STRING": "a string",
    "NUMBER": "a value",
    "_COLON": "':'",
    "_COMMA": "','",
    "_RBRACE": "'}'",
    "_RSQB": "']'",
    "$END": "the end of the file",
}


def parse_json(text: str, path: str) -> Node:
    """The tree of a JSON text; keys that stand twice in one object are refused.

    Raises:
        InvalidConfig: it is no JSON in UTF-8, or too deep or too large.
    """
    if (broken := _SURROGATE.search(text)) is not None:
        line = text.count("\n", 0, broken.start()) + 1
        raise Place(path, line).error("json-not-utf8")
    tree = parse(grammar("json_text.lark"), text, path, _WORDS, _complaint)
    return _node(tree.children[0], path)


def _complaint(text: str, position: int, expected: list[str]) -> tuple[int, str] | None:
    if text[position : position + 1] in ("/", "#"):
        return position, "JSON has no comments; remove this one"
    return None


def _node(child: Tree[Token] | Token, path: str) -> Node:
    if isinstance(child, Token):
        place = Place(path, child.line, child.column)
        return Node(_number(child, place) if child.type == "NUMBER" else _text(child), place)
    opening, *children = child.children
    place = _place(opening, path)
    if child.data == "array":
        return array([_node(value, path) for value in children], place)
    entries: dict[str, Entry] = {}
    for key, value in zip(children[::2], children[1::2], strict=True):
        name = str(_text(key))
        if name in entries:
            raise _place(key, path).error("json-key-twice", name=quoted(name))
        entries[name] = Entry(name, _place(key, path), _node(value, path))
    return section(entries, place)


def _place(token: Tree[Token] | Token, path: str) -> Place:
    assert isinstance(token, Token)  # noqa: S101 - for the type checker
    return Place(path, token.line, token.column)


def _text(token: Tree[Token] | Token) -> str | bool | None:
    value: str | bool | None = json.loads(str(token))
    # Half of a surrogate pair is no character; Go reads it so too.
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


def _number(token: Token, place: Place) -> int | float:
    if len(token) > _LONGEST_NUMBER:
        raise place.error("number-too-long")
    number: int | float = json.loads(token)
    if isinstance(number, float) and math.isinf(number):
        raise place.error("number-too-large")
    return number
