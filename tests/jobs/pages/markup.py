"""What a page has: its tags and its text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

Tag = tuple[str, dict[str, str | None]]


class _Page(HTMLParser):
    VOID = frozenset({"meta", "link", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[Tag] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags_of(html: str) -> list[Tag]:
    """The tags of a page; fails on markup that does not close."""
    page = _Page()
    page.feed(html)
    page.close()
    assert page.open == []
    return page.tags


def text_of(html: str) -> str:
    """What a page says, with one blank between words."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).replace("&nbsp;", " ").split())
