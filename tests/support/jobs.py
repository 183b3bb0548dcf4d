"""Jobs in this process, without Spark, on stream S; what they refuse fails the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.census import CensusResult, census
from jobs.dry_run.result import DryRunResult
from jobs.dry_run.run import dry_run
from jobs.erase import EraseResult, erase
from jobs.ingest import IngestResult, ingest
from jobs.promote import PromoteResult, promote
from jobs.session import SessionOnDemand
from jobs.settings.branches import PromoteSettings
from jobs.settings.census import CensusSettings
from jobs.settings.dry_run import DryRunSettings
from jobs.settings.erase import EraseSettings
from jobs.settings.ingest import IngestSettings
from jobs.settings.spark import SparkSettings
from jobs.settings.transform import TransformSettings, VerifyTableSettings
from jobs.settings.warehouse import Warehouse
from jobs.transform import TransformResult, transform
from jobs.verify_table import VerifyTableResult, verify_table
from nats_transform import AccountMappings

HERE = SessionOnDemand(SparkSettings())
"""Lets a job do its work in this process."""


Sift = Callable[[pa.RecordBatch], list[str | None]]


def on(warehouse: Warehouse, branch: str | None) -> Warehouse:
    """The same warehouse, on a branch."""
    return warehouse.model_copy(update={"branch": branch})


def dumped(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    """A dump with these lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def archived(warehouse: Warehouse, stream: str = "S", **source: Any) -> IngestResult:
    """What an ingest of a server, a backup or a dump made."""
    result = ingest(HERE, IngestSettings(stream=stream, warehouse=warehouse, **source))
    assert result.refused is None
    return result


def ingested(warehouse: Warehouse, dump: Path, stream: str = "S", **settings: Any) -> IngestResult:
    """What an ingest of a dump made."""
    return archived(warehouse, stream, jsonl=str(dump), **settings)


def transformed(
    warehouse: Warehouse,
    mappings: AccountMappings | Path,
    branch: str | None = None,
    *,
    sift: Any = None,
    **settings: Any,
) -> TransformResult:
    """What a transform made, with mappings or those of a file."""
    of_file = {"mapping": mappings if isinstance(mappings, Path) else Path("unused")}
    given = {"stream": "S", "warehouse": on(warehouse, branch)} | of_file | settings
    plain = None if isinstance(mappings, Path) else mappings
    result = transform(HERE, TransformSettings(**given), plain, sift=sift)
    assert result.refused is None
    return result


def sifting(reason: str, chosen: Callable[[int], object]) -> Sift:
    """Puts messages into quarantine by their sequence."""

    def sift(rows: pa.RecordBatch) -> list[str | None]:
        return [reason if chosen(seq) else None for seq in rows.column("seq").to_pylist()]

    return sift


def verified(
    warehouse: Warehouse, branch: str | None = None, stream: str = "S", **settings: Any
) -> VerifyTableResult:
    """What a check of the tables found."""
    there = on(warehouse, branch)
    return verify_table(HERE, VerifyTableSettings(stream=stream, warehouse=there, **settings))


def counted(warehouse: Warehouse, stream: str = "S", **settings: Any) -> CensusResult:
    """What a census made."""
    return census(HERE, CensusSettings(stream=stream, warehouse=warehouse, **settings))


def tried(warehouse: Warehouse, candidate: Path, **settings: Any) -> DryRunResult:
    """What a dry run found."""
    given = {"stream": "S", "candidate": candidate, "warehouse": warehouse} | settings
    return dry_run(HERE, DryRunSettings(**given))


def erased(warehouse: Warehouse, stream: str = "S", **which: Any) -> EraseResult:
    """What an erasure did, which may be refused."""
    given = {"yes": True, "reason": "ticket 1", "by": "me"} | which
    return erase(HERE, EraseSettings(stream=stream, warehouse=warehouse, **given))


def promoted(warehouse: Warehouse, branch: str = "next") -> PromoteResult:
    """What a promotion made."""
    return promote(PromoteSettings(branch=branch, warehouse=warehouse))
