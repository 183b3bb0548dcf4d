"""A stream that was ingested from a backup made byte by byte, transformed, and can be exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobs.export import ExportResult, export
from jobs.ingest import ingest
from jobs.settings.export import ExportSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.transform import TransformSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import transform
from nats_transform.backup.archive import Head
from tests.support.backups import Entry, archive, packed, read, state_of
from tests.support.jobs import HERE

MESSAGES: list[Entry] = [
    (b"a.1", 1_700_000_000_000_000_001, 11, b"", b"one"),
    (b"a.2", 1_700_000_000_000_000_002, 12, b"NATS/1.0\r\nA: 1\r\n\r\n", b""),
    (b"b.x", 1_700_000_000_000_000_003, 14, b"NATS/1.0\r\nbare:1\r\n\r\n", b"three"),
    (b"c.--", 1_700_000_000_000_000_004, 15, b"", b"four"),
    (b"d", 1_700_000_000_000_000_005, 20, b"", b"five"),
]
CONFIG = {"name": "S", "subjects": ["a.*", "b.*", "c.*", "d"], "storage": "file"}
MAPPING: dict[str, Any] = {"a.*": [{"subject": "v2.a.$1"}]}


def consumer(*filters: str, pending: dict[str, Any] | None = None) -> dict[str, Any]:
    state: dict[str, Any] = {
        "delivered": {"consumer_seq": 3, "stream_seq": 14},
        "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
    }
    if pending:
        state["pending"] = pending
    return {"config": {"durable_name": "d", "filter_subjects": list(filters)}, "state": state}


class Exporting:
    """A stream, its backup and its warehouse, all in one folder."""

    def __init__(
        self,
        folder: Path,
        mapping: Any = None,
        warehouse: Warehouse | None = None,
        ingested: dict[str, Any] | None = None,
        messages: list[Entry] = MESSAGES,
        config: dict[str, Any] = CONFIG,
        last_seq: int = 25,
        **consumers: dict[str, Any],
    ) -> None:
        self.folder = folder
        self.warehouse = warehouse or Warehouse(dir=folder / "warehouse")
        self.backup, self.mapping = folder / "backup", folder / "mapping.json"
        self.backup.mkdir()
        self.mapping.write_text(json.dumps(mapping or MAPPING))
        state = state_of(messages, last_seq=last_seq, consumer_count=len(consumers))
        content = packed(archive(messages, state, consumers.items()))
        (self.backup / "stream.arc.s2").write_bytes(content)
        (self.backup / "backup.json").write_text(json.dumps({"config": config, "state": state}))
        self.settings = {"stream": config["name"], "warehouse": self.warehouse}
        wanted = self.settings | (ingested or {})
        ingest(HERE, IngestSettings(backup=self.backup, **wanted))  # type: ignore[arg-type]
        transform(HERE, TransformSettings(mapping=self.mapping, **self.settings))  # type: ignore[arg-type]

    def export(self, **given: Any) -> ExportResult:
        usual = {"original": self.backup, "mapping": self.mapping, "to_backup": self.place}
        return export(ExportSettings(**self.settings | usual | given))

    @property
    def place(self) -> str:
        return str(self.folder / "new" / "backup")

    def exported(self) -> tuple[Head, list[Entry]]:
        """What the new backup has."""
        return contents(self.folder / "new" / "backup")


def contents(backup: Path) -> tuple[Head, list[Entry]]:
    """What a backup has."""
    with (backup / "stream.arc.s2").open("rb") as file:
        return read(file)
