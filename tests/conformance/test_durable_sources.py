"""Sources and mirrors that read a durable consumer (ADR-60), on a real nats-server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jobs.dry_run.question import looked_at, read_question
from jobs.jetstream.process import nats_server
from jobs.settings.dry_run import DryRunSettings
from jobs.settings.warehouse import Warehouse
from tests.conformance.test_account import reload
from tests.conformance.test_promotion import MAPPINGS
from tests.conformance.test_stream_features import CONFIG, shop
from tests.support.awaiting import awaited
from tests.support.command import findings
from tests.support.dry_runs import CensusRow, of_question
from tests.support.files import write_files

pytestmark = pytest.mark.server

ORDERS = {"name": "ORDERS", "subjects": ["orders.*", "shop.*", "last"]}
FILTERS = {"ALL": [], "OLD": ["orders.*", "last"], "MIRROR": ["orders.*", "last"]}
"""The streams that copy, and the filters of the consumers that they read."""


def reads(name: str) -> dict[str, Any]:
    return {"name": "ORDERS", "consumer": {"name": name, "deliver_subject": f"to.{name}"}}


STOPPED = ["stream MIRROR", "stream OLD"]
COPIES = [
    {"name": "ALL", "sources": [reads("ALL")]},
    {"name": "OLD", "sources": [reads("OLD")]},
    {"name": "MIRROR", "mirror": reads("MIRROR")},
]


def consumer(name: str, *filters: str) -> dict[str, Any]:
    config = {"durable_name": name, "deliver_subject": f"to.{name}", "ack_policy": "flow_control"}
    return {"stream_name": "ORDERS", "config": config | {"filter_subjects": filters}}


@awaited
async def test_the_filter_of_the_consumer_decides(tmp_path: Path) -> None:
    with nats_server(CONFIG % "") as server:
        async with shop(server, ORDERS) as side:
            for name, filters in FILTERS.items():
                body = consumer(name, *filters)
                await side.ask(f"CONSUMER.CREATE.ORDERS.{name}", body)
            for one in COPIES:
                await side.make(one)
            await side.publish("orders.1")
            assert await asyncio.to_thread(checked, tmp_path, server.url) == STOPPED
            reload(server, CONFIG % MAPPINGS, 1)
            await side.publish("orders.1")
            await side.publish("last")
            everything = {"orders.1": 1, "shop.1": 1, "last": 1}
            assert await side.stored("ALL", "last") == everything
            for name in ("OLD", "MIRROR"):
                assert await side.stored(name, "last") == {"orders.1": 1, "last": 1}
                # The room that a plan makes: unlike a mirror's own filter, this one can change.
                body = consumer(name, *FILTERS[name], "shop.*")
                await side.ask(f"CONSUMER.CREATE.ORDERS.{name}", body)
            assert await asyncio.to_thread(checked, tmp_path, server.url) == []
            await side.publish("orders.2")
            for name in ("OLD", "MIRROR"):
                assert await side.stored(name, "shop.2") == {"orders.1": 1, "last": 1, "shop.2": 1}
    for filters, stopped in ((FILTERS, STOPPED), ({name: [] for name in FILTERS}, [])):
        assert found(tmp_path, filters) == [("source-stops", name) for name in stopped]
        assert checked(tmp_path) == stopped


def checked(folder: Path, url: str | None = None) -> list[str]:
    """The streams that stop to take, as `check` finds in files or on a server."""
    shown = [f"--{one}={folder / one}" for one in ("streams", "consumers")]
    if url is not None:
        (folder / "new.conf").write_text(CONFIG % MAPPINGS)
        shown = [f"--server={url}", "--user=shop", "--password=p"]
    stops = findings("check", folder / "new.conf", "--account=SHOP", *shown)
    return sorted(f["message"].partition(":")[0] for f in stops if f["code"] == "source-stops")


def found(folder: Path, filters: dict[str, list[str]]) -> list[tuple[str, str]]:
    """What a dry run finds about what the streams take."""
    question = read_question(settings(folder, filters))
    told = of_question([CensusRow("orders.1", None, 2), CensusRow("last", None, 1)], question)
    return sorted(
        (f.code, f.about) for f in told.findings if f.code in ("source-stops", "mirror-filter")
    )


def settings(folder: Path, filters: dict[str, list[str]]) -> DryRunSettings:
    files: dict[str, Any] = {"new.conf": CONFIG % MAPPINGS}
    files |= {f"streams/{one['name']}.json": {"config": one} for one in (ORDERS, *COPIES)}
    files |= {f"consumers/{name}.json": consumer(name, *of) for name, of in filters.items()}
    write_files(folder, files)
    return DryRunSettings(
        stream="ORDERS",
        warehouse=Warehouse(dir=folder),
        candidate=folder / "new.conf",
        account="SHOP",
        streams=folder / "streams",
        consumers=folder / "consumers",
    )


def test_a_consumer_that_nobody_shows_was_not_looked_at(tmp_path: Path) -> None:
    asked = settings(tmp_path, {"ALL": [], "MIRROR": []})
    question = read_question(asked)
    looked = looked_at(asked, question, (), knows_headers=True)
    told = [str(one) for one in looked["not_looked_at"]]
    assert told[0] == (
        "the filter of consumer OLD of stream ORDERS, which stream OLD reads "
        "(its file in --consumers DIR)"
    )
    asked = settings(tmp_path, FILTERS)
    looked = looked_at(asked, read_question(asked), (), knows_headers=True)
    assert not any("OLD" in str(one) for one in looked["not_looked_at"])
