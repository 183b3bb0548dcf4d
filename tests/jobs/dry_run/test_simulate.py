"""Simulated streams as a table. tests/conformance holds them against a real server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from jobs.dry_run.result import SimulatedStream
from jobs.dry_run.simulate import SIMULATED, Simulation, SimulationError
from jobs.errors import JobError
from jobs.export import export
from jobs.settings.export import ExportSettings
from jobs.settings.warehouse import Warehouse
from jobs.warehouse import tables
from nats_transform import AccountMappings, StreamConfig, parse_stream
from nats_transform.kernel import compile_mappings
from tests.conformance.test_simulate import Publication, archived, with_id
from tests.jobs.dry_run.test_run import messages
from tests.support.archive import archive, rows_of
from tests.support.command import printed
from tests.support.exporting import contents
from tests.support.files import write_files, written
from tests.support.jobs import tried
from tests.support.refused import refused

ONE = {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}


def test_what_the_table_holds(warehouse: Warehouse, tmp_path: Path) -> None:
    archive(warehouse, messages(count=12))
    candidate = written(tmp_path / "new.conf", 'mappings { "orders.*.*": "shop.$1" }')
    streams = tmp_path / "streams"
    configs = (
        {"name": "SHOP", "subjects": ["shop.*"], "max_msgs_per_subject": 2},
        {"name": "COPY", "mirror": {"name": "SHOP"}},
        {"name": "ONCE", "sources": [{"name": "COPY", "filter_subject": "shop.us"}], **ONE},
    )
    write_files(streams, {f"{one['name']}.json": {"config": one} for one in configs})
    result = tried(warehouse, candidate, streams=streams, simulate=True)
    # Of each six `tests.jobs.dry_run.test_run.SUBJECTS` four are mapped, two of each region.
    once = SimulatedStream("ONCE", 1, 0, 3, keeps_up_with=("SHOP",))
    copy = SimulatedStream("COPY", 8, 0, 0, keeps_up_with=("SHOP",))
    assert result.simulated == (copy, once, SimulatedStream("SHOP", 4, 4, 0))
    assert result.as_json()["summary"]["simulated"][1] == {
        "stream": "ONCE",
        "messages": 1,
        "discarded": 0,
        "refused": 3,
        "duplicates": 0,
        "not_followed": (),
        "keeps_up_with": ("SHOP",),
    }
    table = tables.open_table(warehouse, SIMULATED)
    assert tables.snapshot_id(table) == result.simulated_snapshot
    assert tables.snapshot_properties(table)["mapping-version"] == result.candidate_version
    rows = sorted(rows_of(warehouse, "S", SIMULATED), key=lambda row: row.stream)[8:]
    assert [
        (r.stream, r.seq, r.stored_subject, r.via, r.origin_stream, r.origin_seq, r.archive_seq)
        for r in rows
    ] == [
        ("ONCE", 1, "shop.us", "source", "COPY", 1, 1),
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
    subjects, times, _, _, data = zip(*contents(place)[1], strict=True)
    assert subjects == (b"shop.us", b"shop.us", b"shop.eu", b"shop.eu")
    assert data == (b"abc",) * 4
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
    days = [(time // 10**9 - noon) / 86_400 for time in times]
    assert days == [7 % 2, 8 % 2, 9 % 2, 12 % 2]
    with refused(JobError, "simulated-has-headers", via="source"):
        export(wanted.model_copy(update={"simulated": "ONCE"}))
    with refused(JobError, "not-simulated", stream="NONE"):
        export(wanted.model_copy(update={"simulated": "NONE"}))
    # The next simulation takes its place.
    out = printed(
        *("dry-run", "--stream", "S", "--warehouse", warehouse.folder, "--candidate", candidate),
        *("--streams", streams / "SHOP.json", "--simulate", "--fail-on", "never"),
    )
    assert "stream SHOP would hold 4 messages (4 discarded)\n" in out
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
    change = {"src": "a", "dest": "a.{{random(1000)}}"}
    (stream,) = streams = streams_of({"name": "R", "subjects": ["a"], "subject_transform": change})
    found = kept(["a"] * 5, streams, seed=3)
    wanted = [stream.replay("a", stream="S", seq=n, seed=3).subject for n in range(1, 6)]
    assert [subject for _, _, subject in found] == wanted
    assert len(set(wanted)) > 1


def test_what_depends_on_timing_is_refused() -> None:
    mirror = streams_of(
        {"name": "A", "subjects": ["a"]}, {"name": "M", "mirror": {"name": "A"}, **ONE}
    )
    with refused(SimulationError, "mirror-refuses", name="M", origin="A"):
        kept(["a", "a"], mirror)
    circle = streams_of(
        {"name": "A", "subjects": ["a.*"], "republish": {"src": "a.x", "dest": "b.y"}, **ONE},
        {"name": "B", "subjects": ["b.*"], "republish": {"src": "b.x", "dest": "a.y"}, **ONE},
    )
    with refused(SimulationError, "streams-feed-each-other", circle="A and B"):
        kept(["a.x", "b.x"], circle)


def simulated(
    published: Sequence[str | Publication],
    *configs: dict[str, Any],
    step: timedelta = timedelta(),
) -> list[SimulatedStream]:
    """The results of streams."""
    simulation = Simulation(streams_of(*configs), compile_mappings(AccountMappings(())))
    rows = simulation.stored(archived(published, step=step))
    is_held, of = simulation.is_held(rows), rows.column("number").to_numpy()
    held, dropped = (np.bincount(of[one], minlength=len(configs)) for one in (is_held, ~is_held))
    return list(simulation.results(held.tolist(), dropped.tolist()))


LAST = {"allow_rollup_hdrs": True, "max_msgs_per_subject": 1}


def test_limits_count() -> None:
    ids = [Publication("a", with_id(n % 3)) for n in range(6)]
    found = simulated(
        [*["a"] * 204, *ids],
        {"name": "MOST", "subjects": ["a"], "max_msgs": 50},
        {"name": "FULL", "sources": [{"name": "COPY"}], "max_msgs": 60, "discard": "new"},
        {"name": "COPY", "mirror": {"name": "MOST"}},
    )
    assert found == [
        SimulatedStream("MOST", 50, 157, 0, 3),
        SimulatedStream("FULL", 60, 0, 147, keeps_up_with=("MOST",)),
        SimulatedStream("COPY", 207, 0, 0, keeps_up_with=("MOST",)),
    ]
    # nats-server makes -1 of it.
    assert simulated(["a"], {"name": "ANY", "subjects": ["a"], "max_msg_size": 0}) == [
        SimulatedStream("ANY", 1, 0, 0)
    ]


def test_ages_are_those_of_the_archive() -> None:
    """The last of 100 messages, one a minute, is published in minute 100."""
    hour, minute = 3600 * 10**9, 60 * 10**9
    found = simulated(
        ["a"] * 100,
        {"name": "AGED", "subjects": ["a"], "max_age": hour},
        {"name": "FEW", "mirror": {"name": "AGED"}, "max_age": hour, "max_msgs": 7},
        {"name": "ROOM", "subjects": ["a"], "max_age": hour, "max_msgs": 7, "discard": "new"},
        step=timedelta(minutes=1),
    )
    assert found == [
        SimulatedStream("AGED", 60, 40, 0),
        SimulatedStream("FEW", 7, 93, 0, keeps_up_with=("AGED",)),
        # The first seven expire in minutes 61 to 67, and leave room for as many.
        SimulatedStream("ROOM", 7, 7, 86),
    ]
    again = [Publication("a", with_id("same"))] * 5
    windows = (
        {"name": "SHORT", "subjects": ["a"], "duplicate_window": minute},
        {"name": "USUAL", "subjects": ["a"]},
        {"name": "LONG", "subjects": ["a"], "duplicate_window": 4 * minute},
    )
    found = simulated(again, *windows, step=timedelta(minutes=1))
    assert [(one.messages, one.duplicates) for one in found] == [(5, 0), (3, 2), (2, 3)]
    (nameless,) = simulated([Publication("a", with_id(""))] * 5, windows[1])
    assert (nameless.messages, nameless.duplicates) == (5, 0)


@pytest.mark.parametrize(
    ("config", "published", "told"),
    [
        ({"retention": "workqueue"}, ["a"], "retention workqueue"),
        ({"allow_msg_counter": True}, ["a"], "allow_msg_counter"),
        ({}, [Publication("a", (("Nats-Rollup", "sub"),))], "headers Nats-Rollup"),
        ({}, [Publication("a", (("Nats-TTL", "10s"),))], "headers Nats-TTL"),
        *(
            (LAST, [Publication("a", ((name, "sub"),))], f"headers {name}")
            for name in ("Nats-Incr", "Nats-Scheduler", "Nats-Stream-Source")
        ),
        ({"subject_delete_marker_ttl": 10**9}, ["a"], "subject_delete_marker_ttl"),
    ],
)
def test_what_is_not_followed_has_no_number(
    config: dict[str, Any], published: Sequence[str | Publication], told: str
) -> None:
    copy = {"name": "B", "mirror": {"name": "A"}}
    found, behind = simulated(published, {"name": "A", "subjects": ["a"], **config}, copy)
    assert found == SimulatedStream("A", None, None, None, None, (told,))
    assert told in found.condition
    # Its mirror gets every message, and the headers that act there too.
    assert behind.messages == (1 if "retention" in config else None)
    assert behind.condition
    # The same messages in a stream that nothing of it concerns.
    (clean,) = simulated(["a"], {"name": "A", "subjects": ["a"], "allow_rollup_hdrs": True})
    assert clean == SimulatedStream("A", 1, 0, 0)


def test_a_source_that_waits_for_a_message_which_is_dropped() -> None:
    """It goes on with the next that it can get, and nobody knows when."""
    found = simulated(
        ["a", "b", "b", "a"],
        {"name": "A", "subjects": ["*"], "max_msgs": 2},
        {"name": "S", "sources": [{"name": "A"}], "max_msgs": 2, "discard": "new"},
    )
    assert found[1].not_followed == ("its source A that waits for room",)


def test_sizes_that_nats_server_adds_to_are_not_followed() -> None:
    found = simulated(
        ["a"] * 9,
        {"name": "A", "subjects": ["a"], "max_bytes": 100, "republish": {"src": "a", "dest": "r"}},
        {"name": "M", "mirror": {"name": "A"}, "max_bytes": 200},
        {"name": "S", "sources": [{"name": "A"}], "max_bytes": 200},
        {"name": "R", "subjects": ["r"], "max_bytes": 200},
        {"name": "OF_R", "mirror": {"name": "R"}},
    )
    assert [one.messages for one in found] == [3, 6, None, None, 9]
    assert found[4].keeps_up_with == ("R",)
