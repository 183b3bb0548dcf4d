"""Gathers the pages of the documentation site in build/pages, for `make docs`.

Most are the Markdown files of the repository as they stand. Those of the reference are made from
the code, and are only on the site: pages link to them as `](site:tables)`. Links from docs/ to the
rest of the repository lead to copies. Reports that a page shows are made by the commands of that
page: `[text](report:audit/observed.html)` becomes the report itself, in a frame. A page that says
`make demo` shows reports of the demo, which is made unless it is there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from importlib import import_module
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from types import UnionType
from typing import Any, get_args

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.sessions import Command, File, run_here, steps  # noqa: E402 - from the checkout

PAGES = ROOT / "build" / "pages"
# Pages outside of docs/, and their names on the site.
BESIDE = {
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
}
LIBRARY = ("nats_transform", "nats_transform.kernel", "nats_transform.spark")
# A link to a file, or code, in which nothing is a link.
LINK = re.compile(
    r"^(?P<fence>```+).*?^(?P=fence)$|`[^`\n]*`|\]\((?P<file>[^)#:]+)(?P<anchor>#[^)]*)?\)",
    re.MULTILINE | re.DOTALL,
)
ON_SITE = re.compile(r"\]\(site:([\w-]+)(#[^)]*)?\)")
REPORT = re.compile(r"^\[([^]]+)\]\(report:([\w-]+/[\w/-]+\.html)\)$", re.MULTILINE)
DEMO = ROOT / "demo"
# As the Markdown sees it: the build makes links of pages relative to where they are then.
FRAME = """<iframe src="reports/{0}" title="{1}" loading="lazy"
  style="width: 100%; height: 36rem; border: 1px solid #8888"></iframe>

<a href="reports/{0}">{1}</a>"""


def main() -> None:
    """Writes all pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for file in sorted((ROOT / "docs").iterdir()):
        put(file, file.name)
    for name, page in BESIDE.items():
        put(ROOT / name, page)
    (PAGES / "reference" / "schemas").mkdir(parents=True)
    for name, make in REFERENCE.items():
        (PAGES / "reference" / f"{name}.md").write_text(make(), encoding="utf-8")
    for page in sorted(ROOT.glob("docs/*.md")):
        reports(page)


def reports(page: Path) -> None:
    """Makes the reports that a page shows, by what the page says until then."""
    text = page.read_text(encoding="utf-8")
    shown = list(REPORT.finditer(text))
    if not shown:
        return
    folder = PAGES / "reports"
    folder.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "100"}
    with TemporaryDirectory() as scratch:
        for step in steps(text[: shown[-1].start()]):
            if isinstance(step, File):
                (Path(scratch) / step.name).write_text(step.text, encoding="utf-8")
            elif step.text == "make demo":
                if not any(DEMO.glob("reports/*-observed-*.html")):
                    run_here(Command("nats-transform demo", None), ROOT, environment)
                for linked in (DEMO, ROOT / "orchestration"):
                    (Path(scratch) / linked.name).symlink_to(linked)
            elif step.text.startswith(("python ", "nats-transform ")):
                run_here(step, Path(scratch), environment)
        for one in shown:
            page_folder, _, name = one[2].partition("/")
            made, target = Path(scratch) / name, folder / page_folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if made.parent == Path(scratch):
                shutil.copyfile(made, target)
            else:  # it has links to files beside it, of which a README.md would be its index
                without = shutil.ignore_patterns("*.md")
                shutil.copytree(made.parent, target.parent, ignore=without, dirs_exist_ok=True)


def put(file: Path, page: str) -> None:
    """Copies a file; the links of a page lead to where things are on the site."""
    target = PAGES / page
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix != ".md":
        shutil.copyfile(file, target)
        return

    def on_site(link: re.Match[str]) -> str:
        if link["file"] is None:
            return link[0]
        path = (file.parent / link["file"]).resolve().relative_to(ROOT)
        if path.suffix != ".md" and path.parts[0] != "docs":
            put(ROOT / path, str(path))
        place = BESIDE.get(str(path), str(path).removeprefix("docs/"))
        return f"]({place}{link['anchor'] or ''})"

    text = LINK.sub(on_site, file.read_text(encoding="utf-8"))
    text = REPORT.sub(lambda one: FRAME.format(one[2], one[1]), text)
    target.write_text(ON_SITE.sub(r"](reference/\1.md\2)", text), encoding="utf-8")


