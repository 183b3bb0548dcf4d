"""Imports between accounts: every row of tests/cases/imports.yaml."""

from __future__ import annotations

import pytest

from nats_transform import AccountImport, ImportKind, InvalidTransform, errors
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
    with pytest.raises(InvalidTransform) as refused:
        imported.shadow("b.$+1.x")
    assert refused.value.detail == "irreversible"


def test_the_kind_may_be_its_word() -> None:
    assert AccountImport("stream", "a", "b").kind is ImportKind.STREAM  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="topic"):
        AccountImport("topic", "a", "b")  # type: ignore[arg-type]
