"""Data Docs: a page for each run of a suite, and an index of them, as files that need no network.

A checkpoint of Great Expectations runs the suite and keeps its results. Its own pages load styles,
scripts and pictures from five hosts and show next to nothing without them; ours carry a style sheet
and no script.
"""

from __future__ import annotations

import json
import os
import re
import uuid
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any, Literal

import great_expectations as gx
import pandas as pd
from great_expectations.checkpoint import ActionContext, CheckpointResult, ValidationAction
from great_expectations.compatibility.pydantic import PrivateAttr
from great_expectations.core import ExpectationValidationResult
from great_expectations.render.renderer.inline_renderer import InlineRenderer
from jinja2 import Environment, PackageLoader, StrictUndefined

from expectations.batches import aggregates
from expectations.expectation import ExpectationResult, Report, plain
from expectations.great import MEASURED, fault_of, great_suite, new_context
from expectations.measures import EXAMPLES
from nats_transform.untrusted import visible

LISTED = 100
"""Runs that the index lists, the latest; the pages of older ones stay."""

_PAGES = Environment(
    loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined,
    finalize=lambda value: visible(value) if type(value) is str else value,
)  # fmt: skip


def keep(
    report: Report,
    folder: Path,
    *,
    name: str,
    actions: Sequence[ValidationAction] = (),
    warn: Callable[[str], object] = warnings.warn,
) -> Path:
    """Runs a checkpoint over the suite of a report, whose measures are not taken again.

    Returns:
        its page in Data Docs.
    """
    suite, results = report.suite, report.results[: len(report.suite.expectations)]
    token, frame = MEASURED.set(report.measures), aggregates(report)
    try:
        return run_checkpoint(great_suite(suite), frame, folder, name, actions, warn, results)[1]
    finally:
        MEASURED.reset(token)


def run_checkpoint(
    suite: gx.ExpectationSuite,
    frame: Any,
    folder: Path,
    name: str,
    actions: Sequence[ValidationAction] = (),
    warn: Callable[[str], object] = warnings.warn,
    results: tuple[ExpectationResult, ...] = (),
) -> tuple[tuple[ExpectationResult, ...], Path]:
    """Runs a suite over a pandas or Spark DataFrame, and gives its results and their page.

    Args:
        suite, frame: what must hold of what.
        folder: where `results` (JSON, as Great Expectations writes them) and `data_docs` (HTML;
            open `data_docs/index.html`) of all runs are kept. Nothing else is written.
        name: what the rows are, for people: a stream and its days.
        actions: what else happens, such as a message to Slack.
        warn: is told if an action fails; the checks stand.
        results: those of the gate, which the page shows; else those of the checkpoint.
    """
    context = new_context(folder.absolute() / "results")
    sources = context.data_sources
    add = sources.add_pandas if isinstance(frame, pd.DataFrame) else sources.add_spark
    data = add("rows").add_dataframe_asset(suite.name).add_batch_definition_whole_dataframe(name)
    definition = gx.ValidationDefinition(
        name=suite.name, data=data, suite=context.suites.add(suite)
    )
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(
            name=suite.name,
            validation_definitions=[context.validation_definitions.add(definition)],
            actions=[WritePage(name="page"), *actions],
        )
    )
    write: Any = checkpoint.actions[0]
    write._folder, write._results = folder.absolute(), results
    # The name becomes the name of a folder.
    run = gx.RunIdentifier(run_name=re.sub(r"[^\w .-]", "_", name), run_time=datetime.now(UTC))
    try:
        checkpoint.run(batch_parameters={"dataframe": frame}, run_id=run)
    except Exception as error:
        if write._page is None:
            raise
        # Its text may have the address of a webhook, which is a secret.
        why = type(error).__name__
        warn(f"an action after the checks failed with {why}; see {write._page}")
    return write._results, write._page


class WritePage(ValidationAction):
    """Writes the page of a checkpoint's run and the index of all runs: its first action."""

    type: Literal["nats_page"] = "nats_page"

    _folder: Path = PrivateAttr()
    _results: tuple[ExpectationResult, ...] = PrivateAttr(())
    _page: Path | None = PrivateAttr(None)

    def run(
        self, checkpoint_result: CheckpointResult, action_context: ActionContext | None = None
    ) -> dict[str, str]:
        """Writes them, and says where the page is."""
        run: Any
        ((run, validation),) = checkpoint_result.run_results.items()
        self._results = self._results or tuple(
            _of_user(result, validation.suite_name) for result in validation.results
        )
        pages = self._folder / "data_docs"
        page = pages.joinpath(*run.to_tuple()).with_suffix(".html")
        _write(
            page,
            title=f"{validation.suite_name}: {run.run_id.run_name}",
            time=f"{run.run_id.run_time:%Y-%m-%d %H:%M:%S}",
            results=sorted(self._results, key=lambda result: result.success),
            failed=sum(not result.success for result in self._results),
            home=os.path.relpath(pages / "index.html", page.parent),
        )
        write_index(self._folder)
        self._page = page
        return {"page": str(page)}


def _of_user(validation: ExpectationValidationResult, suite: str) -> ExpectationResult:
    """A result of Great Expectations as the gate has them; the topic is the name of the suite."""
    config: Any = validation.expectation_config
    result = validation.result
    observed, broken = result.get("observed_value", ""), result.get("unexpected_count")
    if broken is not None:
        observed = f"{broken:,} of {result['element_count']:,} rows break it"
    column = str(config.kwargs.get("column", "value"))
    some = (result.get("partial_unexpected_list") or ())[:EXAMPLES]
    return ExpectationResult(
        bool(validation.success),
        fault_of(validation) or visible(str(observed)),
        [{column: plain(value)} for value in some],
        name=config.type,
        topic=suite,
        expects=visible(config.description or _sentence(config)),
        blocks=config.severity.value == "critical",
    )


def _sentence(config: Any) -> str:
    """An expectation in the words of Great Expectations."""
    value: Any = InlineRenderer(render_object=config).get_rendered_content()[0].value
    parameters = {name: parameter["value"] for name, parameter in value.params.items()}
    return Template(value.template).safe_substitute(parameters)


def write_index(folder: Path) -> None:
    """Writes the index of the latest runs; those whose results are damaged are left out."""
    results = folder / "results"
    files = sorted(results.glob("*/*/*/*.json"), key=lambda file: file.parent.name, reverse=True)
    runs = [run for file in files[:LISTED] if (run := summary(file, results)) is not None]
    _write(folder / "data_docs" / "index.html", runs=runs, left_out=len(files[LISTED:]))


def summary(file: Path, results: Path) -> dict[str, Any] | None:
    """A run for the index; None if its file is damaged, or another run is just writing it."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        statistics, run = document["statistics"], document["meta"]["run_id"]
        return {
            "suite": str(document["suite_name"]),
            "name": str(run["run_name"]),
            "time": run["run_time"][:19].replace("T", " "),
            "success": document["success"] is True,
            "failed": int(statistics["unsuccessful_expectations"]),
            "expectations": int(statistics["evaluated_expectations"]),
            "page": file.relative_to(results).with_suffix(".html").as_posix(),
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _write(file: Path, **content: Any) -> None:
    """Writes a page at once: someone may be reading it, or another run writing it."""
    template = "index.html" if file.name == "index.html" else "page.html"
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{uuid.uuid4().hex}.tmp")
    temporary.write_text(_PAGES.get_template(template).render(content), encoding="utf-8")
    temporary.replace(file)
