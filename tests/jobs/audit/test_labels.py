"""Cluster names that are missing, or that no mapping has."""

from __future__ import annotations

import pytest

from jobs.audit.labels import cluster_notes
from jobs.audit.result import AuditError
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.audit import Period
from tests.support.refused import refused

SCOPED = Mapping("a.*", [Destination("b.$1", 50, "west"), Destination("c.$1", 50, "west")])
GENERAL = Mapping("a.*", [Destination("b.$1", 50, "west"), Destination("c.$1", 50)])


def notes(mapping: Mapping, labels: dict[str | None, int]) -> list[str]:
    counts = {("a.*", label): count for label, count in labels.items()}
    return list(cluster_notes([Period(AccountMappings([mapping]))], counts, "they are left out"))


@pytest.mark.parametrize(
    ("mapping", "labels", "said"),
    [
        (GENERAL, {"west": 5, "east": 3}, []),
        (GENERAL, {"east": 3}, []),
        (GENERAL, {"west": 5, None: 3}, ["3 of 8 messages of a.* have no cluster name; they are"]),
        (
            GENERAL,
            {"West": 3},
            ["labelled West, which the mapping does not have (it has west); if"],
        ),
        (SCOPED, {"west": 5, "east": 3}, ["(it has west); nothing is mapped there"]),
        (Mapping("a.*", [Destination("b.$1", 50)]), {None: 3}, []),
    ],
    ids=["general list", "only others", "some without", "case", "unknown", "no clusters"],
)
def test_what_is_said(mapping: Mapping, labels: dict[str | None, int], said: list[str]) -> None:
    found = notes(mapping, labels)
    assert len(found) == len(said)
    assert all(text in note for text, note in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("mapping", "labels", "code"),
    [(GENERAL, {None: 8}, "no-cluster-names"), (SCOPED, {"eu": 8}, "other-cluster-names")],
    ids=["no label", "label of no cluster"],
)
def test_what_is_refused(mapping: Mapping, labels: dict[str | None, int], code: str) -> None:
    with refused(AuditError, code, source="a.*"):
        notes(mapping, labels)
