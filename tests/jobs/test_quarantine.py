"""Rows in quarantine: whatever stops the two commits, each message ends in one of both tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import ConcurrentWrite
from jobs.settings.warehouse import Warehouse
from jobs.transform import TransformResult
from jobs.warehouse import staging
from jobs.warehouse.specs import QUARANTINED, TRANSFORMED
from jobs.warehouse.tables import find_table, open_table
from tests.support.archive import sequences
from tests.support.jobs import Sift, dumped, ingested, sifting, transformed, verified
from tests.support.killing import MAPPING
from tests.support.meanwhile import just_before
from tests.support.programs import in_python
from tests.support.refused import refused

EVERY = list(range(1, 401))


# Every fifth message, and every second one.
sift = sifting("fifths: by number", lambda seq: seq % 5 == 0)
sift_more = sifting("evens: by number", lambda seq: seq % 2 == 0)
CHILD = """
import os, signal, sys
from pathlib import Path
from jobs.warehouse import staging
from tests.jobs.test_quarantine import run, sift_more

publish, (folder, moment) = staging.publish, sys.argv[1:]

def killed(table, *given, **more):
    name = table.name()[-1]
    if moment == f"before {name}":
        os.kill(os.getpid(), signal.SIGKILL)
    publish(table, *given, **more)
    if moment == f"after {name}":
        os.kill(os.getpid(), signal.SIGKILL)

staging.publish = killed
run(Path(folder), sift_more)
"""


def run(folder: Path, sift: Sift | None) -> TransformResult:
    """Transforms the archive in a folder."""
    warehouse = Warehouse(dir=folder / "warehouse")
    return transformed(warehouse, folder / "mapping.conf", sift=sift, tolerance=20)


def in_tables(folder: Path) -> tuple[list[int], list[int]]:
    """The sequences in the table and in quarantine."""
    warehouse = Warehouse(dir=folder / "warehouse")
    tables = [find_table(warehouse, spec) for spec in (TRANSFORMED, QUARANTINED)]
    kept, apart = ([] if table is None else sequences(table) for table in tables)
    return kept, apart


def holds(folder: Path) -> bool:
    return verified(Warehouse(dir=folder / "warehouse"), tolerance=20).holds


def archive(folder: Path, days: dict[int, str]) -> None:
    """A warehouse with a message of each sequence, on its day, and a mapping."""
    rows = (
        {"seq": seq, "ts": f"{day}T10:00:00Z", "subject": f"S.n.{seq % 7}"}
        for seq, day in days.items()
    )
    (folder / "mapping.conf").write_text(MAPPING)
    ingested(Warehouse(dir=folder / "warehouse"), dumped(folder / "dump.jsonl", rows))


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with messages of two days, and a transform that put a fifth into quarantine."""
    folder = tmp_path_factory.mktemp("archived")
    archive(folder, {seq: f"2026-03-0{1 + seq // 201}" for seq in EVERY})
    run(folder, sift)
    kept, apart = in_tables(folder)
    assert apart == EVERY[4::5]
    assert sorted([*kept, *apart]) == EVERY
    return folder


@pytest.fixture
def folder(archived: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(archived, tmp_path / "copy"))


OLD = (sorted({*EVERY} - {*EVERY[4::5]}), EVERY[4::5])
NEW = (EVERY[0::2], EVERY[1::2])


@pytest.mark.parametrize(
    ("moment", "left"),
    [
        pytest.param("before quarantined_messages", OLD, marks=pytest.mark.slow),
        # The table is a commit behind: some messages are in both tables, and some in neither.
        ("after quarantined_messages", (OLD[0], NEW[1])),
        pytest.param("before transformed_messages", (OLD[0], NEW[1]), marks=pytest.mark.slow),
        pytest.param("after transformed_messages", NEW, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("again", [sift_more, pytest.param(None, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_between_the_two_commits(
    folder: Path, moment: str, left: tuple[list[int], list[int]], again: Sift | None
) -> None:
    assert in_python(CHILD, folder, moment).returncode == -9
    assert in_tables(folder) == left
    assert holds(folder) == (left in (OLD, NEW))  # people are told
    run(folder, again)
    assert in_tables(folder) == (NEW if again else (EVERY, []))
    assert holds(folder)


def transform_all(folder: Path) -> None:
    """Another job transforms without a quarantine; of that table it changes nothing."""
    run(folder, None)


def remove_all(folder: Path) -> None:
    """Another job removes the transformed rows."""
    table = open_table(Warehouse(dir=folder / "warehouse"), TRANSFORMED)
    staging.publish(table, staging.Staged("", ()), "S", replace=True, properties={})


@pytest.mark.parametrize(
    ("first", "other", "left"),
    [(None, transform_all, (EVERY, [])), (sift, remove_all, ([], OLD[1]))],
)
def test_a_quarantine_is_taken_back_if_the_table_changed_meanwhile(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: Sift | None,
    other: Callable[[Path], None],
    left: tuple[list[int], list[int]],
) -> None:
    run(folder, first)
    just_before(monkeypatch, "jobs.warehouse.staging.publish", lambda *_: other(folder))
    with pytest.raises(ConcurrentWrite):
        run(folder, sift_more)
    assert in_tables(folder) == left
    run(folder, sift_more)
    assert in_tables(folder) == NEW
    assert holds(folder)


def test_a_quarantine_that_cannot_be_taken_back_stays_readable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other jobs keep changing both tables: the new rows in quarantine keep their files."""
    publish, names = staging.publish, []

    def overtaken(table: Any, *given: Any, **more: Any) -> int:
        names.append(table.name()[-1])
        if len(names) == 2:
            raise ConcurrentWrite("refused", reason="another job changed it")
        if len(names) == 3:
            monkeypatch.setattr(staging, "attempts", busy)
        return publish(table, *given, **more)

    def busy(name: str) -> Iterator[int]:
        raise ConcurrentWrite("refused", reason="other jobs kept changing it")
        yield

    monkeypatch.setattr(staging, "publish", overtaken)
    with refused(ConcurrentWrite, "refused"):
        run(folder, sift_more)
    assert names == ["quarantined_messages", "transformed_messages", "quarantined_messages"]
    monkeypatch.undo()
    assert in_tables(folder) == (OLD[0], NEW[1])
    run(folder, sift_more)
    assert in_tables(folder) == NEW


ALL = """
import sys
from pathlib import Path
from expectations.great import suite_of
from expectations.quarantine import Sieve
from tests.jobs.test_quarantine import run

entry = {
    "type": "expect_column_values_to_match_regex",
    "kwargs": {"column": "subject", "regex": "^nothing is so$"},
}
result = run(Path(sys.argv[1]), Sieve([suite_of("none", [entry])]))
status = Path("/proc/self/status").read_text()
(peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
print(result.messages, *result.quarantined.items(), peak)
"""


@pytest.mark.slow
def test_a_day_that_is_all_in_quarantine(tmp_path: Path) -> None:
    """Four times as many messages take as much memory, and none is lost or published."""
    peaks = []
    for count in (50_000, 200_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        archive(folder, dict.fromkeys(range(1, count + 1), "2026-03-01"))
        child = in_python(ALL, folder)
        assert child.returncode == 0, child.stderr
        reason = "none: expect_column_values_to_match_regex"
        *found, peak = child.stdout.rsplit(maxsplit=1)
        assert found == [f"0 {(reason, count)}"]
        peaks.append(int(peak))
        assert in_tables(folder) == ([], [*range(1, count + 1)])
        assert holds(folder)
    assert peaks[1] - peaks[0] < 150_000, peaks  # KiB
