"""The YAML files of components, refused where Dagster would not end or would read them otherwise.

Dagster follows each alias anew, takes the last of two equal keys, and often names no line. Unlike
a file of mappings (`nats_transform.config.yaml_text`), one of these may hold several documents,
plain tags, and components that are not ours, so it is only looked through here.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import yaml

from nats_transform.errors import InvalidConfig
from nats_transform.untrusted import visible
from orchestration.settings import fault_of

_MOST_BYTES = 1_000_000
_MOST_VALUES = 20_000
_MOST_LEVELS = 50
_MOST_DIGITS = 1000
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + name for name in ("str", "int", "float", "bool", "null", "seq", "map")}


@dataclass
class _Collection:
    """A list or a mapping that is being read.

    Attributes:
        anchor: the name by which aliases ask for it.
        size: the values in it so far, with those that aliases name.
        keys: the keys of a mapping so far; None for a list.
        key: the key whose value comes next; None if a key does.
    """

    anchor: str | None
    keys: set[str] | None = None
    key: str | None = None
    size: int = 1


@dataclass
class _Reader:
    """What was read of a file so far."""

    file: Path
    line: int = 1
    stack: list[_Collection] = field(default_factory=lambda: [_Collection(None)])
    sizes: dict[str | None, int] = field(default_factory=dict)

    def refuse(self, reason: str) -> NoReturn:
        place = ".".join(visible(level.key)[:80] for level in self.stack if level.key is not None)
        text = f"{place}: {reason}" if place else reason
        raise InvalidConfig("refused", str(self.file), self.line, reason=text)

    def begin(self, collection: _Collection) -> None:
        self._is_value()
        self.stack.append(collection)
        if len(self.stack) > _MOST_LEVELS:
            self.refuse(f"it has more than {_MOST_LEVELS} levels")

    def end(self) -> None:
        collection = self.stack.pop()
        self.sizes[collection.anchor] = collection.size
        self._add(collection.size)

    def alias(self, anchor: str) -> None:
        self._is_value()
        self._add(self.sizes.get(anchor, 1))

    def scalar(self, text: str, is_plain: bool) -> None:
        around = self.stack[-1]
        if around.keys is not None and around.key is None:
            around.key = text
            if text in around.keys:
                self.refuse("it is there twice")
            around.keys.add(text)
            return
        if is_plain and len(text) > _MOST_DIGITS and (text[0].isdigit() or text[0] in "+-."):
            self.refuse(f"a number has at most {_MOST_DIGITS:,} digits")
        # The rest belongs to a component, whose templates may be more than ours.
        is_attribute = [level.key for level in self.stack[1:2]] == ["attributes"]
        if "{" in text and not is_attribute and (fault := fault_of(text)) is not None:
            self.refuse(fault)
        self._add(1)

    def _is_value(self) -> None:
        if self.stack[-1].keys is not None and self.stack[-1].key is None:
            self.refuse("a key must be text")

    def _add(self, size: int) -> None:
        around = self.stack[-1]
        around.size += size
        if around.size > _MOST_VALUES:
            self.refuse(f"it has more than {_MOST_VALUES:,} values, aliases counted")
        around.key = None


def check_file(file: Path) -> None:
    """Refuses YAML that Dagster would read for ever, or otherwise than a person reads it.

    Raises:
        InvalidConfig: it is such; the text has the line and the setting.
    """
    if file.stat().st_size > _MOST_BYTES:
        raise InvalidConfig("component-too-large", str(file), most=_MOST_BYTES)
    content = file.read_bytes()
    reader = _Reader(file)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        reader.line += content.count(b"\n", 0, error.start)
        reader.refuse(f"the byte {content[error.start]:#04x} is not UTF-8")
    if control := yaml.reader.Reader.NON_PRINTABLE.search(text):
        reader.line += text.count("\n", 0, control.start())
        reader.refuse(f"the character {visible(control[0])} is not allowed")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with contextlib.suppress(yaml.YAMLError):  # Dagster says where
        for event in yaml.parse(text, Loader=loader):
            _read(reader, event)


def _read(reader: _Reader, event: yaml.Event) -> None:
    if event.start_mark is not None:
        reader.line = event.start_mark.line + 1
    tag = getattr(event, "tag", None)
    if tag is not None and tag.startswith(_TAG) and tag not in _PLAIN_TAGS:
        reader.refuse(f"the tag !!{visible(tag.removeprefix(_TAG))} is not allowed")
    match event:
        case yaml.MappingStartEvent():
            reader.begin(_Collection(event.anchor, set()))
        case yaml.SequenceStartEvent():
            reader.begin(_Collection(event.anchor))
        case yaml.CollectionEndEvent():
            reader.end()
        case yaml.AliasEvent():
            reader.alias(str(event.anchor))
        case yaml.ScalarEvent():
            reader.scalar(event.value, event.implicit[0])
