"""The tables of cases, as plain data; each file's head says what its rows are."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from nats_transform import AccountMappings, Destination, Mapping


class TransformCase(NamedTuple):
    """A row of transforms.yaml."""

    id: str
    source: str
    destination: str
    subject: str
    expected: str | None
    error: str | None
    strict: bool


@cache
def load(name: str) -> Any:
    """What a file of this folder holds."""
    return yaml.safe_load((Path(__file__).parent / name).read_text("utf-8"))


def transforms() -> list[TransformCase]:
    """Every row of transforms.yaml."""
    return [
        TransformCase(
            name,
            source,
            destination,
            subject,
            None if isinstance(expected, dict) else expected,
            expected["error"] if isinstance(expected, dict) else None,
            group == "strict",
        )
        for group, rows in load("transforms.yaml").items()
        for name, source, destination, subject, expected, _ in rows
    ]


def account(mappings: dict[str, Any]) -> AccountMappings:
    """The mappings of a row of mappings.yaml."""
    return AccountMappings(
        [
            Mapping(
                source,
                [Destination(to)]
                if isinstance(to, str)
                else [
                    Destination(one["destination"], one.get("weight", 100), one.get("cluster"))
                    for one in to
                ],
            )
            for source, to in mappings.items()
        ]
    )


def rows(name: str, group: str) -> list[Any]:
    """The rows of a group of a file for `parametrize`: each is the arguments of its id."""
    return [pytest.param(*row, id=id) for id, row in load(name)[group].items()]
