"""The definitions under `defs/`, where an archive that cannot be loaded does not stop the others.

Dagster loads a code location whole or not at all: one line of bad YAML would take every archive out
of the UI, and its schedules with it. So if the whole does not load, each folder and each module is
loaded alone, and the one that fails is shown as an asset that says why.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import dagster as dg
import yaml
from dagster import load_definitions_from_module as load_module
from dagster.components.definitions import LazyDefinitions
from pydantic import ValidationError

from jobs.errors import text_of
from nats_transform.errors import did_you_mean
from nats_transform.untrusted import visible
from orchestration.component_files import check_file
from orchestration.components import SubjectArchive
from orchestration.settings import plain_name

STRICT = "NATS_TRANSFORM_STRICT"
"""The environment variable with which nothing loads unless everything does: for CI."""

YAML = "defs.yaml"


def load_archives(path: Path) -> dg.Definitions:
    """All definitions of the project around a path.

    Raises:
        Exception: as Dagster raises it, if no folder by itself is at fault (two archives have one
            name, say), or `NATS_TRANSFORM_STRICT` is set.
    """
    tree = dg.ComponentTree.for_project(path)
    with warnings.catch_warnings():
        # That parts of Dagster may still change is for us to know, not for who runs it.
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        files = sorted(tree.defs_module_path.rglob(YAML))
        try:
            for file in files:
                check_file(file)
            return tree.build_defs()
        except Exception:
            if os.environ.get(STRICT):
                raise
            parts = [*_parts(tree, tree.defs_module_path)]
            if not any(broken for _, broken in parts):
                raise
            return dg.Definitions.merge(*(defs for defs, _ in parts))


_Part = tuple[dg.Definitions, bool]
"""The definitions of a file or a folder, and whether they stand in for what does not load."""


def _parts(tree: dg.ComponentTree, folder: Path) -> Iterator[_Part]:
    """What is in a folder: each module and folder alone, and only what fails in smaller parts."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "__")):
            continue
        if path.suffix == ".py" or any(path.rglob(YAML)) or any(path.rglob("*.py")):
            yield from _part(tree, path)


def _part(tree: dg.ComponentTree, path: Path) -> Iterator[_Part]:
    place = path.relative_to(tree.defs_module_path)
    place = place.with_suffix("") if path.is_file() else place
    files = sorted(path.rglob(YAML))
    try:
        for file in files:
            check_file(file)
        module = importlib.import_module(".".join((tree.defs_module_name, *place.parts)))
        if path.is_file():
            yield _of_module(module), False
        else:
            alone = dg.ComponentTree.from_module(module, tree.project_root)
            # Not the tree itself, because definitions with two trees cannot be merged.
            yield alone.build_defs(path), False
    except Exception as error:  # noqa: BLE001 - whatever a component raises, the others go on
        own = path / YAML if path.is_dir() else path
        inner = [] if path.is_file() or files == [own] else [*_parts(tree, path)]
        yield from inner
        if not any(broken for _, broken in inner):
            yield _stand_in(path, own, _reason(error, own)), True


def _of_module(module: ModuleType) -> dg.Definitions:
    """The definitions of a Python file."""
    given = [each for each in vars(module).values() if isinstance(each, dg.Definitions)]
    made = [each() for each in vars(module).values() if isinstance(each, LazyDefinitions)]
    return dg.Definitions.merge(*given, *made) if given or made else load_module(module)


def _stand_in(path: Path, file: Path, reason: str) -> dg.Definitions:
    dg.get_dagster_logger().error(f"{path.name} is left out: {reason}")
    name = plain_name(path.stem if path.is_file() else path.name)

    @dg.asset(
        key=[name, f"defs_{file.suffix[1:]}"],
        group_name=name,
        description=f"Could not be loaded: {reason}",
        metadata={"file": dg.MetadataValue.path(file)},
    )
    def broken() -> None:
        raise dg.Failure(description=reason, allow_retries=False)

    return dg.Definitions(assets=[broken])


def _reason(error: BaseException, file: Path) -> str:
    """What was raised first, on one line, with the file and the line in it where they are known."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = text_of(error)
    lines = str(error).strip().splitlines()
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        text = f"{file}:{mark.line + 1}:{mark.column + 1}: {error.problem}"
    elif isinstance(error, ValidationError):
        text = _misfit(error)
    elif re.match(r".+:\d+ - \S+$", text):
        # Dagster's resolvers name the place first, and put what was raised at the end.
        last = visible(lines[-1].partition(": ")[2])
        text = last if str(file) in last else f"{text}: {last}"
    return text if str(file) in text else f"{file}: {text}"


def _misfit(error: ValidationError) -> str:
    """What does not fit the schema, with line and setting; a name that is misspelled first."""
    mistake = min(error.errors(), key=lambda candidate: candidate["type"] != "extra_forbidden")
    path, _, where = ".".join(map(str, mistake["loc"])).partition(" at ")
    # The names of types stand between those of settings.
    place = ".".join(part for part in path.split(".") if re.fullmatch(r"[a-z_0-9]+", part))
    text = mistake["msg"]
    if mistake["type"] == "extra_forbidden":
        schema = SubjectArchive.model().model_json_schema()
        known = {
            n for part in (schema, *schema["$defs"].values()) for n in part.get("properties", ())
        }
        name = path.rpartition(".")[2]
        text = f"there is no such setting here{did_you_mean(name, {*known, 'attributes'})}"
    return visible(f"{where}: {place}: {text}" if where else f"{place}: {text}")
