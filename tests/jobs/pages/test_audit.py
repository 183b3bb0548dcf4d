"""The page of an audit: self-contained and safe."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.audit.headline import worst_first
from jobs.audit.result import AuditResult, KeyStickiness, MappingInForce, PartitionBalance
from jobs.errors import JobError
from jobs.pages import audit as report
from jobs.pages.page import nice_scale, write_page
from nats_transform import AccountMappings, Destination, Mapping
from nats_transform.audit import WORST_FIRST, Criteria, End, Period, Tally, assess
from tests.jobs.pages.markup import tags_of, text_of
from tests.support.hostile import HOSTILE
from tests.support.refused import refused

START = datetime(2026, 3, 1, tzinfo=UTC)
LONG = ".".join(["averyverylongtokenwithoutablank"] * 5)
MAPPINGS = AccountMappings(
    [
        Mapping("shop.*", [Destination("v1.$1", 98), Destination("v2.$1", 2)]),
        Mapping(f"{LONG}.*", [Destination(f"new.{LONG}.$1", 40)]),
        Mapping(HOSTILE, [Destination("h", 50), Destination(HOSTILE, 10)]),
        Mapping("silent", [Destination("s", 50)]),
    ]
)
SPLITS = [
    ("shop.*", "east", {"v2.$1": 0.02, "v1.$1": 0.98}, {"v2.$1": 0.02, "v1.$1": 0.98}),
    ("shop.*", "west", {"v2.$1": 0.02, "v1.$1": 0.98}, {"v2.$1": 0.06, "v1.$1": 0.94}),
    (f"{LONG}.*", "east", *[{f"new.{LONG}.$1": 0.4, f"{LONG}.*": 0.6}] * 2),
    (HOSTILE, HOSTILE, *[{"h": 0.5, HOSTILE: 0.1, "": 0.4}] * 2),
]


def result(by: str = "day", **more: Any) -> AuditResult:
    """Two days with verdicts of every kind, a change, clusters that differ, names that hurt."""
    rng = np.random.default_rng(1)
    tallies = [
        Tally(cluster, START + timedelta(hours=hour), (End(source, destination),), count)
        for source, cluster, before, after in SPLITS
        for hour in range(48)
        if hour != 20  # a gap
        for shares in [before if hour < 24 else after]
        for destination, count in zip(
            shares, rng.multinomial(1500, list(shares.values())).tolist(), strict=True
        )
    ]
    found = assess([Period(MAPPINGS, "4f" * 32)], tallies, Criteria(by=by))  # type: ignore[arg-type]
    values: dict[str, Any] = {
        "verdict": found.verdict,
        "kind": "expected",
        "basis": "transformed_messages",
        "stream": HOSTILE,
        "from_": START,
        "to": START + timedelta(days=2),
        "by": by,
        "tolerance": 1.0,
        "confidence": 0.99,
        "comparisons": found.comparisons,
        "mapping_version": "4f" * 32,
        "messages": sum(tally.count for tally in tallies),
        "fates": {"mapped": 200_000, "unmatched": 12_000, "lost": 70_000, "invalid": 0},
        "rules": found.rules,
        "accounts": found.accounts,
        "clusters": found.clusters,
        "partitions": (
            PartitionBalance(
                source=HOSTILE, destination=HOSTILE, partitions=3, counts=(5, 3, 4), busiest=1.25
            ),
        ),
        "keys": (KeyStickiness(source=HOSTILE, wildcard=1, keys=300, split=41),),
        "notes": (f"a note with {HOSTILE}",),
        "run_id": HOSTILE,
    }
    return AuditResult(**(values | more))


@pytest.mark.parametrize("by", ["day", "hour"])
def test_the_page_is_whole_and_needs_nothing_else(by: str) -> None:
    text = report.render(result(by))
    tags = tags_of(text)
    assert not {tag for tag, _ in tags} & {"script", "img", "iframe", "object", "embed"}
    refers = [a for _, attributes in tags for a in attributes if a in ("src", "href")]
    assert refers == ["href"]
    assert not re.search(r"https?:|url\(|@import", text)
    assert ("link", {"rel": "icon", "href": "data:,"}) in tags


def test_the_page_says_the_verdict_first() -> None:
    text = text_of(report.render(result()))
    places = [
        text.index(words)
        for words in (
            "Rehearsal: outside the tolerance: shop.* in west from 2026-03-02 00:00 to 2026-03-03 "
            "00:00 UTC: v2.$1 got",
            "Share over time",
            "west shop.* to v2.$1 weight 2 %, tolerance ± 1",
            "Clusters differ.",
            "Verdict by rule",
            "When the split changed",
            "Partition balance",
            "Keys with more than one destination",
            "Methods",
        )
    ]
    assert places == sorted(places)
    assert "the split changed at 2026-03-02 00:00" in text
    assert "Clopper and Pearson" in text
    assert "No message: silent" in text


def test_what_is_wrong_stands_first() -> None:
    made = result()
    verdicts = [rule.verdict for rule in worst_first(made)]
    assert verdicts == sorted(verdicts, key=WORST_FIRST.index)
    assert len(set(verdicts)) > 1
    table = report.render(made).partition("Verdict by rule")[2]
    assert table.index(">outside<") < table.index(">within<")


def test_two_destinations_have_one_plot_that_shows_what_is_off() -> None:
    html = report.render(result())
    picture = html[html.index("Share over time") : html.index("Clusters differ.")]
    plots = picture.split("<figure")[1:]
    assert len(plots) == 6  # three destinations have one each
    assert sum("<code>v1.$1</code>" in plot for plot in plots) == 0
    west = next(plot for plot in plots if ">west<" in plot)
    assert west is plots[0]
    assert re.search(r'class="span" x="500\.0" width="500\.0"', west)  # the second day
    assert " % by hour; its weight is 2 %, and 1 % to 3 % is within; off from 2026-03-02" in west
    dots = re.search(r'class="off" d="([^"]*)"', west)
    assert dots
    assert len(re.findall(r"[ML]", dots[1])) > 20
    (east,) = (plot for plot in plots if ">east<" in plot and "shop.*" in plot)
    assert 'class="span"' not in east
    assert 'class="off" d=""' in east


def test_an_observed_audit_shows_its_account() -> None:
    html = report.render(result(kind="observed"))
    assert html.index("Verdict by rule") < html.index("Where the messages are")
    assert html.count("<i>unknown</i>") == 3 * len(result().accounts)  # published, doubled, missing
    assert "Where the messages are" not in report.render(result(accounts=()))


def test_a_rule_whose_messages_are_all_missing_is_shown() -> None:
    published = {(0, "shop.*", None): {START: 9_000, START + timedelta(hours=1): 9_000}}
    periods = [Period(AccountMappings([MAPPINGS.mappings[0]]))]
    found = assess(periods, [], Criteria(), published=published)
    html = report.render(
        result(kind="observed", rules=found.rules, accounts=found.accounts, clusters=())
    )
    assert "18,000 of 18,000 published messages are missing" in html
    assert html.count("outside") > 1


def test_names_from_outside_stay_text() -> None:
    text = report.render(result())
    assert "<script" not in text
    assert "&lt;script&gt;console" in text


SEVERAL = (MappingInForce(mapping_version=HOSTILE, since=None, until=START),) * 2
"""Two versions, which the page lists."""


@pytest.mark.parametrize(
    ("verdicts", "headline"),
    [
        ({"rules": ()}, "Rehearsal: nothing to audit; give a mapping with weights"),
        ({"fates": {}, "messages": 0, "partitions": (), "keys": ()}, "instead of 2 %; correct the"),
        (
            {"kind": "observed", "fates": {"attributed": 5, "ambiguous": 1, "other": 0}},
            "instead of 2 %; check which mapping the servers of west had loaded then",
        ),
        ({"in_force": SEVERAL}, "Rehearsal: outside"),
    ],
    ids=["no rules", "no messages", "observed", "several versions"],
)
def test_headlines(verdicts: dict[str, Any], headline: str) -> None:
    assert headline in report.render(result(**verdicts))


@pytest.mark.parametrize("name", ["missing/page.html", "page.html"], ids=["no folder", "a folder"])
def test_a_page_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "page.html").mkdir()
    with refused(JobError, "output-unwritable", path=re.compile("page.html")):
        write_page(report.render(result()), tmp_path / name)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (-2.1, 2.1, ["\u22122", "\u22121", "0", "1", "2"]),
        (0, 13, ["0", "5", "10"]),
        (96.2, 99.7, ["97", "98", "99"]),
        (0, 0.03, ["0.00", "0.01", "0.02", "0.03"]),
    ],
)
def test_ticks_are_round_numbers(low: float, high: float, labels: list[str]) -> None:
    scale = nice_scale(low, high)
    assert [scale.label(tick) for tick in scale.ticks] == labels
    assert scale.at(low) == 0
    assert scale.at(high + 1) == 100
