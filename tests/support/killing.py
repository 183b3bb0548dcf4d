"""Kills in the middle of a job: as soon as its tasks have written files."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse.specs import TRANSFORMED
from tests.support.archive import rows_of
from tests.support.files import written
from tests.support.jobs import dumped, ingested, transformed

COUNT, DAYS = 40_000, 8
MAPPING = """mappings {
  "*.n.*": [
    { destination: "{{partition(7,2)}}.v1.$2", weight: 60% }
    { destination: "v2.$1.{{splitfromleft(1,3)}}.$2", weight: 30% }
  ]
}
"""


@contextmanager
def killing(table: Path, kill: Callable[[], bool], times: int) -> Iterator[list[Path]]:
    """Meanwhile a new data file of a table is the sign to kill something.

    Args:
        table: the folder of the table that the job writes.
        kill: kills something; says whether there was anything to kill.
        times: how often; each kill waits for another file.

    Yields:
        The files after which something was killed, so far.
    """

    def files() -> set[Path]:
        return {*table.glob("data/**/*.parquet")}

    before, signs, is_over = files(), list[Path](), threading.Event()

    def watch() -> None:
        while len(signs) < times and not is_over.is_set():
            for file in sorted(files() - before - {*signs}):
                if len(signs) < times and kill():
                    signs.append(file)
            time.sleep(0.005)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield signs
    finally:
        is_over.set()
        watching.join()


@dataclass
class Work:
    """A transform of eight days, which is eight tasks.

    Attributes:
        folder: `transform.json` has its settings for the warehouse `far`; in the warehouse `near`
            a transform in this process has done the same.
        digest: of the transformed messages in `near`.
    """

    folder: Path
    digest: str

    @property
    def table(self) -> Path:
        """The folder of the table that it writes."""
        return self.folder / "far" / "nats" / "transformed_messages"

    def assert_made(self, result: Any) -> None:
        """Each message is there once, as the transform in this process has made it."""
        assert (result["messages"], result["digest"]) == (COUNT, self.digest)
        far, near = (
            rows_of(Warehouse(dir=self.folder / place), spec=TRANSFORMED)
            for place in ("far", "near")
        )
        assert [row.seq for row in far] == list(range(1, COUNT + 1))
        assert far == near


def work_in(folder: Path) -> Work:
    """A transform that is to be done, in an empty folder."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [
        {
            "seq": n + 1,
            "ts": (start + timedelta(days=n * DAYS // COUNT)).isoformat(),
            "subject": f"S.n.{n % 7}",
            "data": f"{n} {'x' * 100}",
        }
        for n in range(COUNT)
    ]
    mapping = written(folder / "mapping.conf", MAPPING)
    near, far = (Warehouse(dir=folder / place) for place in ("near", "far"))
    ingested(near, dumped(folder / "dump.jsonl", rows))
    shutil.copytree(folder / "near", folder / "far")
    settings = TransformSettings(stream="S", mapping=mapping, warehouse=far)
    (folder / "transform.json").write_text(settings.model_dump_json(exclude_defaults=True))
    return Work(folder, transformed(near, mapping).digest)
