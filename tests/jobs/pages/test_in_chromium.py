"""Every page in a real browser: narrow and wide, light and dark, with names that hurt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from jobs.audit.canary import CanaryPlan
from jobs.certify.result import Certificate, CertifiedStream, CertifiedUser, Divergence, Drawn
from jobs.compare import Change, CompareResult, Move, Outcome, State
from jobs.pages import audit, canary, dry_run, plan
from jobs.pages.page import page as page_of
from nats_transform.audit import Criteria
from nats_transform.audit.planning import Audit
from nats_transform.audit.planning import plan as plan_canaries
from nats_transform.mappings.unseen import Unseen
from tests.jobs.pages import test_audit, test_dry_run, test_plan
from tests.support.browser import SCHEMES, WIDTHS, Browser
from tests.support.hostile import HOSTILE, look_at

LONG = test_plan.LONG


def certificate() -> Certificate:
    """A certificate of a server that parts from what was predicted, with names that hurt."""
    return Certificate(
        stream=HOSTILE,
        days=(date(2026, 3, 1), date(2026, 3, 2)),
        candidate=HOSTILE,
        mapping_version="4f" * 32,
        reads_file=True,
        streams_digest="5a" * 32,
        version="1.0.0",
        kernel="6b" * 32,
        nats_server="2.12.0",
        input_snapshot=2**62,
        run_id="r1",
        seed=7,
        messages=1_234_567,
        tried=50_000,
        subjects=12_345,
        tried_digest="7c" * 32,
        skipped={"the subject is not legal": 12},
        clusters=("east", HOSTILE),
        fates={"mapped": 50_000},
        predicted=50_000,
        delivered=49_998,
        streams=(CertifiedStream("ORDERS", 123_456, 123_455), CertifiedStream(HOSTILE, 1, 1)),
        draws=(
            Drawn("orders.*", "east", "v2.$1", 10, 9_000, 950, 921, 9.1, 11.2, True),
            Drawn(f"{LONG}.*", None, None, 40, 10, 1, 2, 0.1, 40.5, False),
        ),
        users=(CertifiedUser("shop", "east", 300, 12, 20), CertifiedUser(HOSTILE, None, 1, 1, 1)),
        divergences=(
            Divergence("subject", "orders.*", 2, 17, "orders.1", "east", "v1.1", "v2.1"),
            Divergence("stream", HOSTILE, 1, 1, HOSTILE, HOSTILE, LONG, HOSTILE),
            Divergence("draws", f"{LONG}.*", 10, None, None, None, "40 %", "10 %"),
        ),
        not_looked_at=(Unseen(HOSTILE), Unseen("leaf nodes", "--leaf FILE")),
    )


def canary_plan() -> CanaryPlan:
    """Two canaries that take hours, and some with too little traffic."""
    start = datetime(2026, 3, 1, tzinfo=UTC)
    hours = [start + timedelta(hours=hour) for hour in range(100)]
    counts = {
        ("shop.*", "east"): {hour: 400 + 30 * hour.hour for hour in hours},
        (f"{LONG}.*", LONG): dict.fromkeys(hours, 5),
        (HOSTILE, HOSTILE): dict.fromkeys(hours, 70),
        ("once", None): {start: 1},
    }
    rules = tuple(plan_canaries(counts, start, hours[-1], (1, 2, 10), Audit(Criteria())))
    return CanaryPlan(
        stream=HOSTILE,
        tolerance=1.0,
        confidence=0.99,
        power=0.95,
        by="day",
        audit_hours=None,
        from_hour=start,
        to_hour=hours[-1],
        rules=rules,
    )


def comparison() -> CompareResult:
    """A comparison of names that hurt."""
    outcomes = (Outcome("mapped", HOSTILE, LONG), Outcome("unmatched", None, None), None)
    moves = [Move(HOSTILE, LONG, HOSTILE, 12_345), Move(None, None, f"{LONG}.x", 2)]
    return CompareResult(
        before=State("main", 1_234_567, ("4f" * 32, "5a" * 32)),
        after=State(HOSTILE, 0, ()),
        shared=1_000_000,
        equal=200_000,
        digest="6b" * 8,
        moved=12_347,
        moved_subjects=2,
        examples=tuple(moves),
        fates={"mapped": (12_345, 2), "unmatched": (0, 3)},
        changes=tuple(
            Change(was, now, True, 12_345, moves[was is None])
            for was, now in product(outcomes, outcomes)
        ),
    )


PAGES: dict[str, Callable[[], str]] = {
    "audit by day": lambda: audit.render(test_audit.result()),
    "audit by hour": lambda: audit.render(
        test_audit.result("hour", kind="observed", basis=HOSTILE, in_force=test_audit.SEVERAL)
    ),
    "canary": lambda: canary.render(canary_plan()),
    "certificate": lambda: page_of("certificate.html", result=certificate()),
    "comparison": lambda: page_of("compare.html", result=comparison()),
    "dry run": lambda: dry_run.render(
        replace(test_dry_run.result(), candidate=HOSTILE, current=HOSTILE, run_id=HOSTILE)
    ),
    "dry run that finds nothing": lambda: dry_run.render(test_dry_run.result(test_dry_run.clean())),
    "plan": lambda: plan.render(test_plan.plan()),
    "plan with names that hurt": lambda: plan.render(test_plan.plan(HOSTILE)),
    "plan with long names": lambda: plan.render(test_plan.plan(LONG)),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read(name: str, browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGES[name](), "utf-8")
    browser.look(page)
    if "\\u202e" in page.read_text("utf-8"):
        look_at(browser, page, scripts=int(name.startswith("plan")))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_at_any_width(name: str, browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(PAGES[name](), "utf-8")
    browser.look(page, product(range(340, 1700, 60), SCHEMES), opens=False)
    browser.look(page, product((*range(340, 1700, 60), *WIDTHS), SCHEMES))


PLANTED = {
    "cut": "<p style='width: 3000px; text-align: right'>far away",
    "cut by its box": "<pre style='width: 50px; overflow: hidden'>too long for it",
    "overlapping": "<p>below</p><p style='position: relative; top: -30px'>above",
    "broken": "<p style='width: 200px'>A sentence has 9,000 messages",
    "small": "<p style='font-size: 11px'>fine print",
    "faint": "<p style='color: #aaa'>gray",
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str, browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<!doctype html><link rel=icon href=data:,><meta name=color-scheme content='light dark'>"
        f"<body style='font: 16px monospace'><p>A page</p>{PLANTED[fault]}"
    )
    with pytest.raises(AssertionError, match=rf"'{fault.split()[0]}': \['"):
        browser.look(page)


def test_an_error_in_the_console_is_found(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    broken = '<script src="missing.js"></script><script>throw new Error("broken")</script></body>'
    page.write_text(audit.render(test_audit.result()).replace("</body>", broken))
    console = browser.open(page)
    assert any("broken" in line for line in console)
    assert any("ERR_FILE_NOT_FOUND" in line for line in console)


def test_each_button_copies_its_commands(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(plan.render(test_plan.plan()), "utf-8")
    browser.open(page)
    copied, shown, buttons = browser.evaluate(
        """(async () => {
          const copied = [], buttons = [...document.querySelectorAll(".copy")];
          document.querySelectorAll("details").forEach(one => one.open = true);
          for (const button of buttons) {
            button.click();
            copied.push(await navigator.clipboard.readText());
          }
          const shown = [...document.querySelectorAll("pre code")].map(e => e.textContent);
          return [copied, shown, buttons.map(e => e.textContent)];
        })()"""
    )
    assert set(buttons) == {"Copied"}
    assert copied == [commands.rstrip() for commands in shown]
    assert copied[0] == "nats stream edit east --config 01-expand/stream-east.json --force"


def test_the_tree_opens_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(dry_run.render(test_dry_run.result()), "utf-8")
    browser.open(page)
    focused = "document.activeElement.innerText.split(/\\s/)[0]"
    is_open = "document.activeElement.parentElement.open"

    def shows(token: str) -> bool:
        """Whether the first branch has a token below it that can be seen."""
        first = "document.querySelector('.tree details')"
        return bool(
            browser.evaluate(
                f"[...{first}.querySelectorAll('ul code')]"
                f".some(code => code.innerText === '{token}' && code.checkVisibility())"
            )
        )

    browser.press("Tab")
    assert browser.evaluate(focused) == "o"
    assert not browser.evaluate(is_open)
    assert not shows("0")
    browser.press("Enter")
    assert browser.evaluate(is_open)
    assert shows("0")
    browser.press("Tab")
    assert browser.evaluate(focused) == "0"
    browser.press(" ")
    assert browser.evaluate(is_open)
    assert shows("eu")
    browser.press(" ")
    assert not browser.evaluate(is_open)
    assert not shows("eu")
