"""The site of the documentation: every page has a place, every setting is explained."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from cli.explanations import explanations
from cli.main import COMMANDS, main
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import versions
from nats_transform.config import load_mappings
from nats_transform.lint.findings import CODES, PAGE
from nats_transform.migration import ALL
from orchestration.archive import Archive
from scripts import pages
from scripts.sessions import Command, steps
from tests.support.browser import SCHEMES, WIDTHS, Browser
from tests.support.command import commands
from tests.support.files import write_files
from tests.support.programs import BIN, output_of
from tests.test_repository import tracked_files

ROOT = Path(__file__).parents[1]
NAVIGATION = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("docs/*.md"))}
EVERYTHING = "".join(PAGES.values())
OPTIONS_OF_OTHERS = set(
    "--config-settings --conf --network --host --name --loop --spark --messages --size".split()  # noqa: SIM905 - reads better
)


def leaves(navigation: Any) -> Iterator[str]:
    for entry in navigation:
        for target in entry.values():
            yield from [target] if isinstance(target, str) else leaves(target)


def test_every_page_is_in_the_navigation_once() -> None:
    made = [f"reference/{name}.md" for name in pages.REFERENCE]
    pages_of_contributors = ["architecture.md", "SECURITY.md"]
    linked = [*leaves(NAVIGATION), *pages_of_contributors]
    assert sorted(linked) == sorted([*PAGES, *pages.BESIDE.values(), *made])
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert all(f"{name})" in contributing for name in pages_of_contributors)


def test_pages_are_put_on_the_site_with_links_but_not_those_in_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGES", tmp_path / "site")
    for name in PAGES:
        pages.put(ROOT / "docs" / name, name)
    for name, page in pages.BESIDE.items():
        pages.put(ROOT / name, page)
    text = "[No](CHANGELOG.md), `[text](address)`.\n\n```\n[a](b)\n```\n"
    (file := tmp_path / "page.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    pages.put(file, "page.md")
    assert (tmp_path / "site" / "page.md").read_text("utf-8") == text


def test_the_navigation_has_a_few_groups() -> None:
    assert [name for entry in NAVIGATION for name in entry] == [
        "Start", "Tutorials", "How to", "Reference", "Explanation", "Contributors",
    ]  # fmt: skip


def built(folder: Path, more: str = "") -> Path:
    """The site of the pages in a folder's docs."""
    (folder / "zensical.toml").write_text(
        f'[project]\nsite_name = "site"\ndocs_dir = "docs"\nsite_dir = "site"\n{more}'
    )
    output_of(BIN / "zensical", "build", "--strict", cwd=folder)
    return folder / "site"


def test_a_site_in_chromium_needs_no_network_and_shows_reports(
    browser: Browser, tmp_path: Path
) -> None:
    """Opened as files, as who has built it opens it: the report in a frame is there."""
    long = "`" + "averylongtoken." * 30 + "`"
    frame = pages.FRAME.format("audit-a.html", "A report").replace(' loading="lazy"', "")
    report = "<!doctype html><p>A report<script>console.log('REPORT')</script>"
    home, audit = "# Home\n\n[a page](audit.md)\n", f"# Audit\n\n{frame}\n\n{long}\n"
    files = {"index.md": home, "reports/audit-a.html": report, "audit.md": audit}
    write_files(tmp_path / "docs", files)
    theme = (ROOT / "zensical.toml").read_text().partition("[project.theme]")[2]
    site = built(tmp_path, "[project.theme]" + theme.partition("[project.plugins")[0])
    page = site / "audit" / "index.html"
    assert not re.search(r"(?:src|href)=\"?(?:https?:)?//(?!zensical)", page.read_text())
    for width in WIDTHS:
        for scheme in SCHEMES:
            # The theme looks for its search as files; without it, the search is not offered.
            shown = browser.open(page, width, scheme)
            assert [line for line in shown if "ERR_FILE_NOT_FOUND" not in line] == ["REPORT"]
            assert browser.evaluate("document.body.scrollWidth") <= width


def test_every_code_has_an_anchor_where_findings_say(tmp_path: Path) -> None:
    files = {"reference/findings.md": pages.findings(), "index.md": "# Home\n"}
    write_files(tmp_path / "docs", files)
    *_, folder, name, _ = PAGE.split("/")
    html = (built(tmp_path) / folder / name / "index.html").read_text()
    anchors = re.findall(r"<h3 id=\"?([\w-]+)", html)
    assert [f"{PAGE}#{anchor}" for anchor in anchors] == [one.page for one in explanations()]
    assert {rule.page for rule in (CODES | ALL).values()} < {one.page for one in explanations()}


def test_links_to_the_reference_lead_somewhere() -> None:
    assert set(re.findall(r"\]\(site:([\w-]+)", EVERYTHING)) <= set(pages.REFERENCE)