def commands() -> str:
    """What `--help` says, of every command, and what a replay does with headers."""
    from click.testing import CliRunner

    from cli.main import COMMANDS, main
    from jobs.jetstream.control import TABLE

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
        if command == ("replay",):
            headers = [(f"`{name}`", what, str(fate)) for name, (what, fate) in TABLE.items()]
            lines += ["### Headers in a replay", ""]
            lines += table(("archived header", "what it does or says", "in a replay"), headers)
    return "\n".join(lines)


def settings() -> str:
    """The settings of every job and of the components of Dagster, from their classes."""
    from jobs.registry import JOBS
    from orchestration.components import AccountArchive, SubjectArchive, SubmittedJob

    about = (
        "`python -m jobs JOB SETTINGS.json` takes a JSON document with the fields of that job. "
        "`SubjectArchive`, `AccountArchive` and `SubmittedJob` are what stands under `attributes` "
        "in the `defs.yaml` of a component of Dagster; relative paths there are relative to the "
        "folder of that file."
    )
    found: dict[str, Any] = {name: job.model for name, job in JOBS.items()}
    found |= {kind.__name__: kind for kind in (SubjectArchive, AccountArchive, SubmittedJob)}
    return "\n".join(classes("Settings", about, "settings", found))


def results() -> str:
    """What every job gives back, and every command that is no job, from its class."""
    from cli.check import CheckResult
    from cli.explanations import Explanations
    from cli.init import Initialized
    from cli.map import MapResult
    from jobs.live_trace import LiveTrace
    from jobs.registry import JOBS
    from nats_transform.streams.trace import Trace

    about = (
        "With `--json`, a command prints one document on stdout and nothing else there; `map` "
        "prints one for each subject. `python -m jobs` prints the same document for its jobs."
    )
    found: dict[str, Any] = {"check": CheckResult, "explain": Explanations}
    found |= {"init": Initialized, "map": MapResult, "trace": Trace}
    found["trace-live"] = LiveTrace
    for name, job in JOBS.items():
        named = job.function.__annotations__["return"]
        result = eval(named, job.function.__globals__)  # noqa: S307 - an annotation of ours
        one, *others = get_args(result) if isinstance(result, UnionType) else (result,)
        found |= {name: one, **{other.__name__: other for other in others}}
    return "\n".join(classes("JSON documents", about, "result", found))


def classes(title: str, about: str, kind: str, found: dict[str, Any]) -> list[str]:
    """A page with a section for each class; a JSON schema of each is a file beside it."""
    from pydantic import TypeAdapter

    mode: Any = "serialization" if kind == "result" else "validation"
    lines = [f"# {title}", "", about, ""]
    shared: dict[str, dict[str, Any]] = {}
    for name, one in found.items():
        schema = TypeAdapter(one).json_schema(mode=mode)
        for other, meant in schema.get("$defs", {}).items():
            if shared.get(other, meant) != meant:  # two classes have one name
                text = json.dumps(schema).replace(f'/{other}"', f'/{name}-{other}"')
                schema = json.loads(text.replace(f'"{other}": {{', f'"{name}-{other}": {{'))
        file = f"schemas/{name}-{kind}.json"
        (PAGES / "reference" / file).write_text(json.dumps(schema, indent=2), encoding="utf-8")
        shown = fields(schema, kind)
        lines += [f"## {name}", "", *shown, f"[JSON schema]({file})", ""]
        shared |= schema.get("$defs", {})
    for name, schema in sorted(shared.items()):
        lines += [f"## {name}", "", *fields(schema, kind)]
    return lines


def tables() -> str:
    """The columns of every table, from its spec, and the metrics."""
    from jobs.census import CENSUS
    from jobs.dry_run.simulate import SIMULATED
    from jobs.warehouse.specs import MESSAGES, QUARANTINED, TRANSFORMED, WEIGHT_AUDIT
    from jobs.warehouse.versions import MAPPING_VERSIONS

    lines = ["# Tables and metrics", ""]
    lines += ["The Iceberg tables in the namespace `nats`. Every table has these texts, too.", ""]
    for spec in (
        *(MESSAGES, TRANSFORMED, QUARANTINED),
        *(CENSUS, WEIGHT_AUDIT, MAPPING_VERSIONS, SIMULATED),
    ):
        partitions = " and ".join(f"`{column}`" for column in spec.partitions)
        lines += [f"## {spec.name}", ""]
        lines += [f"Partitioned by {partitions}." if partitions else "Not partitioned.", ""]
        rows = [
            (f"`{column.name}`", type_of(str(column.field_type)), column.doc or "")
            for column in spec.schema.fields
        ]
        lines += table(("column", "type", "meaning"), rows)
    lines += ["## Metrics", "", "What `python -m orchestration.metrics` serves for Prometheus.", ""]
    return "\n".join([*lines, *metrics()])


