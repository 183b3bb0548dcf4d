"""Counts in messages."""

from __future__ import annotations

import pytest

from nats_transform.words import plural


@pytest.mark.parametrize(
    ("count", "forms", "told"),
    [
        (0, ("stream",), "0 streams"),
        (1, ("stream",), "1 stream"),
        (2000, ("stream",), "2,000 streams"),
        (2, ("info",), "2 info"),
        (1, ("message has", "messages have"), "1 message has"),
        (2, ("message has", "messages have"), "2 messages have"),
    ],
)
def test_plural(count: int, forms: tuple[str, ...], told: str) -> None:
    assert plural(count, *forms) == told
