"""Text of others, made safe to show."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transform.errors import NatsTransformError
from nats_transform.untrusted import json_text, one_line, visible

# Everything that a terminal or a page could obey, or that cannot be seen.
ACTING = [
    *map(chr, [*range(0x20), 0x7F, *range(0x80, 0xA0)]),  # C0, DEL, C1
    *map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]),  # bidi
    *"\u061c\u200e\u200f\u200b\u2028\u2029\ufeff\u00ad\U000e0041",
    *map(chr, [0xD800, 0xDC80, 0xDFFF]),  # surrogates
]
ANYTHING = st.text(st.characters(codec=None) | st.sampled_from(ACTING))


@pytest.mark.parametrize("character", ACTING, ids=ascii)
def test_what_acts_is_escaped(character: str) -> None:
    shown = visible(f"a{character}b")
    assert shown.isascii()
    assert shown.isprintable()
    assert shown[1:-1] == ascii(character)[1:-1]


@given(ANYTHING)
def test_any_text_becomes_printable_and_stays_so(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)
    assert one_line(text).isprintable()
    visible(text).encode()
    lines = visible(text, keep="\n")
    assert lines.count("\n") == text.count("\n")
    assert lines.replace("\n", "").isprintable()


@given(ANYTHING)
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    printable = "".join(filter(str.isprintable, text))
    assert visible(printable) == printable


@given(ANYTHING)
def test_json_is_printable_ascii_and_exact(text: str) -> None:
    written = json_text({"subject": text})
    assert written.isascii()
    assert written.isprintable()
    # JSON has no way to keep the halves of a pair apart; a subject has no halves to begin with.
    assert json.loads(written)["subject"] == json.loads(json.dumps(text))


def test_an_error_is_one_printable_line() -> None:
    error = NatsTransformError("refused", reason="no\x1b[2J stream \u202e\n  here")
    assert str(error) == "no\\x1b[2J stream \\u202e here"
