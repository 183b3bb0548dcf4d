"""YAML as a tree: one document of maps, lists and scalars.

Built from PyYAML's events, so that no tag makes an object, aliases share what they name, and the
depth is limited before anything recurses. Whole numbers and nulls are told from text; everything
else stays text as it is written, which is what the `nats` command makes of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nats_transform.config.tree import (
    MAX_DEPTH,
    Entry,
    Node,
    array,
    quoted,
    section,
    too_deep,
)
from nats_transform.errors import Place

if TYPE_CHECKING:
    import yaml

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_QUOTED_WORD = re.compile(r"""'[^']{2,}'|"[^"]{2,}\"""")


@dataclass(slots=True)
class _Open:
    """A map or list that is being read."""

    place: Place
    anchor: str | None
    is_map: bool
    nodes: list[Node] = field(default_factory=list)


def parse_yaml(text: str, path: str) -> Node:
    """The tree of a YAML text.

    Raises:
        InvalidConfig: it is no YAML, has several documents, a tag, or a key that stands twice.
    """
    import yaml  # most configurations are no YAML

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    anchors: dict[str, Node] = {}
    stack: list[_Open] = []
    root: Node | None = None
    try:
        for event in yaml.parse(text, Loader=loader):
            place = _place(event.start_mark, path)
            match event:
                case yaml.DocumentStartEvent() if root is not None:
                    raise place.error("yaml-second-document")
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    _refuse_tag(event.tag, place)
                    if len(stack) == MAX_DEPTH:
                        raise too_deep(place)
                    is_map = isinstance(event, yaml.MappingStartEvent)
                    stack.append(_Open(place, event.anchor, is_map))
                    continue
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    opened = stack.pop()
                    node, anchor = _closed(opened), opened.anchor
                case yaml.ScalarEvent():
                    _refuse_tag(event.tag, place)
                    node, anchor = _scalar(event, place), event.anchor
                case yaml.AliasEvent():
                    if event.anchor not in anchors:
                        raise place.error("yaml-alias")
                    node, anchor = anchors[event.anchor], None
                case _:
                    continue
            if anchor:
                anchors[anchor] = node
            if stack:
                stack[-1].nodes.append(node)
            else:
                root = node
    except yaml.MarkedYAMLError as error:
        where = _place(error.problem_mark or error.context_mark, path)
        # What it quotes beyond one character may be a secret.
        problem = _QUOTED_WORD.sub("a word", error.problem or "this is not YAML")
        raise where.error("refused", reason=" ".join(problem.split())) from None
    except yaml.YAMLError:
        raise Place(path).error("yaml-bytes") from None
    except UnicodeEncodeError:
        raise Place(path).error("yaml-not-utf8") from None
    return root if root is not None else Node(None, Place(path, 1, 1))


def _place(mark: Any, path: str) -> Place:
    # The marks of the two parsers have no common type; either may be None.
    return Place(path, mark.line + 1, mark.column + 1) if mark else Place(path)


def _refuse_tag(tag: str | None, place: Place) -> None:
    if tag is not None and tag != "!":
        raise place.error("yaml-tag")


def _scalar(event: yaml.ScalarEvent, place: Place) -> Node:
    text: str = event.value
    if event.implicit[0]:  # plain, not quoted
        if text in _NULLS:
            return Node(None, place)
        if _WHOLE_NUMBER.fullmatch(text):
            return Node(int(text), place)
    return Node(text, place)


def _closed(opened: _Open) -> Node:
    if not opened.is_map:
        return array(opened.nodes, opened.place)
    entries: dict[str, Entry] = {}
    for key, node in zip(opened.nodes[::2], opened.nodes[1::2], strict=True):
        if not isinstance(key.value, str | int):
            raise key.place.error("yaml-key-not-text", kind=key.kind)
        name = str(key.value)
        if name in entries:
            raise key.place.error("yaml-key-twice", name=quoted(name))
        entries[name] = Entry(name, key.place, node)
    return section(entries, opened.place)
