"""The parts of the product, what they import, and the picture of both in docs/architecture.md.

    python scripts/architecture.py    # writes docs/architecture.svg

`tests/test_layout.py` checks that the imports obey `FLOORS`, and that the picture is up to date.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Mapping
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("nats_transform", "jobs", "expectations", "orchestration", "cli")
# Packages that are drawn as one box. Of the others, every folder and every module in `jobs` is one.
WHOLE = ("expectations", "orchestration", "cli")

# The parts of the house from the ground up, each with what it does. A part imports only from floors
# below its own; an import within a function or for types counts too. A folder is a part, and so is
# each module of jobs.
FLOORS: list[dict[str, str]] = [
    {"nats_transform": "errors, untrusted text, words"},
    {"nats_transform.mappings": "subjects, transforms, weights"},
    {
        "nats_transform.streams": "a message through streams",
        "nats_transform.accounts": "imports, exports, leaf nodes",
    },
    {
        "nats_transform.lint": "likely mistakes",
        "nats_transform.kernel": "transforms Arrow batches",
    },
    {
        "nats_transform.config": "reads mapping files",
        "nats_transform.audit": "judges shares",
        "nats_transform.spark": "transforms DataFrames",
    },
    {
        "nats_transform.migration": "the analyses of a dry run",
        "nats_transform.backup": "reads and writes backups",
        "expectations": "checks of the tables",
        "jobs.errors": "what can go wrong",
        "jobs.progress": "how far a job is",
    },
    {
        "jobs.startup": "a quick start",
        "jobs.spark_errors": "what Spark raises",
        "nats_transform.plan": "steps of a migration",
    },
    {"jobs.settings": "every setting, once"},
    {
        "jobs.ending": "how a program ends",
        "jobs.session": "starts Spark",
        "jobs.warehouse": "the Iceberg tables",
    },
    {"jobs.scratch": "temporary folders"},
    {"jobs.jetstream": "talks to nats-server"},
    {"jobs.files": "tasks on data files"},
    {
        "jobs.sources": "streams, backups, dumps",
        "jobs.gate": "checks before publishing",
        "jobs.live_trace": "asks servers for a trace",
        "jobs.lag": "compares streams and archives",
    },
    {
        "jobs.ingest": "writes messages",
        "jobs.census": "writes subject_census",
        "jobs.transform": "writes transformed_messages",
        "jobs.verify_table": "checks published rows",
        "jobs.compare": "compares branches",
        "jobs.promote": "ends a branch",
        "jobs.erase": "erases messages",
        "jobs.replay": "sends messages to a stream",
        "jobs.maintain": "removes old files",
    },
    {"jobs.audit": "shares against weights", "jobs.dry_run": "tries a candidate mapping"},
    {"jobs.certify": "asks a private nats-server"},
    {
        "jobs.pages": "results as HTML",
        "jobs.export": "writes stream backups",
        "jobs.census_export": "writes a census as a file",
    },
    {"jobs.plan": "plans a migration"},
    {"jobs.verify": "looks for a step of a plan"},
    {"jobs.registry": "every job by name"},
    {"jobs.__main__": "python -m jobs JOB"},
    {"orchestration": "everything Dagster"},
    {"cli": "the command nats-transform"},
]
Graph = Mapping[str, frozenset[str]]


# Names that are the same in a checkout and in a wheel, for what is above the library.
FRONTS = (
    "nats_transform.__main__",
    "nats_transform.dagster",
    "nats_transform.great_expectations",
)


def modules() -> dict[str, Path]:
    """The file of each module but FRONTS; a package is the module `__init__` in its folder."""
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = file
    return {name: file for name, file in found.items() if name not in FRONTS}


def import_graph() -> Graph:
    """Which modules of ours each module imports, also in its functions and for types only.

    The packages that Python loads on the way to a module do not count.
    """
    files = modules()
    graph = {}
    for name, file in files.items():
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        source = file.read_text(encoding="utf-8")
        found = imported(source, package, files)
        graph[name] = frozenset(found & files.keys()) - {name}
    return graph


def imported(source: str, package: str, known: Mapping[str, object]) -> set[str]:
    """What a source in a package imports; `from a import b` is `a.b` where that is a module."""
    found = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= (names & known.keys()) | ({base} if names - known.keys() else set())
    return found


def parsed(source: str) -> ast.Module:
    """The syntax tree of a source."""
    # Before 3.11.5, Python fails now and then if its garbage collector interrupts (gh-106905).
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()


def part_of(module: str, folders: frozenset[str]) -> str:
    """The part of the house that a module is in, such as `jobs.warehouse` or `cli`."""
    package, _, rest = module.partition(".")
    first = f"{package}.{rest.partition('.')[0]}"
    if package in WHOLE or not rest:
        return package
    return first if package == "jobs" or first in folders else package


def parts() -> Graph:
    """Which parts of the house each part imports."""
    graph = import_graph()
    folders = frozenset(name for name, file in modules().items() if file.name == "__init__.py")
    joined: dict[str, set[str]] = {}
    for module, others in graph.items():
        if module == "nats_transform":
            continue  # its names are those of all floors, imported when they are used
        part = part_of(module, folders)
        found = joined.setdefault(part, set())
        found |= {part_of(other, folders) for other in others} - {part}
    joined.pop("jobs", None)  # an empty package
    return {part: frozenset(others) for part, others in joined.items()}


# --- The picture ----------------------------------------------------------------------------------

_WIDTH, _BOX_WIDTH, _BOX_HEIGHT, _GAP = 1110, 208, 58, 12
_COLORS = {
    "nats_transform": "#cfe3f7",
    "jobs": "#d8efd3",
    "expectations": "#fdeab8",
    "orchestration": "#e6d9f3",
    "cli": "#f9d5cf",
}


def drawing(graph: Graph) -> str:
    """The parts floor by floor, each with what it does and what it imports."""
    floors = [there for floor in FLOORS if (there := [part for part in floor if part in graph])]
    height = (_BOX_HEIGHT + _GAP) * len(floors) + _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle" fill="#111">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    about = {part: text for floor in FLOORS for part, text in floor.items()}
    for number, floor in enumerate(reversed(floors)):
        top = _GAP + number * (_BOX_HEIGHT + _GAP)
        left = (_WIDTH - len(floor) * (_BOX_WIDTH + _GAP) + _GAP) / 2
        for column, part in enumerate(floor):
            x = left + column * (_BOX_WIDTH + _GAP)
            middle = x + _BOX_WIDTH / 2
            package = part.partition(".")[0]
            others = sorted(_direct(graph, part))
            uses = ", ".join(other.rpartition(".")[2] for other in others)
            lines += [
                f'<rect x="{x:g}" y="{top}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="5" '
                f'fill="{_COLORS[package]}"/>',
                f'<text x="{middle:g}" y="{top + 17}" font-weight="bold">{part}</text>',
                f'<text x="{middle:g}" y="{top + 34}">{escape(about[part])}</text>',
                f'<text x="{middle:g}" y="{top + 50}" font-size="10" fill="#444">'
                f"{'imports ' + uses if uses else ''}</text>",
            ]
    return "\n".join([*lines, "</svg>", ""])


def _direct(graph: Graph, part: str) -> set[str]:
    """What a part imports, without what the parts that it imports import as well."""
    others = set(graph[part]) & graph.keys()
    return others - {far for other in others for far in _reached(graph, other)}


def _reached(graph: Graph, part: str) -> set[str]:
    """All that a part reaches by the imports of what it imports."""
    found: set[str] = set()
    waiting = [part]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


if __name__ == "__main__":
    (ROOT / "docs" / "architecture.svg").write_text(drawing(parts()), encoding="utf-8")