def type_of(iceberg: str) -> str:
    """The type of a column as people call it."""
    nested = ", ".join(
        f"`{name}` {kind}" for name, kind in re.findall(r"(\w+): optional (\w+)", iceberg)
    )
    if nested:
        return f"list of ({nested})"
    return iceberg.replace("timestamptz", "timestamp, UTC, microseconds")


def metrics() -> list[str]:
    """The metrics that `orchestration.metrics` serves, from the collector itself."""
    import dagster as dg

    from orchestration.metrics import Runs

    with dg.DagsterInstance.ephemeral() as instance:
        found = list(Runs(instance).collect())
    rows = [(f"`{one.name}`", ", ".join(one._labelnames), one.documentation) for one in found]
    return table(("metric", "labels", "meaning"), rows)


def fields(schema: dict[str, Any], use: str) -> list[str]:
    """What a class is, and a table of its fields."""
    if "additionalProperties" in schema and "properties" not in schema:
        return [f"An object: for each name, {kind(schema['additionalProperties'])}.", ""]
    about, meanings = description(schema.get("description", ""))
    if "enum" in schema:
        return [about, "", ", ".join(f"`{value}`" for value in schema["enum"]) + ".", ""]
    rows: list[tuple[str, ...]] = [("field", "type", "default", "meaning")]
    for field, one in schema.get("properties", {}).items():
        default = one.get("default")
        shown = "" if default is None or isinstance(default, dict) else f"`{json.dumps(default)}`"
        if field in schema.get("required", ()):
            shown = "needed"
        meaning = one.get("description") or meanings.get(field) or about_part(schema, one)
        rows.append((f"`{field}`", kind(one), shown, " ".join(meaning.split())))
    if use == "result":  # it always has all of them
        rows = [(*row[:2], row[3]) for row in rows]
    return [about, "", *table(rows[0], rows[1:])]


def about_part(schema: dict[str, Any], field: dict[str, Any]) -> str:
    """What a part of settings is, if a field is one: what its class says of itself."""
    named = [one["$ref"] for one in (field, *field.get("anyOf", ())) if "$ref" in one]
    part = schema.get("$defs", {}).get(named[0].rpartition("/")[2], {}) if named else {}
    return description(part.get("description", ""))[0]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """A table in Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return [
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines),
        "",
    ]


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
        return ", ".join(f"`{str(value).lower()}`" for value in schema["enum"])
    return str(schema.get("format", schema.get("type", schema.get("const", "any"))))


def findings() -> str:
    """Every code with what `nats-transform explain` says of it, under an anchor of its own."""
    from cli.explanations import explanations

    lines = ["# Findings", ""]
    lines += ["The codes that commands print, with what `nats-transform explain CODE` says.", ""]
    for command, codes in groupby(explanations(), attrgetter("command")):
        lines += [f"## {command}", ""]
        for one in codes:
            lines += [f"### {one.code} {{#{one.page.rpartition('#')[2]}}}", ""]
            lines += [
                f"*{one.severity}*: {inline(one.about)}.",
                "",
                f"Cure: {inline(one.cure)}.",
                "",
            ]
            lines += [f"Reported in <{one.link}>.", ""] if one.link else []
            for title, example in (("With the finding:", one.has), ("Without it:", one.lacks)):
                lines += [title, "", "```text", *example.lines(), "```", ""]
    return "\n".join(lines)


def inline(text: str) -> str:
    """A line of ours on a page, where a wildcard is no emphasis."""
    return re.sub(r"(`[^`]*`)|([*<>_])", lambda one: one[1] or f"\\{one[2]}", text)


def library() -> str:
    """A directive for every public name; the site's builder reads the docstrings."""
    lines = ["# Python library", ""]
    for module in LIBRARY:
        found = import_module(module)
        lines += [f"## {module}", "", (found.__doc__ or "").strip(), ""]
        for name in found.__all__:
            lines += [f"::: {module}.{name}", "    options:", "      heading_level: 3", ""]
    return "\n".join(lines)


REFERENCE = {
    "commands": commands,
    "findings": findings,
    "json": results,
    "library": library,
    "settings": settings,
    "tables": tables,
}
"""The pages that are made from the code, by their names below `reference/`."""


if __name__ == "__main__":
    main()