def test_reports_on_pages_are_made_by_commands_above_them() -> None:
    """`make docs` runs these commands; tests/test_docs.py runs them too."""
    shown = [(name, one) for name, page in PAGES.items() for one in pages.REPORT.finditer(page)]
    assert {name for name, _ in shown} == {"audit.md", "check.md", "demo.md"}
    for name, one in shown:
        folder, _, report = one[2].partition("/")
        assert folder == name.removesuffix(".md")
        above = [step for step in steps(PAGES[name][: one.start()]) if isinstance(step, Command)]
        written = (f"--report {report}", f"--out {Path(report).parent}")
        assert any(line in command.text for command in above for line in written)


@pytest.mark.parametrize("page", ["json", "settings", "tables"])
def test_every_field_is_explained(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cell of the last column is empty, and no link leads to a section that is not there."""
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    (tmp_path / "reference" / "schemas").mkdir(parents=True)
    text = pages.REFERENCE[page]()
    rows = re.findall(r"^\| .*\|$", text, re.MULTILINE)
    assert len(rows) > 5
    assert [row for row in rows if re.search(r"\|\s*\|$", row)] == []
    sections = {title.lower() for title in re.findall(r"^## (.+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= sections
    for link in re.findall(r"\]\((schemas/[^)]+)\)", text):
        assert (tmp_path / "reference" / link).exists()


def test_commands_print_the_json_that_the_reference_describes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All fields and no others, in every object; and each command with `--json` has a section."""
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    schemas = tmp_path / "reference" / "schemas"
    schemas.mkdir(parents=True)
    sections = set(re.findall(r"^## (.+)$", pages.results(), re.MULTILINE))
    half = 'mappings { "a.*": [{ destination: "b.$1", weight: 50% }] }'
    stream = {"name": "S", "subjects": ["b.>"], "republish": {"src": ">", "dest": "c.>"}}
    mirror = {"name": "T", "mirror": {"name": "S"}}
    write_files(tmp_path, {"a.conf": half, "streams/S.json": stream, "streams/T.json": mirror})
    warehouse = Warehouse(dir=tmp_path / "warehouse")
    versions.record(warehouse, load_mappings(tmp_path / "a.conf"), account="$G", seed=0)
    for command in (
        "map a.* b.$1 a.x other",
        f"check {tmp_path}/a.conf",
        "explain remainder-kept",
        f"trace a.x --mapping {tmp_path}/a.conf --streams {tmp_path}/streams",
        f"maintain --warehouse {warehouse.dir}",
    ):
        name, *_ = command.split()
        schema = json.loads((schemas / f"{name}-result.json").read_text(), object_hook=strict)
        lines = CliRunner().invoke(main, [*command.split(), "--json"]).stdout.splitlines()
        assert len(lines) == (2 if name == "map" else 1)
        for line in lines:
            assert json.loads(line)
            jsonschema.validate(json.loads(line), schema)
    with_json = {
        "-".join(path)
        for path, command in commands().items()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    assert {"check", "audit", "demo"} < with_json
    assert with_json - {"demo"} <= sections


def strict(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a schema that wants every property, and no other."""
    fields = part.get("properties")
    if part.get("type") == "object" and fields:
        return part | {"additionalProperties": False, "required": list(fields)}
    return part


def variables(text: str) -> set[str]:
    return set(re.findall(r"\bNATS_TRANSFORM_[A-Z_]+[A-Z]\b", text))


def test_every_variable_is_explained_and_read() -> None:
    """Those of the demo and of shell completion are set by us and read by us."""
    read = set()
    for pattern in ("*.py", "deploy/*"):
        for path in tracked_files(pattern):
            if not path.is_relative_to(ROOT / "tests"):
                read |= variables(path.read_text(encoding="utf-8", errors="replace"))
    ours = {name for name in read if re.search(r"_(DEMO|COMPLETE)", name)}
    assert variables(PAGES["configuration.md"]) == read - ours
    assert variables(EVERYTHING) <= read


def test_every_option_that_a_page_names_exists() -> None:
    """In prose and in commands of ours; options of other programs stand in their commands."""
    parameters = [one for command in commands().values() for one in command.params]
    known = {"--help"} | {name for one in parameters for name in (*one.opts, *one.secondary_opts)}
    unknown = set()
    for name, page in PAGES.items():
        prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
        for code in re.findall(r"`([^`]+)`", prose):
            if re.match(r"--|nats-transform ", code) or code.split(" ")[0] in COMMANDS:
                named = {*re.findall(r"(?<!\S)--[a-z-]+", code)}
                unknown |= {(name, one) for one in named - known}
    assert {one for _, one in unknown} <= OPTIONS_OF_OTHERS, unknown


def test_settings_of_an_archive_that_a_page_names_exist() -> None:
    page = PAGES["orchestration.md"]
    table = page.partition("| in the YAML |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `(\w+)", table, re.MULTILINE)
    assert len(named) >= 5
    assert [name for name in named if name not in Archive.model_fields] == []
