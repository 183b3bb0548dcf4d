"""The gate before a table: staged rows are measured and judged, and only then published.

Every door leads through it: the command, `python -m jobs` and the assets of Dagster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, computed_field
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from expectations.expectation import ExpectationResult, Report, Suite, report_on
from jobs.errors import ConcurrentWrite
from jobs.files.read import MANY_ROWS
from jobs.files.scan import Scan
from jobs.files.transform import WORDS
from jobs.session import Spark
from jobs.warehouse import staging
from jobs.warehouse.specs import TableSpec
from jobs.warehouse.staging import Staged
from jobs.warehouse.tables import data_files, stream_and_day, warehouse_errors

Also = Callable[[Spark, Table, Sequence[DataFile]], Iterable[ExpectationResult]]
_OF_CHECK = ("name", "topic", "expects", "success", "blocks", "observed", "examples")
NOT_RUN = "not run"
"""What the properties of a snapshot say if nobody looked at its rows."""


@dataclass(frozen=True)
class Check:
    """What must hold of the rows of a table.

    Attributes:
        also: gives results of expectations that users add; None if they add none.
    """

    spec: TableSpec
    suite: Suite
    also: Also | None = None

    def of(self, spark: Spark, table: Table, files: Sequence[DataFile]) -> Report:
        """The report on the rows of some files, each of which is read once.

        Raises:
            WarehouseError: a file cannot be read.
            ChecksBroken: an expectation could not be checked.
        """
        words = WORDS | {"stream", "cluster"}
        scan = Scan.of(table, self.spec, files, words=words, most=MANY_ROWS)
        what = f"checking {self.spec.name}"
        report = report_on(
            scan.sum(spark, self.suite.measure, what), self.suite, manifest(table, files)
        )
        if self.also is None:
            return report
        return replace(report, results=(*report.results, *self.also(spark, table, files)))


def manifest(table: Table, files: Sequence[DataFile]) -> list[dict[str, Any]]:
    """A row for each file, for people and Great Expectations."""
    key = stream_and_day(table)
    return [
        {
            **dict(zip(("stream", "day"), key(file), strict=True)),
            "file_path": file.file_path,
            "record_count": file.record_count,
        }
        for file in files
    ]


class Passage(NamedTuple):
    """What became of staged rows at the gate.

    Attributes:
        report: what the checks found; None if they were not run.
        snapshot_id: the snapshot with the rows; None if they were refused, or if there are none.
        refused: why the rows are not part of the table, and where they are; None if they are.
    """

    report: Report | None
    snapshot_id: int | None
    refused: str | None


class Reported(BaseModel):
    """A result with what the checks found.

    Attributes:
        report: what the checks found; None if they were not run.
    """

    model_config = ConfigDict(frozen=True)

    report: Annotated[Any, Field(exclude=True, repr=False)] = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def checks(self) -> dict[str, Any]:
        """What the checks found: whether they ran, whether all hold, and each of them."""
        if self.report is None:
            return {"ran": False, "hold": None, "results": []}
        results = [
            {name: getattr(result, name) for name in _OF_CHECK} for result in self.report.results
        ]
        return {"ran": True, "hold": self.report.success, "results": results}


class GatedResult(Reported):
    """The result of a job whose rows go through the gate."""

    stream: str = Field(description="the name of the stream in the table.")
    engine: str = Field(description="what did the work: `process` (this process) or `spark`.")
    snapshot_id: int | None = Field(
        default=None, description="the snapshot of the table with the rows; null if there is none."
    )
    refused: str | None = Field(
        default=None,
        description="why rows are not in the table, and where they are; null if all are.",
    )


def publish(
    spark: Spark,
    table: Table,
    staged: Staged,
    stream: str,
    days: Sequence[date] | None = None,
    *,
    check: Check | None,
    replace: bool,
    properties: Mapping[str, str],
    table_properties: Mapping[str, str] | None = None,
    source: tuple[Table, Sequence[DataFile]] | None = None,
    before: Callable[[], Callable[[], object]] | None = None,
) -> Passage:
    """Judges staged rows, and makes them part of their table if nothing speaks against it.

    Rows that are refused stay where they were staged, for people to look at. Later, `maintain`
    deletes them.

    Args:
        table, staged, stream, days, replace, properties, table_properties: as
            `jobs.warehouse.staging.publish` takes them.
        check: what must hold of the rows; None publishes them unseen, as their properties then say.
            The digest among the properties is that of the rows as they are read back here.
        source: the table and the files that the rows were made of.
        before: publishes something else just before the rows, and gives what takes it back if
            someone else published theirs meanwhile.

    Raises:
        ConcurrentWrite: someone changed files of this stream and these days since, or removed some
            of those that the rows were made of.
        WarehouseError: a file cannot be read, or the catalog not be reached or written.
        ChecksBroken: an expectation could not be checked; nothing was published.
    """
    report = None if check is None else check.of(spark, table, staged.data_files)
    if report is not None and report.blocks:
        why = (
            f"a check refused rows of {'.'.join(table.name())} for stream {stream}: {report}; "
            f"nothing was published, the files are in {staged.folder}"
        )
        return Passage(report, None, why)
    changes = staged.data_files or table_properties
    is_done = not changes and not (replace and data_files(table, stream, days))

    def is_outdated() -> bool:
        """Whether files that the rows were made of are no longer those of their table."""
        if source is None:
            return False
        origin, files = source
        with warehouse_errors(origin.location()):
            now = data_files(origin.catalog.load_table(origin.name()), stream, days)
        return not {file.file_path for file in files} <= {file.file_path for file in now}

    if not is_done and source is not None and is_outdated():
        staging.drop(staged, table)
        raise ConcurrentWrite(
            "rows-removed-meanwhile", table=".".join(source[0].name()), stream=stream
        )
    take_back = before() if before is not None else None
    if is_done:
        staging.drop(staged, table)  # there are no rows, and none to replace
        return Passage(report, None, None)
    checks = {"checks": NOT_RUN}
    if report is not None:
        checks = {"checks": str(report), "digest": str(report.measures.digest)}
    try:
        snapshot_id = staging.publish(
            table,
            staged,
            stream,
            days,
            replace=replace,
            properties={**properties, **checks},
            table_properties=table_properties,
            is_outdated=is_outdated,
        )
    except ConcurrentWrite:
        if take_back is not None:
            take_back()
        raise
    return Passage(report, snapshot_id, None)
