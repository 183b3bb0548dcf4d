"""Gathers the pages of the documentation site in build/pages, for `make docs`.

Most are the Markdown files of the repository as they stand. The reference of commands, jobs and the
library is made from the code. Links from docs/ to the rest of the repository lead to copies.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
PAGES = ROOT / "build" / "pages"
# Pages outside of docs/, and their names on the site.
BESIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
}
LIBRARY = ("nats_transform", "nats_transform.kernel", "nats_transform.spark")
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def main() -> None:
    """Writes all pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for file in sorted((ROOT / "docs").iterdir()):
        put(file, file.name)
    for name, page in BESIDE.items():
        put(ROOT / name, page)
    for page, text in (("commands", commands()), ("jobs", jobs()), ("library", library())):
        path = PAGES / "reference" / f"{page}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def put(file: Path, page: str) -> None:
    """Copies a file; the links of a page lead to where things are on the site."""
    target = PAGES / page
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix != ".md":
        shutil.copyfile(file, target)
        return

    def on_site(link: re.Match[str]) -> str:
        path = (file.parent / link[1]).resolve().relative_to(ROOT)
        if path.suffix != ".md" and path.parts[0] != "docs":
            put(ROOT / path, str(path))
        place = BESIDE.get(str(path), str(path).removeprefix("docs/"))
        return f"]({place}{link[2] or ''})"

    target.write_text(LINK.sub(on_site, file.read_text(encoding="utf-8")), encoding="utf-8")


def commands() -> str:
    """What `--help` says, of every command."""
    from click.testing import CliRunner

    from cli.main import COMMANDS, main

    lines = [
        "# Commands",
        "",
        "What `nats-transform` and each of its commands say with `--help`.",
        "",
    ]
    for command in ((), *((name,) for name in COMMANDS)):
        helped = CliRunner().invoke(main, [*command, "--help"], terminal_width=98)
        lines += [f"## {' '.join(('nats-transform', *command))}", "", "```text"]
        lines += [helped.output.rstrip(), "```", ""]
    return "\n".join(lines)


def jobs() -> str:
    """The settings of every job, from its class."""
    from jobs.__main__ import JOBS

    lines = ["# Settings of jobs", ""]
    lines += ["`python -m jobs JOB SETTINGS.json` takes a JSON document with these fields.", ""]
    shared: dict[str, dict[str, Any]] = {}
    for name, job in JOBS.items():
        schema = getattr(import_module(f"jobs.{job.module}"), job.settings).model_json_schema()
        lines += [f"## {name}", "", *fields(schema)]
        shared |= schema.get("$defs", {})
    for title, schema in sorted(shared.items()):
        if "properties" in schema:
            lines += [f"## {title}", "", *fields(schema)]
    return "\n".join(lines)


def fields(schema: dict[str, Any]) -> list[str]:
    """A table of the fields of a class."""
    about, meanings = description(schema.get("description", ""))
    lines = [about, "", "| field | type | default | meaning |", "|---|---|---|---|"]
    for field, one in schema["properties"].items():
        default = one.get("default")
        shown = "" if default is None or isinstance(default, dict) else f"`{json.dumps(default)}`"
        if field in schema.get("required", ()):
            shown = "needed"
        row = (f"`{field}`", kind(one), shown, meanings.get(field, ""))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return [*lines, ""]


def description(docstring: str) -> tuple[str, dict[str, str]]:
    """What a docstring says before its list of attributes, and what that says of each."""
    about, _, attributes = docstring.partition("Attributes:")
    found = {}
    for entry in re.split(r"\n(?=    \w|\w)", attributes):
        names, _, meaning = entry.strip().partition(":")
        for name in names.split(","):
            found[name.strip()] = " ".join(meaning.split())
    return " ".join(about.split()), found


def kind(schema: dict[str, Any]) -> str:
    """The type of a field as people call it."""
    if "anyOf" in schema:
        return " or ".join(name for one in schema["anyOf"] if (name := kind(one)) != "null")
    if "$ref" in schema:
        return f"[{(name := schema['$ref'].rpartition('/')[2])}](#{name.lower()})"
    if "items" in schema:
        return f"list of {kind(schema['items'])}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    return str(schema.get("format", schema.get("type", schema.get("const", "any"))))


def library() -> str:
    """A directive for every public name; the site's builder reads the docstrings."""
    lines = ["# Python library", ""]
    for module in LIBRARY:
        found = import_module(module)
        lines += [f"## {module}", "", (found.__doc__ or "").strip(), ""]
        for name in found.__all__:
            lines += [f"::: {module}.{name}", "    options:", "      heading_level: 3", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
