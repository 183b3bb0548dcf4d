"""The page of a canary plan: looked at in a real browser, with names that hurt."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from jobs.audit.plan import CanaryPlan
from jobs.pages import canary as report
from nats_transform.audit import Criteria
from nats_transform.audit.planning import Audit, plan
from tests.support.browser import in_chromium, look
from tests.support.hostile import HOSTILE, look_at

START = datetime(2026, 3, 1, tzinfo=UTC)
LONG = ".".join(["averyverylongtokenwithoutablank"] * 5)


def result() -> CanaryPlan:
    hours = [START + timedelta(hours=hour) for hour in range(100)]
    counts = {
        ("shop.*", "east"): {hour: 400 + 30 * hour.hour for hour in hours},
        (f"{LONG}.*", LONG): dict.fromkeys(hours, 5),
        (HOSTILE, HOSTILE): dict.fromkeys(hours, 70),
        ("once", None): {START: 1},
    }
    rules = tuple(plan(counts, START, hours[-1], (1, 2, 10), Audit(Criteria())))
    return CanaryPlan(
        stream=HOSTILE,
        tolerance=1.0,
        confidence=0.99,
        power=0.95,
        by="day",
        audit_hours=None,
        from_hour=START,
        to_hour=hours[-1],
        rules=rules,
    )


@in_chromium
def test_in_chromium(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report.write(result(), page)
    look(page, tmp_path)
    look_at(page, tmp_path)
