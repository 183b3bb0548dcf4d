"""Which mapping was in force when: from moments that somebody names, or from a file's git history.

A moment of git is when the commit was made. That is not when a server loaded the file: what an
audit then finds outside around a moment may be the time that the rollout took.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from itertools import pairwise
from pathlib import Path

from jobs.audit.result import AuditError
from jobs.errors import NoTable
from jobs.scratch import scratch_folder
from jobs.settings.audit import AuditSettings
from jobs.warehouse import specs, tables
from nats_transform.audit import Period
from nats_transform.config import load_mappings, mapping_version
from nats_transform.errors import NatsTransformError

_Stage = tuple[datetime | None, Period]


def periods_of(settings: AuditSettings) -> list[Period]:
    """The mapping versions that the settings name, loaded.

    Raises:
        InvalidConfig: a mapping file.
        AuditError: the git history cannot be read, or its times fall.
    """
    mapping = settings.mapping
    assert mapping is not None  # noqa: S101 - without one there are no files to load
    if settings.in_force == "git":
        return _in_turn(_ascending(list(_from_git(settings, mapping))))
    files = [(None, mapping), *((v.since, v.mapping) for v in settings.in_force)]
    return _in_turn([(since, _loaded(settings, path)) for since, path in files])


def _loaded(settings: AuditSettings, path: Path) -> Period:
    mappings = load_mappings(path, settings.account)
    return Period(mappings, mapping_version(mappings, settings.seed))


def _in_turn(stages: Sequence[_Stage]) -> list[Period]:
    """Each version until the next one came into force."""
    ends = [since for since, _ in stages[1:]] + [None]
    return [
        Period(period.mappings, period.version, since, until)
        for (since, period), until in zip(stages, ends, strict=True)
    ]


def _ascending(stages: list[_Stage]) -> list[_Stage]:
    """The versions of git; commits keep the clocks of those who made them."""
    if not all(a < b for (a, _), (b, _) in pairwise(stages[1:]) if a and b):
        raise AuditError(
            "two commits of the mapping file aren't in the order of their times: give the moments "
            "instead (--in-force MOMENT=FILE)"
        )
    return stages


def _from_git(settings: AuditSettings, mapping: Path) -> Iterator[_Stage]:
    """The versions in the history of the mapping file; one that means the same is no new one.

    What the first commit has also held before it, as far as anybody knows. A commit of any file of
    the folder can be a version, because the mapping file may include it.
    """
    file = mapping.absolute()
    if _git(file, "rev-parse", "--is-shallow-repository").strip() == b"true":
        raise AuditError(
            f"{mapping} is in a shallow clone, whose history lacks older versions: fetch the rest "
            "(git fetch --unshallow), or give the moments (--in-force MOMENT=FILE)"
        )
    # What a merge brings came into force with it, and not when somebody wrote it on a branch.
    log = ("log", "--first-parent", "--format=%H %ct", "--", ".")
    commits = _git(file, *log).decode().split("\n")
    before: str | None = None
    for line in reversed([line for line in commits if line]):
        commit, _, seconds = line.partition(" ")
        with scratch_folder() as folder:
            # The whole folder: the file may include others.
            _unpack(_git(file, "archive", commit, "."), folder)
            there = folder / file.name
            if not there.exists():  # this commit removed it
                continue
            try:
                period = _loaded(settings, there)
            except NatsTransformError as error:
                said = str(error).replace(str(there), str(mapping))
                raise AuditError(
                    f"commit {commit[:12]}: {said}; give the moments instead (--in-force "
                    "MOMENT=FILE)"
                ) from error
        if period.version != before:
            yield None if before is None else datetime.fromtimestamp(int(seconds), UTC), period
        before = period.version
    if before is None:
        raise AuditError(
            f"git has no version of {mapping}: commit it, or give the moments (--in-force "
            "MOMENT=FILE)"
        )
    if _loaded(settings, mapping).version != before:
        raise AuditError(
            f"{mapping} has uncommitted changes, so its history can't say when they came into "
            "force: commit them, or give the moments (--in-force MOMENT=FILE)"
        )


def _unpack(archive: bytes, folder: Path) -> None:
    """Writes the files of an archive. A link becomes the file of the archive that it leads to.

    Links that lead to no such file are left out. So nothing outside the folder is read or written,
    which the filters of `tarfile` do not ensure in every Python, and the first 3.11 has none.
    """
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for entry in tar:
            path = Path(os.path.normpath(folder / entry.name))
            with contextlib.suppress(KeyError, RecursionError):  # it leads out, or to itself
                content = tar.extractfile(entry)
                if content is not None and path.is_relative_to(folder):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content.read())


# A repository may hold another one as plain files, whose settings then name programs to start.
_SAFE = ("-c", "safe.bareRepository=explicit")


def _git(file: Path, *arguments: str) -> bytes:
    """What git prints, in the folder of a file."""
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the names are arguments
            ["git", *_SAFE, "-C", str(file.parent), *arguments],  # noqa: S607 - the user's git
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise AuditError(
            f"git cannot be started ({error.strerror}): install it, or give the moments "
            "(--in-force MOMENT=FILE)"
        ) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise AuditError(
            f"git cannot read the history of {file}: {said[-1].removeprefix('fatal: ')}; give the "
            "moments instead (--in-force MOMENT=FILE)"
        )
    return done.stdout


def check_times(settings: AuditSettings, periods: Sequence[Period]) -> None:
    """Refuses times that the archive cannot answer for.

    Raises:
        AuditError: with the cure.
    """
    now = datetime.now(UTC)
    if settings.until is not None and settings.until > now:
        raise AuditError(
            f"the window ends at {_utc(settings.until)}, in the future: wait until then, or give "
            f"an end in the past (it is {_utc(now)})"
        )
    days = list[date]()
    with contextlib.suppress(NoTable):  # what counts the messages says it better
        messages = tables.open_table(settings.warehouse, specs.MESSAGES)
        days = tables.days_of(messages, settings.stream)
    if not days:
        return
    archive_begins = datetime.combine(min(days), time(), UTC)
    begins = f"before the archive of {settings.stream} begins ({archive_begins:%Y-%m-%d})"
    if settings.since is not None and settings.since < archive_begins:
        raise AuditError(
            f"the window starts at {_utc(settings.since)}, {begins}: start it later, or ingest "
            "older messages"
        )
    for period in periods[1:]:
        if period.until is not None and period.until <= archive_begins:
            raise AuditError(
                f"the mapping from {_utc(period.since)} was replaced at {_utc(period.until)}, "
                f"{begins}: leave it out, or ingest older messages"
            )


def _utc(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment else "?"
