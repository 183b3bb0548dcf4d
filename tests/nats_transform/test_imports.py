"""Imports between accounts: every row of tests/cases/imports.yaml, and leaf nodes."""

from __future__ import annotations

import pytest

from nats_transform import (
    AccountImport,
    AccountMappings,
    Destination,
    Fate,
    ImportKind,
    InvalidTransform,
    LeafNode,
    Mapping,
    errors,
)
from tests import cases

CASES = cases.load("imports.yaml")


@pytest.mark.parametrize(
    ("kind", "subject", "to", "published", "expected"),
    [pytest.param(*row[1:6], id=row[0]) for row in CASES["imports"]],
)
def test_the_cases(
    kind: str, subject: str, to: str, published: str, expected: str | dict[str, str] | None
) -> None:
    if isinstance(expected, dict):
        with pytest.raises(InvalidTransform) as refused:
            AccountImport(ImportKind(kind), subject, to)
        assert type(refused.value) is getattr(errors, expected["error"])
    else:
        assert AccountImport(ImportKind(kind), subject, to).apply(published) == expected


@pytest.mark.parametrize(
    ("subject", "to", "subscription", "expected"),
    [pytest.param(*row[1:5], id=row[0]) for row in CASES["shadow"]],
)
def test_shadow_subscriptions(
    subject: str, to: str, subscription: str, expected: str | None
) -> None:
    assert AccountImport(ImportKind.STREAM, subject, to).shadow(subscription) == expected


def test_a_service_has_no_shadow() -> None:
    assert AccountImport(ImportKind.SERVICE, "a.*", "b.$1").shadow("b.x") is None


def test_an_import_that_cannot_be_turned_around() -> None:
    imported = AccountImport(ImportKind.STREAM, "a.*.*", "b.$+1.*")
    assert imported.apply("a.x.y") == "b.x.x"
    with pytest.raises(InvalidTransform, match="not reversible"):
        imported.shadow("b.$+1.x")


def test_the_kind_may_be_its_word() -> None:
    assert AccountImport("stream", "a", "b").kind is ImportKind.STREAM  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="topic"):
        AccountImport("topic", "a", "b")  # type: ignore[arg-type]


def _mapped(source: str, destination: str) -> AccountMappings:
    return AccountMappings([Mapping(source, [Destination(destination)])])


def test_a_leaf_sees_what_the_hub_mapped_and_maps_it_again_by_its_own() -> None:
    leaf = LeafNode(hub=_mapped("a.*", "b.$1"), mappings=_mapped("b.*", "c.$1"))
    assert leaf.sees("a.x").subject == "c.x"
    assert leaf.sees("z").subject == "z"


def test_a_leaf_sees_an_import_under_its_subject_here() -> None:
    leaf = LeafNode(
        hub=_mapped("never", "used"),
        imports=[AccountImport(ImportKind.STREAM, "sales.*", "in.$1")],
    )
    seen = leaf.sees_import("raw.eu", exporter=_mapped("raw.*", "sales.$1"))
    assert [outcome.subject for outcome in seen] == ["in.eu"]
    assert leaf.sees_import("other", exporter=_mapped("raw.*", "sales.$1")) == []


def test_a_leaf_sees_nothing_of_what_is_lost() -> None:
    lossy = AccountMappings([Mapping("a", [Destination("a", 0)])])
    assert LeafNode(hub=lossy).sees("a").fate is Fate.LOST
