"""The job `verify-table`: what is published, judged by the suites that let it in.

Rows of `transformed_messages` are judged under the mapping version that they name, which the
transform has recorded in the warehouse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date

from pydantic import BaseModel, computed_field
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from expectations.messages import messages_suite
from expectations.transformed import transformed_messages_suite
from jobs.errors import NoTable
from jobs.files import narrow
from jobs.files.intact import changed_files, not_looked_at
from jobs.files.scan import Scan, digested
from jobs.gate import Check, Reported
from jobs.session import Spark
from jobs.settings.transform import VerifyTableSettings
from jobs.warehouse import tables, versions
from jobs.warehouse.accounting import Archived
from jobs.warehouse.specs import MESSAGES, QUARANTINED, TRANSFORMED
from nats_transform.digest import Digest
from nats_transform.kernel.messages import NARROW
from nats_transform.mappings.unseen import Unseen


class Verified(Reported):
    """What the checks found in some days of a table.

    Attributes:
        table: the name of the table.
        days: the days that were looked at.
        messages: how many rows they have.
        mapping_version: the version that the rows name; None for rows of `messages`.
        changed_files: files that are not as they were published.
        not_looked_at: files of which nobody can say that.
    """

    table: str
    days: tuple[date, ...]
    messages: int
    mapping_version: str | None
    changed_files: tuple[str, ...]
    not_looked_at: tuple[Unseen, ...]


class VerifyTableResult(BaseModel):
    """What the checks found.

    Attributes:
        stream: the stream.
        tables: what was looked at; rows of several mapping versions are judged apart.
        erased: how many messages of these days were erased; nobody can look at them any more.
        is_erasing: whether an erasure was stopped, or works now: tables need not agree until
            `erase` ends.
        gone: days whose messages were ingested, not erased, and are in no file any more.
        not_transformed: days that `messages` has and `transformed_messages` has not: nobody
            looked at what becomes of them.
    """

    stream: str
    tables: tuple[Verified, ...]
    erased: int
    is_erasing: bool
    gone: tuple[date, ...]
    not_transformed: tuple[date, ...]

    def fails(self, level: str) -> bool:
        """Whether an expectation does not hold, one that blocks or at level `warning` any.

        A file that changed after it was published fails, too, and so does a day that is gone.
        """
        return bool(self.gone) or any(
            verified.changed_files
            or (not verified.report.success if level == "warning" else verified.report.blocks)
            for verified in self.tables
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def holds(self) -> bool:
        """Whether all that must hold holds, and no file changed."""
        return not self.fails("error")


def verify_table(spark: Spark, settings: VerifyTableSettings) -> VerifyTableResult:
    """Judge the published rows of some days.

    Raises:
        ArchiveError: the stream has no messages on these days.
        UnknownVersion: the mappings of a row are not recorded in the warehouse.
        WarehouseError: the tables cannot be read.
    """
    stream, wanted = settings.stream, settings.days
    messages = tables.open_table(settings.warehouse, MESSAGES)
    archived = Archived.of(messages, stream)
    by_day = _by_day(messages, stream, wanted)
    ingested = {day for day in archived.days if wanted is None or day in wanted}
    if not (days := sorted(by_day.keys() | ingested)):
        raise Archived.none(messages, stream)
    verified = [_look(spark, messages, messages_check(archived, days), days, by_day)]
    try:
        table = tables.open_table(settings.warehouse, TRANSFORMED)
        transformed = _by_day(table, stream, wanted)
    except NoTable:
        transformed = {}
    of_version: dict[tuple[str, bool], list[date]] = defaultdict(list)
    for day in sorted(transformed):
        version = tables.mapping_version_of(table, transformed[day][0])
        of_version[version, narrow.is_narrow(table, transformed[day])].append(day)
    for (version, is_narrow), its_days in of_version.items():
        archive = archived.narrow_of(its_days)
        if not is_narrow:
            archive = archived.digest_of(its_days) - _quarantined(spark, settings, its_days)
        elif archive is None:
            scan = Scan.of(messages, MESSAGES, _files(by_day, its_days), NARROW)
            archive = scan.sum(spark, digested, "counting messages")
        recorded = versions.find(settings.warehouse, version)
        suite = transformed_messages_suite(
            recorded.mappings,
            archive=archive,
            seed=recorded.seed,
            version=version,
            tolerance=settings.tolerance,
            confidence=settings.confidence,
        )
        check = Check(TRANSFORMED, suite)
        verified.append(_look(spark, table, check, its_days, transformed, version))
    return VerifyTableResult(
        stream=stream,
        tables=tuple(verified),
        erased=archived.erased_on(wanted),
        is_erasing=bool(archived.unfinished),
        gone=tuple(sorted(ingested - by_day.keys())),
        not_transformed=tuple(day for day in days if day not in transformed),
    )


def _look(
    spark: Spark,
    table: Table,
    check: Check,
    days: Sequence[date],
    by_day: Mapping[date, Sequence[DataFile]],
    version: str | None = None,
) -> Verified:
    """What a check finds in some days of a table, whose rows name a mapping version."""
    files = _files(by_day, days)
    return Verified(
        table=check.spec.name,
        days=tuple(days),
        messages=sum(file.record_count for file in files),
        mapping_version=version,
        changed_files=tuple(changed_files(spark, table, files)),
        not_looked_at=not_looked_at(table, files),
        report=check.of(spark, table, files),
    )


def messages_check(archived: Archived, days: Sequence[date]) -> Check:
    """What must hold of the messages of some whole days."""
    return Check(MESSAGES, messages_suite(archived.digest_of(days), archived.explained.ranges))


def _quarantined(spark: Spark, settings: VerifyTableSettings, days: Sequence[date]) -> Digest:
    """The messages of some days that are in quarantine."""
    table = tables.find_table(settings.warehouse, QUARANTINED)
    if table is None:
        return Digest()
    columns = MESSAGES.rows.names
    scan = Scan.of(table, QUARANTINED, tables.data_files(table, settings.stream, days), columns)
    return scan.sum(spark, digested, "counting the quarantine")


def _by_day(table: Table, stream: str, days: Sequence[date] | None) -> dict[date, list[DataFile]]:
    of_day = tables.by_day(table, tables.data_files(table, stream, days))
    return {day: files for (_, day), files in of_day.items()}


def _files(by_day: Mapping[date, Sequence[DataFile]], days: Sequence[date]) -> list[DataFile]:
    return [file for day in days for file in by_day.get(day, ())]
