"""What a user adds to the checks: suites on the rows of a day, and actions after checks.

The functions load Great Expectations, which takes longer than all else: not when Dagster loads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from expectations.expectation import ExpectationResult, Report
from jobs.files.frames import frame_of
from jobs.session import Spark
from nats_transform import NatsTransformError
from nats_transform.untrusted import visible
from orchestration.archive import Archive, UserSuite
from orchestration.hooks import function_named

if TYPE_CHECKING:
    from great_expectations.checkpoint.actions import ValidationAction

    from expectations.quarantine import Sieve


def _actions_of(archive: Archive) -> list[ValidationAction]:
    """The actions of an archive.

    Raises:
        NatsTransformError: an action is not known, or its arguments are wrong.
    """
    import great_expectations as gx

    actions: list[Any] = []
    for number, entry in enumerate(archive.actions):
        options = {"name": f"action {number}", **entry}
        try:
            if "class" in options:
                action = function_named(options.pop("class"), "actions")(**options)
            else:
                given: Any = [options]  # which it makes actions of
                (action,) = gx.Checkpoint(
                    name="actions", validation_definitions=[], actions=given
                ).actions
        except Exception as error:  # noqa: BLE001 - it may be the code of a user
            # The whole text may have the address of a webhook, which is a secret.
            why = visible(str(error).strip().splitlines()[-1] if str(error).strip() else "")
            raise NatsTransformError(
                "action-invalid",
                number=number,
                archive=archive.name,
                error=type(error).__name__,
                reason=why,
            ) from None
        actions.append(action)
    return actions


class UserSuites:
    """What a user adds to the checks of a table; called with data files, it gives the results.

    Make it before the table is, so that a mistake in an action or a suite costs nothing.

    Attributes:
        pages: the page of each suite in Data Docs.
    """

    def __init__(
        self,
        archive: Archive,
        table: str,
        days: Sequence[date],
        warn: Callable[[str], object],
    ) -> None:
        self.pages: dict[str, Path] = {}
        self._folder, self._warn = archive.reports_folder, warn
        self._name = f"{archive.stream} {days[0]} to {days[-1]}"
        self._actions = _actions_of(archive)
        self._suites = [
            (suite, _read(archive, suite)) for suite in archive.expectations if suite.table == table
        ]

    def __call__(
        self, spark: Spark, table: Table, files: Sequence[DataFile]
    ) -> list[ExpectationResult]:
        """Runs a checkpoint for each suite over the rows of the files."""
        from expectations.docs import run_checkpoint

        results: list[ExpectationResult] = []
        frame = frame_of(spark, table, files) if self._suites else None
        for _, suite in self._suites:
            suite_results, page = run_checkpoint(
                suite, frame, self._folder, self._name, self._actions, self._warn
            )
            self.pages[suite.name] = page
            results += suite_results
        return results

    def keep(self, report: Report) -> Path:
        """Puts a report into Data Docs, and runs the actions; gives its page."""
        from expectations.docs import keep

        return keep(report, self._folder, name=self._name, actions=self._actions, warn=self._warn)

    def sieve(self) -> Sieve | None:
        """What finds the rows for the quarantine; None if no suite asks for one.

        Raises:
            ChecksBroken: an expectation is not about single rows.
        """
        if not (suites := [suite for given, suite in self._suites if given.quarantine]):
            return None
        from expectations.quarantine import Sieve

        return Sieve(suites)


def with_quarantine(report: Report, reasons: Mapping[str, int]) -> Report:
    """The report, with a warning for each reason why rows are in quarantine."""
    warnings = [
        ExpectationResult(
            name="quarantine",
            topic=reason.partition(":")[0],
            expects="No row goes to quarantined_messages.",
            success=False,
            blocks=False,
            observed=f"{rows:,} in quarantined_messages, because of {reason.split()[-1]}",
        )
        for reason, rows in sorted(reasons.items())
    ]
    return replace(report, results=(*report.results, *warnings))


def _read(archive: Archive, given: UserSuite) -> Any:
    """The suite that the YAML names or lists.

    Raises:
        NatsTransformError: it cannot be read, or has an expectation that is not known.
    """
    import nats_transform.great_expectations  # noqa: F401 - it lets our metrics read files
    from expectations.great import suite_of

    try:
        entries: list[dict[str, Any]] = given.expectations
        if given.suite is not None:
            entries = json.loads(given.suite.read_text(encoding="utf-8"))["expectations"]
        return suite_of(given.name, entries)
    except Exception as error:  # noqa: BLE001 - Great Expectations raises what it likes
        why = visible((str(error).strip() or type(error).__name__).splitlines()[-1])
        where = f"{given.suite}" if given.suite else "its expectations"
        raise NatsTransformError(
            "suite-invalid", suite=given.name, archive=archive.name, where=where, reason=why
        ) from None
