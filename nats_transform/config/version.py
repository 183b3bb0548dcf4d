"""Canonical forms and mapping versions.

The canonical form of a configuration is one line of JSON with everything that can change an output,
and nothing else. The mapping version is its SHA-256. Comments, formatting and the order of keys
have no influence. Where an order has a meaning, only the meaning is kept:

- mappings that share no subject are sorted by their sources; if a subject can match two
  mappings, they keep their order, and so do all mappings where finding this out takes too long;
- the destinations of a cluster are in the order in which the draw tries them;
- of a stream only the fields that decide subjects count: name, subjects, mirror, sources, transform
  and republish.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from nats_transform.errors import InvalidConfig, NatsTransformError
from nats_transform.mappings.mapping import AccountMappings, Destination, Mapping
from nats_transform.mappings.subject import ANY_TOKEN, Filter
from nats_transform.mappings.subject_index import Effort

if TYPE_CHECKING:
    from nats_transform.streams.stream import StreamConfig

T = TypeVar("T")

FORMAT = 1
"""This number goes up when the canonical form of the same configuration changes or the draws do.

A mapping version stands for one output. So a change of the hash in `nats_transform.mappings.draw`
must raise this number; a test compares the draws with the format.
"""

# How many steps the search for mappings that share subjects may take: a few seconds. Mappings as
# people write them need about ten each.
EFFORT, _EFFORT_A_MAPPING = 5_000_000, 50

_STREAM_FIELDS = {"name", "subjects", "mirror", "sources", "subject_transform", "republish"}


def mapping_version(config: AccountMappings | StreamConfig, seed: int = 0) -> str:
    """The version of a configuration under a seed: SHA-256 of its canonical form, in hex."""
    return hashlib.sha256(canonical(config, seed).encode("ascii")).hexdigest()


def canonical(config: AccountMappings | StreamConfig, seed: int = 0) -> str:
    """The canonical form: JSON in ASCII, keys sorted, no blanks."""
    form: dict[str, object] = {"format": FORMAT, "seed": seed}
    if isinstance(config, AccountMappings):
        form["account"] = [_mapping(mapping) for mapping in _ordered(config.mappings)]
    else:
        form["stream"] = _stream(config)
    return json.dumps(form, sort_keys=True, separators=(",", ":"))


def from_canonical(text: str) -> tuple[AccountMappings | StreamConfig, int]:
    """The configuration and the seed of a canonical form.

    Raises:
        InvalidConfig: the text is not a canonical form of this version of the library.
    """
    try:
        form = json.loads(text)
        if form["format"] != FORMAT:
            raise InvalidConfig("version-format", format=FORMAT)
        seed = _typed(form["seed"], int)
        if "account" in form:
            return AccountMappings([_from_mapping(entry) for entry in form["account"]]), seed
        from nats_transform.streams.stream import parse_stream

        return parse_stream(form["stream"]), seed
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, NatsTransformError) else "it is damaged"
        raise InvalidConfig("version-not-canonical", reason=reason) from None


def _mapping(mapping: Mapping) -> dict[str, object]:
    # By weight, stable, is how the draw tries them; those of weight 0 it never takes.
    destinations = sorted(
        mapping.destinations,
        key=lambda d: (d.cluster or "", d.weight, "" if d.weight else d.subject),
    )
    return {
        "source": mapping.source,
        "destinations": [
            {"subject": d.subject, "weight": d.weight, "cluster": d.cluster or None}
            for d in destinations
        ],
    }


def _from_mapping(form: dict[str, Any]) -> Mapping:
    destinations = [
        Destination(
            _typed(entry["subject"], str),
            _typed(entry["weight"], int),
            None if entry["cluster"] is None else _typed(entry["cluster"], str),
        )
        for entry in form["destinations"]
    ]
    return Mapping(_typed(form["source"], str), destinations)


def _typed(value: Any, kind: type[T]) -> T:
    if type(value) is not kind:  # a boolean is no whole number here
        raise TypeError(kind.__name__)
    return value


def _stream(config: StreamConfig) -> dict[str, object]:
    form = config.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, include=_STREAM_FIELDS
    )
    if "subjects" in form:
        form["subjects"] = sorted(form["subjects"])
    return form


def _ordered(mappings: Sequence[Mapping]) -> list[Mapping]:
    """The mappings in an order that depends only on what changes a result."""
    # A function of a literal source sees an empty subject where that mapping is the first of all.
    if any(
        m.filter.is_literal and any("{{" in d.subject for d in m.destinations) for m in mappings
    ):
        return list(mappings)
    effort = Effort(EFFORT + _EFFORT_A_MAPPING * len(mappings))
    levels = _levels([mapping.filter for mapping in mappings], effort)
    if effort.is_spent:
        return list(mappings)
    ranked = sorted(zip(levels, mappings, strict=True), key=lambda pair: (pair[0], pair[1].source))
    return [mapping for _, mapping in ranked]


@dataclass(slots=True)
class _Branch:
    """A node of the tree of sources, one token deep.

    Attributes:
        here: level of the source that ends here; 0 if none does.
        tail: level of the source that ends in a `>` here.
        beyond: highest level of the sources that go on from here, `tail` among them.
    """

    here: int = 0
    tail: int = 0
    beyond: int = 0
    children: dict[str, _Branch] = field(default_factory=dict)


def _levels(filters: Sequence[Filter], effort: Effort | None = None) -> list[int]:
    """The level of each source: one above all earlier sources that share subjects with it.

    Two sources that a subject can match never have the same level, so sorting by it keeps their
    order. Once the effort is spent, levels are wrong.
    """
    effort = effort or Effort()
    root = _Branch()
    levels = []
    for source in filters:
        fixed = source.tokens[:-1] if source.is_open else source.tokens
        # Any token that starts with a `*` matches all, as in `Filter.covers`.
        tokens = [ANY_TOKEN if token.startswith(ANY_TOKEN) else token for token in fixed]
        level = 1 + _highest(root, tokens, source.is_open, effort)
        levels.append(level)
        branch = root
        for token in tokens:
            branch.beyond = max(branch.beyond, level)
            branch = branch.children.setdefault(token, _Branch())
        if source.is_open:
            branch.tail = max(branch.tail, level)
            branch.beyond = max(branch.beyond, level)
        else:
            branch.here = max(branch.here, level)
    return levels


def _highest(root: _Branch, tokens: Sequence[str], is_open: bool, effort: Effort) -> int:
    """The highest level of the sources in the tree that can match a subject with this one."""
    highest = 0
    todo = [(root, 0)]
    while todo and effort.take():
        branch, position = todo.pop()
        if max(branch.here, branch.beyond) <= highest:
            continue
        if position < len(tokens):
            highest = max(highest, branch.tail)
            token = tokens[position]
            # In one order always, as what is left out depends on it, and so does the effort.
            names = branch.children if token == ANY_TOKEN else (token, ANY_TOKEN)
            below = [branch.children[name] for name in names if name in branch.children]
            todo += [(child, position + 1) for child in below]
        elif is_open:
            highest = max(highest, branch.beyond)
        else:
            highest = max(highest, branch.here)
    return highest
