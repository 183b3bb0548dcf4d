"""Cures of `check --fix`: they keep what nats-server does, and every other byte of the file.

Only these findings have one cure that keeps the meaning: `text-dropped`, because nats-server reads
one function of the token and nothing else, and `size-without-effect`, because the function gives
the token back. Every other cure changes what happens, and which change is wanted nobody can know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from nats_transform.config.files import Files
from nats_transform.config.load import tree_of
from nats_transform.config.tree import plain, walk
from nats_transform.errors import InvalidConfig, InvalidTransform
from nats_transform.lint.findings import Finding
from nats_transform.mappings.functions import OfTokenAndSize, Token, Wildcard
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import SEPARATOR
from nats_transform.mappings.transform import Transform

CURED = frozenset(("text-dropped", "size-without-effect"))
"""The codes with a cure that keeps the meaning."""

_FUNCTION = re.compile(r"\{\{[^{}]*\}\}")


def cured_destination(source: str, destination: str) -> str:
    """The destination as nats-server reads it, without what it drops and what has no effect."""
    transform = Transform(source, destination)
    written = destination.split(SEPARATOR)
    for index, token in enumerate(transform.tokens):
        for new in _candidates(transform, token, written[index]):
            parts = [*written[:index], new, *written[index + 1 :]]
            if _parsed(source, SEPARATOR.join(parts))[index : index + 1] == (_meaning(token),):
                written = parts
                break
    return SEPARATOR.join(written)


def _candidates(transform: Transform, token: Token, text: str) -> Iterator[str]:
    """What could stand for a token, the shortest first."""
    meaning = _meaning(token)
    if isinstance(meaning, Wildcard) and meaning is not token:
        if meaning.position in transform.filter.wildcards:
            yield f"{{{{wildcard({transform.filter.wildcards.index(meaning.position) + 1})}}}}"
    elif len(functions := _FUNCTION.findall(text)) and functions != [text]:
        yield from functions


def _meaning(token: Token) -> Token:
    """A function without effect is a wildcard."""
    if isinstance(token, OfTokenAndSize) and token.leaves_whole:
        return Wildcard(token.position)
    return token


def _parsed(source: str, destination: str) -> tuple[Token, ...]:
    try:
        return Transform(source, destination).tokens
    except InvalidTransform:
        return ()


def cures_of(findings: Iterable[Finding], accounts: Iterable[AccountMappings]) -> dict[str, str]:
    """The new destination for each that has findings with a cure.

    Args:
        findings: the findings.
        accounts: all mappings of the files, also of accounts that have no findings here.
    """
    cures: dict[str, set[str]] = {}
    for finding in findings:
        if finding.code in CURED:
            new = cured_destination(finding.source, finding.destination)
            cures.setdefault(finding.destination, set()).add(new)
    for account in accounts if cures else ():
        for mapping in account.mappings:
            for transform in mapping.transforms:
                if known := cures.get(transform.destination):
                    known.add(cured_destination(mapping.source, transform.destination))
    # Two sources could number the wildcards of one text differently.
    single = {old: new.pop() for old, new in cures.items() if len(new) == 1}
    return {old: new for old, new in single.items() if old != new}


def cured_text(path: str, cures: Mapping[str, str]) -> tuple[str, str]:
    """The text of a file, and its text with all cures; the same if they cannot be made for sure.

    What the file includes stays as it is.

    Raises:
        InvalidConfig: the file cannot be read or is refused.
    """
    text = Files().text(path)
    tree = tree_of(text, path)
    lines = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
    pieces: list[str] = []
    end = 0
    places = {
        (node.place.line or 1, node.place.column or 1, node.value)
        for node in walk(tree)
        if isinstance(node.value, str)
        and node.value in cures
        and node.place.path == path
        # YAML ends lines at other characters too.
        and (node.place.line or 1) < len(lines)
    }
    for line, column, old in sorted(places):
        start = lines[line - 1] + column - 1
        start += text[start : start + 1] in ("'", '"')
        if text.startswith(old, start):
            pieces += [text[end:start], cures[old]]
            end = start + len(old)
    new = "".join([*pieces, text[end:]])
    try:
        read = plain(tree_of(new, path))
    except InvalidConfig:
        return text, text
    return text, new if read == _replaced(plain(tree), cures) else text


def _replaced(value: Any, cures: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return cures.get(value, value)
    if isinstance(value, list):
        return [_replaced(entry, cures) for entry in value]
    if isinstance(value, dict):
        return {key: _replaced(entry, cures) for key, entry in value.items()}
    return value
