"""Streams and mapping files stand in the graph, upstream of what is made of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from jobs.jetstream.process import NatsServer
from tests.orchestration.test_streams import add, publish, today
from tests.support.dagster_project import Project, failures, key, values
from tests.support.saying import saying
from tests.support.streams import Stream, new_stream

pytestmark = [pytest.mark.dagster, pytest.mark.server]


def observe(project: Project, text: str) -> Any:
    """The run that looks at a stream, and what it then says."""
    result = project.run(assets=[text])
    if not result.success:
        return failures(result)
    (record,) = project.instance.fetch_observations(key(text), limit=1).records
    observation = record.asset_observation
    # With one, every day in the archive would be stale as soon as the stream grows.
    assert "dagster/data_version" not in (observation.tags or {})
    return values(observation.metadata)


def live(project: Project, name: str, stream: Stream, **source: Any) -> None:
    """A new archive of a stream on a server."""
    source = {"server": stream.server.url, "from_stream": stream.name, **source}
    add(project, name, stream.name, today() - timedelta(days=1), [source])


def test_a_stream_says_how_far_its_archive_is_behind(
    bare_project: Project, nats_server: NatsServer
) -> None:
    stream = new_stream(nats_server)
    publish(stream, 0, 40)
    live(bare_project, "east", stream)
    graph = bare_project.load().resolve_asset_graph()
    node = graph.get(key("nats/EAST"))
    assert node.is_observable
    assert node.group_name == "east"
    assert graph.get(key("east/messages")).parent_keys == {key("nats/EAST")}

    before = observe(bare_project, "nats/EAST")
    assert before["lag"] == before["messages"] == before["last sequence"] == 40
    assert before["archived up to"] == 0

    days = (today() - timedelta(days=1), today())
    bare_project.made("east", ["messages"], days)
    assert observe(bare_project, "nats/EAST")["lag"] == 0
    publish(stream, 40, 7)
    after = observe(bare_project, "nats/EAST")
    assert (after["lag"], after["last sequence"], after["archived up to"]) == (7, 47, 40)

    stream.run(lambda js: js.delete_stream(stream.name))
    (reason,) = observe(bare_project, "nats/EAST").values()
    assert stream.name in reason


def test_archives_of_one_stream_do_not_hinder_each_other(
    bare_project: Project, nats_server: NatsServer
) -> None:
    """A stream has the key of its name only in the archive of that name."""
    stream = new_stream(nats_server)
    for name in ("orders", "orders_staging"):
        live(bare_project, name, stream)
        bare_project.edit(name, (f"stream: {name.upper()}", "stream: ORDERS"))
    keys = [one for one in bare_project.graph().get_all_asset_keys() if one.path[0] == "nats"]
    assert {*keys} == {key("nats/ORDERS"), key("nats/orders_staging/ORDERS")}


@pytest.mark.parametrize("stream", ["EU-1@x", "Bestände", "a b/c", "x" * 250])
def test_every_name_of_a_stream_is_a_key(bare_project: Project, stream: str) -> None:
    add(bare_project, "east", "S", today(), [{"server": "nats://h", "from_stream": stream}])
    bare_project.edit("east", ("stream: EAST", f'stream: "{stream}"'))
    graph = bare_project.graph()
    (parent,) = graph.get(key("east/messages")).parent_keys
    assert parent.path[:2] == ["nats", "east"]
    assert graph.get(parent).is_observable


def test_archives_with_one_mapping_file_are_connected(bare_project: Project) -> None:
    """What a mapping has made hangs on its file; so does what is transformed under it."""
    bare_project.add("shop")
    bare_project.add("shop_mapped", "  observed: { source_stream: SHOP }\n")
    bare_project.edit("shop_mapped", ("mapping: mapping.conf", "mapping: ../shop/mapping.conf"))
    graph = bare_project.load().resolve_asset_graph()
    mapping = key("shop/mapping.conf")
    assert graph.get(mapping).child_keys == {
        *map(key, ("shop/mapping_version", "shop_mapped/mapping_version", "shop_mapped/messages"))
    }
    assert graph.get(key("shop_mapped/messages")).parent_keys == {mapping, key("nats/SHOP")}

    bare_project.made("shop", ["mapping_version"])
    (record,) = bare_project.instance.fetch_observations(mapping, limit=1).records
    seen = record.asset_observation
    assert seen.metadata["file"].value == str(bare_project.defs_folder / "shop" / "mapping.conf")


def lagging(project: Project, stream: Stream, days: int = 1, today_too: str = "true") -> None:
    """An archive that started some days ago, with a sensor."""
    live(project, "east", stream)
    yesterday, start = (str(today() - timedelta(days=n)) for n in (1, days))
    more = f"  include_today: {today_too}\n  lag_sensor: {{ limit: 10 }}\n"
    project.edit("east", (yesterday, start), ("  include_today: true\n", more))


def test_a_sensor_ingests_what_the_archive_lacks(
    bare_project: Project, nats_server: NatsServer
) -> None:
    stream = new_stream(nats_server)
    publish(stream, 0, 10)
    lagging(bare_project, stream, days=30)

    first = bare_project.ticked("east_lag")
    assert not first.run_requests  # 10 are not more than 10
    (seen,) = first.asset_events
    assert (seen.asset_key, seen.metadata["lag"].value) == (key("nats/EAST"), 10)
    assert not bare_project.ticked("east_lag", first.cursor).asset_events  # nothing new

    publish(stream, 10, 5)
    before = today()
    (request,) = bare_project.ticked("east_lag", first.cursor).run_requests
    assert request.asset_selection == [key("east/messages")]
    # From the day of the first message that is missing on, and not from the start of the archive.
    range_ = request.partition_key_range
    assert (request.partition_key or range_.start) in (before.isoformat(), today().isoformat())

    bare_project.made("east", ["messages"], (before, today()))
    assert not bare_project.ticked("east_lag").run_requests
    publish(stream, 15, 11)
    (after,) = bare_project.ticked("east_lag").run_requests
    assert after.run_key != request.run_key


def test_one_run_at_a_time_and_no_more_than_one_an_hour_that_fails(
    bare_project: Project, nats_server: NatsServer
) -> None:
    stream = new_stream(nats_server)
    publish(stream, 0, 20)
    lagging(bare_project, stream)
    (request,) = bare_project.ticked("east_lag").run_requests
    # Dagster starts no second run with the same key.
    assert bare_project.ticked("east_lag").run_requests[0].run_key == request.run_key
    run = bare_project.instance.create_run_for_job(
        bare_project.load().resolve_implicit_global_asset_job_def(),
        asset_selection=frozenset({key("east/messages")}),
        tags={"dagster/sensor_name": "east_lag"},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert not bare_project.ticked("east_lag").run_requests
    bare_project.instance.report_run_failed(run)
    assert bare_project.ticked("east_lag").run_requests


def test_a_stream_that_was_created_again_fails_the_tick(
    bare_project: Project, nats_server: NatsServer
) -> None:
    stream = new_stream(nats_server)
    publish(stream, 0, 10)
    lagging(bare_project, stream)
    before = today()
    bare_project.made("east", ["messages"], (before, today()))
    stream.create_again()
    publish(stream, 0, 3)
    with pytest.raises(dg.Failure, match=saying("lag-recreated")):
        bare_project.ticked("east_lag")


@pytest.mark.parametrize(
    ("days", "today_too"), [(1, "false"), (-1, "true")], ids=["today-is-not-over", "before-start"]
)
def test_what_has_no_day_in_the_archive_is_not_asked_for(
    bare_project: Project, nats_server: NatsServer, days: int, today_too: str
) -> None:
    stream = new_stream(nats_server)
    publish(stream, 0, 20)
    lagging(bare_project, stream, days, today_too)
    result = bare_project.ticked("east_lag")
    assert not result.run_requests
    assert result.asset_events[0].metadata["lag"].value == 20


def test_a_server_that_is_away_fails_the_tick(bare_project: Project) -> None:
    add(bare_project, "east", "E", today(), [{"server": "nats://127.0.0.1:1"}])
    with (bare_project.defs_folder / "east" / "defs.yaml").open("a") as file:
        file.write("  lag_sensor: {}\n")
    with pytest.raises(dg.Failure, match=saying("server-not-reached")):
        bare_project.ticked("east_lag")
