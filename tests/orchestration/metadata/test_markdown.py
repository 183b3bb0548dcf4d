"""Markdown shows the text of others as it is, and in place where Dagster can."""

from __future__ import annotations

import html
import re

import cmarkgfm
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.metadata.markdown import IN_PLACE, escaped, first_in_place, table

SUBJECTS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1)
ODD = (
    *("orders.*.*", "a|b", "![x](y.png)", "[x](y)", "<b>", "`c`", "a_b_c", "$1$", "&amp;"),
    *(r"\*", "~~a~~", "# a", "http://example.com"),
)


def rendered(markdown: str) -> str:
    """The page as GitHub's flavor has it, without the links that it makes of addresses."""
    page = cmarkgfm.github_flavored_markdown_to_html(markdown)
    return re.sub(r"</?a\b.*?>", "", page)


@pytest.mark.parametrize("text", ODD)
def test_a_text_is_shown_as_it_is(text: str) -> None:
    cells = re.findall(r"<t[hd]>(.*?)</t[hd]>", rendered(str(table(["name"], [[text]]).value)))
    assert [html.unescape(cell) for cell in cells] == ["name", text]
    assert html.unescape(rendered(escaped(text))) == f"<p>{text}</p>\n"


@given(SUBJECTS)
def test_any_subject_stays_in_its_cell(text: str) -> None:
    page = rendered(str(table(["name"], [[text]]).value))
    tags = re.findall(r"<(/?\w+)", page)
    assert tags.count("td") + tags.count("th") == 2
    assert set(tags) <= {"table", "thead", "tbody", "tr", "th", "td"} | {
        f"/{tag}" for tag in ("table", "thead", "tbody", "tr", "th", "td")
    }


def test_as_many_rows_as_fit() -> None:
    rows = [[f"destination {n}", "x" * 50] for n in range(100)]
    first = str(first_in_place(["a", "b"], rows).value)
    assert IN_PLACE - 80 < len(first) <= IN_PLACE
    assert "destination 0 " in first
    assert first_in_place(["a", "b"], rows[:3]) == table(["a", "b"], rows[:3])
    assert "x" * 2000 in str(first_in_place(["a"], [["x" * 2000], ["y"]]).value)
