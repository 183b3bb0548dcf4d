"""Which mapping was in force when: from moments that somebody names, or from a file's git history.

A moment of git is when the commit was made. That is not when a server loaded the file: what an
audit then finds outside around a moment may be the time that the rollout took.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from itertools import pairwise
from pathlib import Path

from jobs.audit.result import AuditError
from jobs.errors import NoTable
from jobs.settings.audit import AuditSettings
from jobs.warehouse import specs, tables
from nats_transform.audit import Period
from nats_transform.config import load_all, mapping_version
from nats_transform.config.files import Files
from nats_transform.config.load import mappings_in
from nats_transform.errors import NatsTransformError

_Find = Callable[[str, str], str | None]


def periods_of(settings: AuditSettings) -> list[Period]:
    """The mapping versions that the settings name, loaded.

    Raises:
        InvalidConfig: a mapping file.
        AuditError: the git history cannot be read, or its times fall.
    """
    mapping = settings.mapping
    assert mapping is not None  # noqa: S101 - without one there are no files to load
    if settings.in_force == "git":
        stages = list(_from_git(settings, mapping))
        # Commits keep the clocks of those who made them.
        if not all(a < b for (a, _), (b, _) in pairwise(stages[1:]) if a and b):
            raise AuditError("git-commits-out-of-order")
    else:
        files = [(None, mapping), *((v.since, v.mapping) for v in settings.in_force)]
        stages = [(since, _loaded(settings, path)) for since, path in files]
    # Each version was in force until the next one.
    ends = [since for since, _ in stages[1:]] + [None]
    return [
        replace(period, since=since, until=until)
        for (since, period), until in zip(stages, ends, strict=True)
    ]


def _loaded(settings: AuditSettings, path: Path, files: Files | None = None) -> Period:
    mappings = mappings_in(load_all(path, files), path, settings.account)
    return Period(mappings, mapping_version(mappings, settings.seed))


def _from_git(settings: AuditSettings, mapping: Path) -> Iterator[tuple[datetime | None, Period]]:
    """The versions in the history of the mapping file; one that means the same is no new one.

    What the first commit has also held before it, as far as anybody knows. A commit of a file that
    the mapping file includes can be a version too. The mapping is loaded only where one of them
    changes, because a repository may have many other files and commits.
    """
    file = mapping.absolute()
    if _git(file, "rev-parse", "--is-shallow-repository").strip() == b"true":
        raise AuditError("git-shallow", mapping=mapping)
    # What a merge brings came into force with it, and not when somebody wrote it on a branch.
    commits = _git(file, "log", "--first-parent", "--format=%H %ct").decode().split("\n")
    folder = os.fsdecode(_git(file, "rev-parse", "--show-prefix")).removesuffix("\n")
    place = folder + file.name  # as git names it
    before: str | None = None
    held: dict[str, str | None] = {place: None}
    with _blobs(file) as find:
        for line in reversed([line for line in commits if line]):
            commit, _, seconds = line.partition(" ")
            blobs = {path: find(commit, path) for path in held}
            if blobs == held or blobs[place] is None:  # this commit removed it
                continue
            files = _Committed(file, commit, find)
            try:
                period = _loaded(settings, Path(place), files)
            except NatsTransformError as error:
                raise AuditError("git-commit-invalid", commit=commit[:12], reason=error) from error
            held = files.held
            if period.version != before:
                yield None if before is None else datetime.fromtimestamp(int(seconds), UTC), period
            before = period.version
    if before is None:
        raise AuditError("git-no-version", mapping=mapping)
    if _loaded(settings, mapping).version != before:
        raise AuditError("git-uncommitted", mapping=mapping)


class _Committed(Files):
    """Reads files as a commit has them; their paths are those in the repository.

    Attributes:
        held: the blobs of all files that were asked for.
    """

    def __init__(self, file: Path, commit: str, find: _Find) -> None:
        super().__init__()
        self._file, self._commit, self._find = file, commit, find
        self.held: dict[str, str | None] = {}

    def head(self, path: str, size: int) -> bytes | None:
        """The first bytes of a file, as git checks it out: it may keep files encrypted."""
        self.held[path] = blob = self._find(self._commit, path)
        if blob is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return _git(self._file, "cat-file", "--filters", f"--path={path}", blob)[:size]


@contextlib.contextmanager
def _blobs(file: Path) -> Iterator[_Find]:
    """Finds the blob that a path leads to in a commit; one process of git answers for all commits.

    It follows links that stay in the repository, so nothing outside is read.
    """
    format = "--batch-check=%(objecttype) %(objectname)"
    command = _command(file, "cat-file", format, "--follow-symlinks")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as git:  # noqa: S603 - as below
        questions, answers = git.stdin, git.stdout
        assert questions is not None  # noqa: S101 - it is a pipe
        assert answers is not None  # noqa: S101 - as above

        def find(commit: str, path: str) -> str | None:
            if path.startswith("../") or "\n" in path or "\0" in path:  # would end or confuse git
                return None
            questions.write(os.fsencode(f"{commit}:{path}\n"))
            questions.flush()
            answer = answers.readline()
            if not answer:
                raise AuditError("git-stopped", file=file)
            kind, _, rest = answer.rstrip(b"\n").partition(b" ")
            if kind in (b"symlink", b"dangling", b"loop", b"notdir"):
                answers.read(int(rest) + 1)  # where the link leads to
            return rest.decode() if kind == b"blob" else None

        yield find


# A repository may hold another one as plain files, whose settings then name programs to start.
_SAFE = ("-c", "safe.bareRepository=explicit")


def _command(file: Path, *arguments: str) -> list[str]:
    return ["git", *_SAFE, "-C", str(file.parent), *arguments]


def _git(file: Path, *arguments: str) -> bytes:
    """What git prints, in the folder of a file."""
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the names are arguments
            _command(file, *arguments),
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise AuditError("git-not-started", reason=error.strerror) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise AuditError("git-unreadable", file=file, reason=said[-1].removeprefix("fatal: "))
    return done.stdout


def check_times(settings: AuditSettings, periods: Sequence[Period]) -> None:
    """Refuses times that the archive cannot answer for.

    Raises:
        AuditError: with the cure.
    """
    now = datetime.now(UTC)
    if settings.until is not None and settings.until > now:
        raise AuditError("window-in-future", until=_utc(settings.until), now=_utc(now))
    days = list[date]()
    with contextlib.suppress(NoTable):  # what counts the messages says it better
        messages = tables.open_table(settings.warehouse, specs.MESSAGES)
        days = tables.days_of(messages, settings.stream)
    if not days:
        return
    archive_begins = datetime.combine(min(days), time(), UTC)
    begins = f"before the archive of {settings.stream} begins ({archive_begins:%Y-%m-%d})"
    if settings.since is not None and settings.since < archive_begins:
        raise AuditError("window-too-early", since=_utc(settings.since), begins=begins)
    for period in periods[1:]:
        if period.until is not None and period.until <= archive_begins:
            raise AuditError(
                "mapping-replaced-earlier",
                since=_utc(period.since),
                until=_utc(period.until),
                begins=begins,
            )


def _utc(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment else "?"
