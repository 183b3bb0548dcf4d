"""Simulated streams as a table. tests/conformance holds them against a real server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from cli.main import main
from jobs.dry_run.run import dry_run
from jobs.dry_run.settings import SimulatedStream
from jobs.dry_run.simulate import SIMULATED, Simulation, SimulationError
from jobs.errors import JobError
from jobs.export import export
from jobs.session import SessionOnDemand
from jobs.settings.dry_run import DryRunSettings
from jobs.settings.export import ExportSettings
from jobs.settings.spark import SparkSettings
from jobs.warehouse import tables
from nats_transform import AccountMappings, StreamConfig, parse_stream
from nats_transform.backup.archive import read_head, read_messages
from nats_transform.kernel import compile_mappings
from tests.conformance.test_simulate import archived
from tests.jobs.dry_run.test_run import messages
from tests.support.archive import archive, rows_of

ONE = {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}


def write(folder: Path, *configs: dict[str, Any]) -> Path:
    """A folder with stream configurations."""
    folder.mkdir()
    for config in configs:
        (folder / f"{config['name']}.json").write_text(json.dumps({"config": config}))
    return folder


def test_what_the_table_holds(tmp_path: Path) -> None:
    warehouse = tables.Warehouse(dir=tmp_path / "warehouse")
    archive(warehouse, messages(count=12))
    candidate = tmp_path / "new.conf"
    candidate.write_text('mappings { "orders.*.*": "shop.$1" }')
    streams = write(
        tmp_path / "streams",
        {"name": "SHOP", "subjects": ["shop.*"], "max_msgs_per_subject": 2},
        {"name": "ONCE", "sources": [{"name": "SHOP", "filter_subject": "shop.us"}], **ONE},
    )
    settings = DryRunSettings(
        stream="S", candidate=candidate, streams=streams, simulate=True, warehouse=warehouse
    )
    result = dry_run(SessionOnDemand(SparkSettings()), settings)
    # Of each six `tests.jobs.dry_run.test_run.SUBJECTS` four are mapped, two of each region.
    assert result.simulated == (SimulatedStream("ONCE", 1, 0, 3), SimulatedStream("SHOP", 4, 4, 0))
    assert result.as_json()["summary"]["simulated"][0] == {
        "stream": "ONCE",
        "messages": 1,
        "discarded": 0,
        "refused": 3,
    }
    table = tables.open_table(warehouse, SIMULATED)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.snapshot_id == result.simulated_snapshot
    properties = tables.snapshot_properties(table)
    assert properties["mapping-version"] == result.candidate_version
    rows = sorted(rows_of(warehouse, "S", SIMULATED), key=lambda row: row.stream)
    assert [
        (r.stream, r.seq, r.stored_subject, r.via, r.origin_stream, r.origin_seq, r.archive_seq)
        for r in rows
    ] == [
        ("ONCE", 1, "shop.us", "source", "SHOP", 1, 1),
        ("SHOP", 5, "shop.us", "capture", None, None, 7),
        ("SHOP", 6, "shop.us", "capture", None, None, 8),
        ("SHOP", 7, "shop.eu", "capture", None, None, 9),
        ("SHOP", 8, "shop.eu", "capture", None, None, 12),
    ]
    assert {row.archive for row in rows} == {"S"}
    # A stream that captures all of that can be exported, as the archive has its messages.
    place = tmp_path / "exported"
    wanted = ExportSettings(
        stream="S", simulated="SHOP", config=streams / "SHOP.json", warehouse=warehouse,
        to_backup=str(place),
    )  # fmt: skip
    exported = export(wanted)
    assert (exported.messages, exported.first_seq, exported.last_seq) == (4, 5, 8)
    with (place / "stream.arc.s2").open("rb") as file:
        (batch,) = read_messages(file, read_head(file).messages)
    assert batch.subjects().to_pylist() == [b"shop.us", b"shop.us", b"shop.eu", b"shop.eu"]
    assert batch.data().to_pylist() == [b"abc"] * 4
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
    days = [(time // 10**9 - noon) / 86_400 for time in batch.times.tolist()]
    assert days == [7 % 2, 8 % 2, 9 % 2, 12 % 2]
    with pytest.raises(JobError, match="holds messages that came by source"):
        export(wanted.model_copy(update={"simulated": "ONCE"}))
    with pytest.raises(JobError, match="has no stream NONE"):
        export(wanted.model_copy(update={"simulated": "NONE"}))
    # The next simulation takes its place.
    shown = CliRunner().invoke(
        main,
        [
            *("dry-run", "--stream", "S", "--warehouse", str(warehouse.folder)),
            *("--candidate", str(candidate), "--streams", str(streams / "SHOP.json")),
            *("--simulate", "--fail-on", "never"),
        ],
    )
    assert shown.exit_code == 0, shown.output
    assert "stream SHOP would hold 4 messages (4 discarded)\n" in shown.stdout
    table = tables.open_table(warehouse, SIMULATED)
    assert {row.stream for row in rows_of(warehouse, "S", SIMULATED)} == {"SHOP"}


def streams_of(*configs: dict[str, Any]) -> list[StreamConfig]:
    return [parse_stream(config) for config in configs]


def kept(
    subjects: Sequence[str], streams: Sequence[StreamConfig], seed: int = 0
) -> list[tuple[str, int, str]]:
    """Stream, sequence and subject of what streams hold."""
    simulation = Simulation(streams, compile_mappings(AccountMappings(()), seed))
    rows = simulation.stored(archived(subjects))
    found = rows.filter(pa.array(simulation.is_held(rows))).to_pylist()
    return sorted((row["stream"], row["seq"], row["stored_subject"]) for row in found)


def test_random_numbers_are_those_of_the_replay() -> None:
    (stream,) = streams = streams_of(
        {
            "name": "R",
            "subjects": ["a"],
            "subject_transform": {"src": "a", "dest": "a.{{random(1000)}}"},
        }
    )
    found = kept(["a"] * 5, streams, seed=3)
    wanted = [stream.replay("a", stream="S", seq=n, seed=3).subject for n in range(1, 6)]
    assert [subject for _, _, subject in found] == wanted
    assert len(set(wanted)) > 1


def test_what_depends_on_timing_is_refused() -> None:
    mirror = streams_of(
        {"name": "A", "subjects": ["a"]}, {"name": "M", "mirror": {"name": "A"}, **ONE}
    )
    with pytest.raises(SimulationError, match="stream M mirrors A and refuses messages of it"):
        kept(["a", "a"], mirror)
    circle = streams_of(
        {"name": "A", "subjects": ["a.*"], "republish": {"src": "a.x", "dest": "b.y"}, **ONE},
        {"name": "B", "subjects": ["b.*"], "republish": {"src": "b.x", "dest": "a.y"}, **ONE},
    )
    with pytest.raises(SimulationError, match="streams A and B feed each other"):
        kept(["a.x", "b.x"], circle)
