"""An account of many streams on a real nats-server, by one YAML."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import dagster as dg
import pytest
from dagster.components.utils.project_paths import get_local_state_path
from nats.js.api import StreamSource

from jobs.jetstream.process import NatsServer
from jobs.warehouse import specs, tables
from jobs.warehouse.accounting import Archived
from nats_transform.errors import sentence
from orchestration.days import range_tags
from orchestration.loading import load_archives
from tests.support.dagster_processes import run_dg
from tests.support.dagster_project import (
    ASSETS,
    Project,
    failures,
    key,
    materialized,
)
from tests.support.saying import saying
from tests.support.streams import Stream

pytestmark = [pytest.mark.dagster, pytest.mark.server]

SPLIT = """mappings {
  "*.n.*": [
    { destination: "v1.$1.$2", weight: 60% }
    { destination: "v2.$1.$2", weight: 40% }
  ]
}
"""


def account(project: Project, url: str, streams: str = '["*"]', more: str = "") -> None:
    """The YAML of an account, up to today."""
    start = (datetime.now(UTC).date() - timedelta(days=1)).isoformat()
    project.add("prod", f"  include_today: true\n{more}", count=0)
    project.edit(
        "prod",
        ("SubjectArchive", "AccountArchive"),
        ("  stream: PROD\n", f"  streams: {streams}\n"),
        ("2026-03-01", start),
        ("- jsonl: messages.jsonl", f"- server: {url}"),
    )


def know(project: Project, origins: dict[str, list[str]]) -> None:
    """Keeps what a refresh would have found."""
    file = get_local_state_path("AccountArchive[prod]", project.root)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(origins))


def refresh(project: Project) -> None:
    """Asks the server, as a person does."""
    run_dg(project, "utils", "refresh-defs-state")


def add_stream(server: NatsServer, name: str, count: int, **config: Any) -> None:
    """A stream of this name, with so many messages."""
    stream = Stream(server, f"subjects{name}")
    if "sources" not in config:
        config["subjects"] = [f"{stream.name}.>"]
    stream.run(lambda js: js.add_stream(name=name, **config))
    stream.count(count)


def test_the_streams_that_the_server_shows(bare_project: Project, nats_server: NatsServer) -> None:
    """Known once somebody asks; all of them hang on one mapping version."""
    add_stream(nats_server, "ORDERS", 3)
    add_stream(nats_server, "EU-1", 0)
    add_stream(nats_server, "KV_users", 0)
    add_stream(nats_server, "ALL", 0, sources=[StreamSource(name="ORDERS")])
    more = "  nightly: { cron: '30 1 * * *' }\n  lag_sensor: {}\n"
    account(bare_project, nats_server.url, more=more)

    assert not load_archives(bare_project.root).get_repository_def().sensor_defs
    refresh(bare_project)
    repository = load_archives(bare_project.root).get_repository_def()
    graph = repository.asset_graph
    made = {"messages", "subject_census", "transformed_messages", "weight_audit"}
    streams = ("ORDERS", "EU_1", "ALL")
    wanted = {key(f"prod/{stream}/{asset}") for stream in streams for asset in made}
    assert graph.materializable_asset_keys == wanted | {key("prod/mapping_version")}
    assert graph.get(key("prod/ORDERS/messages")).group_name == "prod_ORDERS"
    assert graph.get(key("prod/ALL/messages")).parent_keys == {
        key("nats/prod/ALL"), key("nats/prod/ORDERS"),
    }  # fmt: skip
    assert graph.get(key("prod/ORDERS/transformed_messages")).parent_keys == {
        key("prod/ORDERS/messages"), key("prod/mapping_version"),
    }  # fmt: skip
    assert [one.name for one in repository.schedule_defs] == ["prod_nightly"]
    assert [one.name for one in repository.sensor_defs] == ["prod_lag"]

    result = bare_project.ticked("prod_lag", defs=load_archives(bare_project.root))
    lags = {event.asset_key.path[-1]: event.metadata["lag"].value for event in result.asset_events}
    assert lags == {"ORDERS": 3, "EU_1": 0, "ALL": 3}


@pytest.mark.slow
def test_streams_that_are_gone_are_not_called_up_to_date(
    bare_project: Project, nats_server: NatsServer
) -> None:
    account(bare_project, nats_server.url, '["GONE_*"]', "  lag_sensor: {}\n")
    for name in ("GONE_A", "GONE_B"):
        add_stream(nats_server, name, 3)
    refresh(bare_project)
    defs = load_archives(bare_project.root)
    Stream(nats_server, "GONE_A").run(lambda js: js.delete_stream("GONE_A"))
    result = bare_project.ticked("prod_lag", defs=defs)
    assert [event.asset_key.path[-1] for event in result.asset_events] == ["GONE_B"]
    assert "1 of 2 streams have no lag: " in result.skip_message
    assert "GONE_A" in result.skip_message
    Stream(nats_server, "GONE_B").run(lambda js: js.delete_stream("GONE_B"))
    with pytest.raises(dg.Failure, match=r"GONE_A.*GONE_B"):
        bare_project.ticked("prod_lag", defs=defs)


def test_what_is_scaffolded_loads(bare_project: Project) -> None:
    run_dg(bare_project, "scaffold", "defs", "nats_transform.dagster.AccountArchive", "prod")
    know(bare_project, {"ORDERS": []})
    graph = bare_project.graph()
    assert key("prod/ORDERS/messages") in graph.materializable_asset_keys


@pytest.mark.parametrize(
    ("streams", "expected"),
    [
        ('["EU_*", ORDERS]', {"EU_1", "ORDERS"}),
        ('["*"]', {"EU_1", "ORDERS", "Best_nde"}),
    ],
)
def test_the_yaml_chooses(bare_project: Project, streams: str, expected: set[str]) -> None:
    account(bare_project, "nats://h", streams)
    know(bare_project, {"EU_1": [], "ORDERS": ["GONE"], "KV_x": [], "Bestände": []})
    graph = bare_project.graph()
    keys = graph.materializable_asset_keys
    assert {key.path[1] for key in keys if len(key.path) == 3} == expected


def test_streams_of_nearly_one_name_are_two(bare_project: Project) -> None:
    account(bare_project, "nats://h")
    know(bare_project, {"EU-1": [], "EU_1": [], "EU+1": []})
    graph = bare_project.graph()
    assert len({key.path[1] for key in graph.materializable_asset_keys if len(key.path) == 3}) == 3


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("- server: nats://h", "- jsonl: x.jsonl", sentence("account-not-one-server")),
        ("  streams:", "  stream: X\n  streams:", "attributes.stream: there is no such setting"),
    ],
)
def test_what_is_refused(bare_project: Project, old: str, new: str, reason: str) -> None:
    account(bare_project, "nats://h")
    bare_project.edit("prod", (old, new))
    graph = bare_project.graph()
    assert reason in str(graph.get(key("prod/defs_yaml")).description)


@pytest.mark.slow
def test_fifty_streams_load_within_three_seconds_more_than_one(bare_project: Project) -> None:
    more = "  nightly: { cron: '30 1 * * *' }\n  mapping_sensor: {}\n  lag_sensor: {}\n"
    account(bare_project, "nats://h", more=more)
    seconds = []
    for count in (1, 1, 50):  # the first imports
        know(bare_project, {f"S{n}": [] for n in range(count)})
        began = time.process_time()
        repository = load_archives(bare_project.root).get_repository_def()
        assert len(repository.get_all_jobs()) >= count
        seconds.append(time.process_time() - began)
    print(f"one {seconds[1]:.2f} s, fifty {seconds[2]:.2f} s of CPU")
    assert seconds[2] - seconds[1] < 3


@pytest.mark.slow
def test_fifty_streams_of_which_one_is_broken(
    bare_project: Project, nats_server: NatsServer
) -> None:
    """One YAML ingests, transforms and audits them; the work queue holds up no other."""
    names = [f"F{n:02}" for n in range(50)]
    broken = "F17"
    for n, name in enumerate(names):
        config = {"retention": "workqueue"} if name == broken else {}
        add_stream(nats_server, name, 10 + n, **config)
    account(bare_project, nats_server.url, '["F*"]')
    (bare_project.defs_folder / "prod" / "mapping.conf").write_text(SPLIT)
    refresh(bare_project)
    defs = load_archives(bare_project.root)
    today = datetime.now(UTC).date()
    days = range_tags(today - timedelta(days=1), today)
    version = "prod/mapping_version"
    of = {name: [f"prod/{name}/{asset}" for asset in ASSETS[1:]] for name in names}
    result = bare_project.run(assets=[version, *chain(*of.values())], tags=days, defs=defs)
    assert list(failures(result)) == [f"prod_{broken}/messages"]
    assert re.search(saying("work-queue"), failures(result)[f"prod_{broken}/messages"])
    del of[broken]
    assert {asset for asset, _ in materialized(result)} == {version, *chain(*of.values())}
    audited = tables.open_table(bare_project.warehouse, specs.WEIGHT_AUDIT).scan().to_arrow()
    assert {*audited["stream"].to_pylist()} == {*names} - {broken}
    table = tables.open_table(bare_project.warehouse, specs.MESSAGES)
    counts = {name: Archived.of(table, name).messages for name in names}
    assert counts == {name: 0 if name == broken else 10 + n for n, name in enumerate(names)}
