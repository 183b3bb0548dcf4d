"""Reads a JSON or YAML document: the mappings of one account, or a stream.

Sources: natscli `loadMappingsConfig` and `nats auth account mappings info --json`, whose keys start
with capitals; nats-server jwt `WeightedMapping`, where a weight of 0, or none, means 100.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingABC
from typing import TYPE_CHECKING

from nats_transform.config.accounts import checked_weight, each_mapping, located_mapping
from nats_transform.config.tree import (
    Entry,
    Node,
    Section,
    entries_of,
    field,
    has_variables,
    lower,
    plain,
    quoted,
)
from nats_transform.errors import InvalidConfig, InvalidMapping, InvalidStream, Refusals
from nats_transform.mappings.mapping import AccountMappings, Destination, Mapping

if TYPE_CHECKING:
    from nats_transform.streams.stream import StreamConfig

_FIELDS = ("subject", "weight", "cluster")
_STREAM_FIELDS = frozenset(
    {"subjects", "retention", "storage", "mirror", "sources", "subject_transform", "republish"}
)
_CONSUMER_FIELDS = frozenset(
    {
        "stream_name",
        "ack_policy",
        "deliver_policy",
        "durable_name",
        "filter_subject",
        "filter_subjects",
    }
)


def is_mappings(tree: Node) -> bool:
    """Whether a tree has the shape of `{source: [{subject, weight, cluster}, ...]}`."""
    return isinstance(tree.value, MappingABC) and all(
        isinstance(entry.node.value, tuple)
        and all(
            isinstance(node.value, MappingABC) and field(node.value, "subject")
            for node in entry.node.value
        )
        for entry in tree.value.values()
    )


def mappings_of(tree: Node) -> AccountMappings:
    """The mappings in `{source: [{subject, weight, cluster}, ...]}`.

    Raises:
        InvalidConfig: a field is unknown or of the wrong type, or nats-server refuses the mapping.
    """
    return each_mapping(entries_of(tree), _mapping)


def zeros_of(tree: Node) -> frozenset[tuple[str, str]]:
    """The sources and destinations with a weight of 0, which means 100, in valid mappings."""
    return frozenset(
        (source, _text(field(entries_of(node), "subject")))
        for source, entry in entries_of(tree).items()
        for node in (entry.node.value if isinstance(entry.node.value, tuple) else ())
        if (weight := field(entries_of(node), "weight")) is not None and weight.node.value == 0
    )


def _mapping(source: str, entry: Entry) -> Mapping:
    if not isinstance(entry.node.value, tuple):
        raise entry.node.place.error("not-a-list-of-destinations", kind=entry.node.kind)
    destinations = [_destination(node) for node in entry.node.value]
    try:
        return located_mapping(source, destinations, entry.place)
    except InvalidConfig as error:
        refused = error.fields.get("reason")
        too_much = isinstance(refused, InvalidMapping) and refused.code == "mapping-weights"
        if too_much and any(map(_has_no_weight, entry.node.value)):
            raise entry.place.error("zero-means-all-here", reason=refused) from None
        raise


def _has_no_weight(node: Node) -> bool:
    weight = field(entries_of(node), "weight")
    return weight is None or not weight.node.value


def _destination(node: Node) -> Destination:
    fields = entries_of(node)
    for key, entry in fields.items():
        if lower(key) not in _FIELDS:
            raise entry.place.error(
                "unknown-json-destination-field", key=quoted(key), fields=", ".join(_FIELDS)
            )
    return Destination(
        _text(field(fields, "subject")),
        _weight(field(fields, "weight")),
        _text(field(fields, "cluster")) or None,
    )


def _text(entry: Entry | None) -> str:
    value = entry.node.value if entry else None
    if entry is None or value is None:
        return ""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)  # a token that is a number needs no quotes in YAML
    raise entry.node.place.error("not-a-string", key=quoted(entry.key), kind=entry.node.kind)


def _weight(entry: Entry | None) -> int:
    weight = entry.node.value if entry else None
    if entry is None or weight is None:
        return 100
    return checked_weight(weight, entry.node) or 100


def stream_section(tree: Node) -> Node | None:
    """The part of a tree that is a stream configuration, or None.

    It is `config` in `nats stream info --json` and in the `backup.json` of a stream backup, or the
    whole in what `nats stream add --config` reads.
    """
    fields = tree.value
    if not isinstance(fields, MappingABC) or has_variables(tree):
        return None
    inner = fields.get("config")
    if inner and isinstance(inner.node.value, MappingABC):
        return inner.node
    name = fields.get("name")
    if name and isinstance(name.node.value, str) and _STREAM_FIELDS & fields.keys():
        return tree
    return None


def stream_of(node: Node, tree: Node) -> StreamConfig:
    """The stream configuration in a part of a tree.

    Raises:
        InvalidConfig: nats-server refuses it, or it is a consumer.
    """
    from nats_transform.streams.stream import parse_stream

    if _CONSUMER_FIELDS & {*entries_of(tree), *entries_of(node)}:
        raise node.place.error("consumer-as-stream")
    try:
        return parse_stream(plain(node))
    except InvalidStream as error:
        refusals = Refusals(InvalidConfig)
        for refusal in (error, *error.others):
            with refusals:
                place = _part(node, str(refusal.fields.get("where", ""))).place
                raise place.error("refused", reason=refusal) from None
        refusals.tell()
        raise


def _part(node: Node, path: str) -> Node:
    """The part of the tree at a path such as `sources.0.name`, as far as the tree has it."""
    for step in path.split(".") if path else ():
        fields: Section | tuple[Node, ...] | object = node.value
        if isinstance(fields, MappingABC) and step in fields:
            node = fields[step].node
        elif isinstance(fields, tuple) and step.isdigit() and int(step) < len(fields):
            node = fields[int(step)]
        else:
            break
    return node
