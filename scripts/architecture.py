"""The import graph of the product, and the picture of it in docs/architecture.md.

    python scripts/architecture.py    # writes docs/architecture.svg

`tests/test_layout.py` checks the rules of the layout on the same graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("nats_transform", "jobs", "expectations", "orchestration", "cli")
# Packages that are drawn as one box. Of the others, every folder and every module in `jobs` is one.
WHOLE = ("expectations", "orchestration", "cli")

Graph = Mapping[str, frozenset[str]]


def modules() -> dict[str, Path]:
    """The file of each module; a package is the module `__init__` in its folder."""
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = file
    return found


def import_graph(in_functions: bool = True) -> Graph:
    """Which modules of ours each module imports, at its top level or also in its functions.

    An import for types only (`if TYPE_CHECKING`) does not count, nor do the packages that Python
    loads on the way to a module.
    """
    files = modules()
    graph = {}
    for name, file in files.items():
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        source = file.read_text(encoding="utf-8")
        found = imported(source, package, files, in_functions)
        graph[name] = frozenset(found & files.keys()) - {name}
    return graph


def imported(
    source: str, package: str, known: Mapping[str, object], in_functions: bool = True
) -> set[str]:
    """What a source in a package imports; `from a import b` is `a.b` where that is a module."""
    found = set()
    for node in _statements(ast.parse(source), in_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            names = {f"{base}.{alias.name}" for alias in node.names}
            found |= (names & known.keys()) | ({base} if names - known.keys() else set())
    return found


def _statements(tree: ast.AST, in_functions: bool) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads, and perhaps those of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not in_functions:
            continue
        yield node
        yield from _statements(node, in_functions)


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
        part = part_of(module, folders)
        found = joined.setdefault(part, set())
        found |= {part_of(other, folders) for other in others} - {part}
    joined.pop("jobs", None)  # an empty package
    return {part: frozenset(others) for part, others in joined.items()}


def floors(graph: Graph) -> list[list[str]]:
    """The parts, floor by floor from the ground: a part imports only from floors below its own.

    Raises:
        graphlib.CycleError: there is an import circle.
    """
    floor: dict[str, int] = {}
    for part in TopologicalSorter(graph).static_order():
        floor[part] = 1 + max((floor[other] for other in graph[part]), default=-1)
    return [
        sorted(part for part in floor if floor[part] == number)
        for number in range(1 + max(floor.values()))
    ]
