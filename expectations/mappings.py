"""Mappings as plain values: the arguments of an expectation are kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from nats_transform import AccountMappings, Destination, Mapping


def as_plain(mappings: Iterable[Mapping]) -> list[dict[str, Any]]:
    """Mappings as JSON has them, in the words of a server's configuration."""
    return [
        {
            "source": mapping.source,
            "destinations": [
                {"destination": d.subject, "weight": d.weight, "cluster": d.cluster}
                for d in mapping.destinations
            ],
        }
        for mapping in mappings
    ]


def as_mappings(values: Sequence[dict[str, Any]]) -> AccountMappings:
    """The mappings that `as_plain` made plain."""
    return _parsed(json.dumps(values))  # every expectation of a suite has the same ones


@lru_cache(maxsize=8)
def _parsed(text: str) -> AccountMappings:
    return AccountMappings(
        [
            Mapping(
                value["source"],
                [
                    Destination(d["destination"], d.get("weight", 100), d.get("cluster"))
                    for d in value["destinations"]
                ],
            )
            for value in json.loads(text)
        ]
    )
