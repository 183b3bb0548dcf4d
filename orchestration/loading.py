"""The definitions under `defs/`, where an archive that cannot be loaded does not stop the others.

Dagster loads a code location whole or not at all: one line of bad YAML would take every archive out
of the UI, and its schedules with it. So if the whole does not load, each folder is loaded alone,
and the one that fails is shown as an asset that says why.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from pathlib import Path

import dagster as dg
import yaml
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
            folders = [_folder(tree, file.parent) for file in files]
            if not any(broken for _, broken in folders):
                raise
            return dg.Definitions.merge(*(defs for defs, _ in folders))


def _folder(tree: dg.ComponentTree, folder: Path) -> tuple[dg.Definitions, bool]:
    """The definitions of one folder, and whether they stand in for what does not load."""
    module = ".".join((tree.defs_module_name, *folder.relative_to(tree.defs_module_path).parts))
    try:
        check_file(folder / YAML)
        alone = dg.ComponentTree.from_module(importlib.import_module(module), tree.project_root)
        return alone.build_defs(), False
    except Exception as error:  # noqa: BLE001 - whatever a component raises, the others go on
        return _stand_in(folder, _reason(error, folder / YAML)), True


def _stand_in(folder: Path, reason: str) -> dg.Definitions:
    dg.get_dagster_logger().error(f"{folder.name} is left out: {reason}")
    name = plain_name(folder.name)

    @dg.asset(
        key=[name, "defs_yaml"],
        group_name=name,
        description=f"Could not be loaded: {reason}",
        metadata={"file": dg.MetadataValue.path(folder / YAML)},
    )
    def defs_yaml() -> None:
        raise dg.Failure(description=reason, allow_retries=False)

    return dg.Definitions(assets=[defs_yaml])


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
