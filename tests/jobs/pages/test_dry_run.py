"""The page of a dry run: self-contained and safe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from jobs.dry_run.result import DryRunResult, SimulatedStream
from jobs.pages import dry_run as dry_run_report
from nats_transform.config import mapping_version
from nats_transform.config.permissions import Allowance, User
from nats_transform.lint.findings import Severity
from nats_transform.mappings.unseen import Unseen
from nats_transform.migration import DryRun
from nats_transform.migration.result import Flow
from nats_transform.streams.consumer import parse_consumer
from nats_transform.streams.stream import parse_stream
from tests.jobs.pages.markup import tags_of, text_of
from tests.support.dry_runs import CensusRow, dry_run
from tests.support.hostile import HOSTILE
from tests.support.rules import mappings

LONG = ".".join(["averyverylongtokenwithoutablank"] * 5)
CURRENT = mappings({"orders.*.*": "o.{{partition(4,2)}}.$1.$2"})
CANDIDATE = mappings(
    {
        "orders.*.*": "shop.orders.{{partition(5,2)}}.$2",
        "bills.*": [("shop.bills.$1", 90), ("b.v2.$1", 10)],
        f"{LONG}.*": f"new.{LONG}.$1",
        HOSTILE: f"x.{HOSTILE}",
        "half": [("half", 20), ("full", 30)],
        "silent": "s",
    }
)
CENSUS = [
    *(CensusRow(f"orders.{r}.{k}", "east", 5 + k, 10) for k in range(40) for r in ("eu", "us")),
    *(CensusRow(f"bills.{k}", "west", 7, 10) for k in range(30)),
    *(CensusRow(f"{LONG}.{k}", "east", 1, 1) for k in range(3)),
    CensusRow(HOSTILE, HOSTILE, 3, 3),
    CensusRow("half", None, 9, 9),
    CensusRow("forgotten", None, 4, 4),
    CensusRow(None, None, 1, 1),
]


def everything() -> DryRun:
    streams = [
        {"name": "ORDERS", "subjects": ["o.>", "shop.orders.>"], "max_msgs_per_subject": 20},
        {"name": "BILLS", "subjects": ["bills.*"]},
    ]
    consumer = {"stream_name": "ORDERS", "name": "all", "config": {"filter_subject": "o.>"}}
    return dry_run(
        CENSUS,
        CANDIDATE,
        CURRENT,
        streams=[parse_stream(stream) for stream in streams],
        consumers=[parse_consumer(consumer)],
        users=[User(HOSTILE, Allowance(("o.>",)), Allowance())],
    )


def result(found: DryRun | None = None) -> DryRunResult:
    return DryRunResult(
        dry_run=found or everything(),
        stream=HOSTILE,
        days=(date(2026, 11, 1), date(2026, 11, 3)),
        candidate="new.conf",
        current="old.conf",
        candidate_version=mapping_version(CANDIDATE),
        current_version=mapping_version(CURRENT),
        streams=2,
        consumers=1,
        users=1,
        seed=None,
        census_snapshot=2**62,
        input_snapshot=None,
        run_id="run-1",
        simulated=(SimulatedStream(HOSTILE, 123456, 7, 8),),
        simulated_snapshot=2**61,
        simulated_seed=5,
        streams_from="streams/",
        not_looked_at=(
            Unseen("permissions of users", "--permissions FILE"),
            Unseen("which clusters there are"),
        ),
    )


def clean() -> DryRun:
    return dry_run([CensusRow("a.1", None, 2)], mappings({"a.*": "b.$1"}))


def empty() -> DryRun:
    return dry_run([], CANDIDATE, CURRENT)


@pytest.mark.parametrize("found", [everything, clean, empty])
def test_the_page_is_whole_and_needs_nothing_else(found: Callable[[], DryRun]) -> None:
    text = dry_run_report.render(result(found()))
    assert "script" not in {tag for tag, _ in tags_of(text)}
    assert not re.search(r"https?:|url\(|@import", text)


def test_the_page_says_what_was_found() -> None:
    run = result()
    text = text_of(dry_run_report.render(run))
    for finding in run.dry_run.findings:
        assert finding.code in text
    for told in (run.candidate_version, run.current_version, "run-1", str(2**62), "new.conf"):
        assert told in text
    assert "2026-11-01 to 2026-11-03" in text
    where = "The table simulated_streams has every message, in snapshot"
    assert f"123,456 7 8 0 {where} {2**61}" in text
    errors, warnings, _ = run.counts.values()
    assert f"{errors} errors: this will not work {warnings} warnings: probably unintended" in text
    assert (
        "9.59 % of the messages would not be stored; 0.205 % of the messages would be lost; "
        "1 consumer would get nothing; 116 subjects would become 107"
    ) in text


def test_a_change_that_costs_no_messages_is_counted_by_its_findings() -> None:
    run = result(dry_run([CensusRow("a.1", None, 2)], CANDIDATE))
    (warnings,) = (n for severity, n in run.counts.items() if severity is Severity.WARNING)
    assert f"The change has {warnings} warning" in dry_run_report.render(run)


def test_a_clean_change_says_so() -> None:
    text = dry_run_report.render(result(clean()))
    assert "Nothing that was looked at stands in the way of the change" in text
    unseen = "Not looked at: permissions of users (--permissions FILE); which clusters there are."
    assert unseen in text
    assert text.index(unseen) < text.index("None in what was looked at")
    assert "1 consumer of streams/" in text
    assert 'class="finding"' not in text


def test_a_change_without_streams_is_not_called_clean() -> None:
    text = dry_run_report.render(replace(result(clean()), streams=0, streams_from=None))
    assert "stands in the way" not in text
    assert "no stream was looked at" in text


def test_the_json_can_be_read_and_has_its_documented_fields() -> None:
    document = json.loads(json.dumps(result().as_json()))
    names = "summary findings with_room changes partitions levels flows reverse"
    assert document.keys() == {*names.split()}
    docs = (Path(__file__).parents[3] / "docs" / "dry-run.md").read_text()
    for name in document:
        assert f"| `{name}` |" in docs
    assert {"code", "severity", "messages", "subjects", "share", "examples", "message"} <= set(
        document["findings"][0]
    )
    assert document["summary"]["messages"] == sum(row.messages for row in CENSUS)


def test_the_picture_keeps_all_messages() -> None:
    flows = [Flow(f"a.{n}", f"b.{n}", 10) for n in range(30)]
    flows += [Flow(f"x{n}", f"x{n}", 1) for n in range(30)] + [Flow("y", None, 5)]
    picture = dry_run_report.picture(flows)
    for side in (picture.left, picture.right):
        assert sum(node.share for node in side) == pytest.approx(100)
        tops = [node.top for node in side]
        assert tops == sorted(tops)
    assert {node.name for node in picture.left} >= {"a.*", "y", "(other)"}
    kinds = {ribbon.title: ribbon.kind for ribbon in picture.ribbons}
    assert kinds["a.* to b.*: 300 messages"] == "moved"
    assert kinds["y to nobody: 5 messages"] == "lost"
    assert kinds["x0 to x0: 1 message"] == "same"


def test_what_is_at_stake_flows_by_itself() -> None:
    picture = dry_run_report.picture(
        [Flow("a", "b", 10, uncaptured=2, merged=5), Flow("c", "c", 1)]
    )
    assert [(ribbon.kind, ribbon.title) for ribbon in picture.ribbons] == [
        ("moved", "a to b: 3 messages"),
        ("merged", "a to b: 5 messages, which other subjects' messages join under one subject"),
        ("uncaptured", "a to b: 2 messages, which no stream would store"),
        ("same", "c to c: 1 message"),
    ]
    tops = [float(ribbon.path[3:].split("C")[0]) for ribbon in picture.ribbons]
    assert tops == sorted(set(tops))


def test_the_tree_says_what_is_at_stake() -> None:
    html = dry_run_report.render(result())
    tree = html[html.index("The subjects, token by token") : html.index("<h2>Findings")]
    before, after = text_of(tree).split(" After ")
    assert before.index("o merged 89.50 %") < before.index("bills not stored 9.59 %")
    assert "half 50.00 % lost 0.41 %" in before
    assert "and 24 more" in before
    assert "shop 91.21 % merged" in after or "shop 8.79 % not stored 91.21 % merged" in after
