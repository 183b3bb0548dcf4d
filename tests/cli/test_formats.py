"""Findings as reviews of changes read them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import cmarkgfm
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as Sarif

from cli.formats import MOST_CHARACTERS, Reported, github, markdown, sarif
from nats_transform.lint.findings import CODES, PAGE, Severity
from nats_transform.untrusted import one_line
from tests.support.command import nats_transform, printed
from tests.support.saying import says

CONFIG = """jetstream: enabled
mappings = {
  "a.*": "b.$1"
  "shop.*.*": [ { destination: "shop.v1.$1.$2", weight: 90% } ]
}
"""

# What a publisher, a file name or a server may put in, and what each form must not act on.
HOSTILE = [
    "::error file=x::owned",
    "a\n::stop-commands::x\r\n",
    "##[error]owned",
    "<script>alert(1)</script><img src=x onerror=y>",
    "</details> | `` ``` *b* _i_ [x](javascript:y) ![x](http://evil/x.png)",
    "http://evil.example www.evil.example @team someone@evil.example #12",
    "- item\n# title\n1. one\n> quote\n=====",
    "\x1b[31mred\u202e\udcff",
    "&lt;b&gt; &amp; &#60;",
]


def finding(text: str, severity: Severity = Severity.WARNING, **more: object) -> Reported:
    found = Reported(severity, "refused", text, text, text.replace("\0", ""), 3, 7, (text, text))
    return found._replace(**more)


texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40))


@given(st.lists(texts, max_size=4))
def test_every_annotation_is_one_line_and_ours(texts: list[str]) -> None:
    lines = github([finding(text) for text in texts]).split("\n") if texts else []
    assert len(lines) == len(texts)
    for line, text in zip(lines, texts, strict=True):
        assert line.isprintable()
        command = re.fullmatch(r"::warning ([^:]*)::(.*)", line)
        names = [one.partition("=")[0] for one in command[1].split(",")]
        has_path = bool(text.replace("\0", ""))  # no file has such a name
        assert names == ["file"] * has_path + ["line", "col", "title"]
        read = command[2].replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
        assert read == one_line(f"{text}. {text}")


def cmarkgfm_html(written: str) -> str:
    return str(cmarkgfm.github_flavored_markdown_to_html(written))


class Page(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not attrs, attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.lists(texts, min_size=1, max_size=4))
def test_markdown_shows_texts_as_they_are(texts: list[str]) -> None:
    """Rendered by GitHub's own renderer: only our own markup acts."""
    written = markdown(texts[0], texts[:2], [finding(text, path="x") for text in texts])
    page = Page(cmarkgfm_html(written))
    ours = {"h3", "p", "br", "strong", "ul", "li", "code", "details", "summary"}
    assert page.tags <= ours
    squeezed = " ".join(page.text.replace("\u2060", "").split())
    for text in texts:
        assert " ".join(one_line(text).replace("\u2060", "").split()) in squeezed
    without_code = re.sub("<code>.*?</code>", "", cmarkgfm_html(written))
    assert not re.search(r"[@#]\w", Page(without_code).text)


def test_markdown_fits_into_a_comment_with_the_worst_first() -> None:
    severities = [Severity.INFO, Severity.WARNING, Severity.ERROR]
    found = [finding(f"{n} " + "<" * 60, s) for s in severities for n in range(60)]
    written = markdown("t", ["s"], found)
    assert len(written) <= MOST_CHARACTERS
    assert written.index("**Error**") < written.index("**Warning**")
    left = re.search(r"and (\d+) more", written)
    assert written.count("- `refused`") + int(left[1]) == 180


@given(st.lists(texts, max_size=3))
def test_sarif_obeys_its_schema(texts: list[str]) -> None:
    log = json.loads(sarif([finding(text) for text in texts], CODES))
    Sarif.model_validate(log)
    (run,) = log["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["refused"] * len(texts)
    # `[text](address)` is a link in every text of SARIF (3.11.6).
    assert not any("](" in result["message"]["text"] for result in run["results"])


@pytest.fixture
def config(folder: Path) -> None:
    (folder / "server.conf").write_text(CONFIG)


@pytest.mark.usefixtures("config")
def test_check_names_file_line_and_column() -> None:
    out = printed("check", "server.conf", "--format", "github")
    assert out.startswith("::warning file=server.conf,line=4,col=3,title=remainder-kept::")
    assert f". {PAGE}#check-remainder-kept\n" in out
    assert out.endswith("1 file checked: 1 warning\n")

    _, out, _ = nats_transform("check", "server.conf", "--format", "sarif")
    log = json.loads(out)
    Sarif.model_validate(log)
    (result,) = log["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "server.conf"},
        "region": {"startLine": 4, "startColumn": 3},
    }
    rule = log["runs"][0]["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (rule["id"], rule["helpUri"]) == ("remainder-kept", f"{PAGE}#check-remainder-kept")

    _, out, _ = nats_transform("check", "server.conf", "--format", "markdown")
    assert f"- [`remainder-kept`]({rule['helpUri']}) in `server.conf:4`: " in out


@pytest.mark.usefixtures("config")
def test_one_form_is_given() -> None:
    whole = nats_transform("check", "server.conf", "--json")
    assert nats_transform("check", "server.conf", "--format", "json") == whole
    code, _, told = nats_transform("check", "server.conf", "--json", "--format", "sarif")
    assert code == 2
    assert says(told, "not-both", options="--json or --format")
