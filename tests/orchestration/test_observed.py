"""What the servers did, under Dagster: the verdict as a check, looks at a canary, who is told."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path

import dagster as dg
import pytest

from orchestration import alarms
from orchestration.assets.checks import SPLIT
from tests.support.dagster_project import ASSETS, FIRST, Project, failures, told_of, values
from tests.support.files import edit
from tests.support.jobs import dumped
from tests.support.posted import receiver
from tests.support.saying import saying, says

pytestmark = pytest.mark.dagster

MAPPING = """mappings {
  "shop.*": [
    { destination: "v1.$1", weight: 50% }, { destination: "v2.$1", weight: 50% }
    { destination: "west.v1.$1", weight: 70%, cluster: west }
    { destination: "west.v2.$1", weight: 30%, cluster: west }
  ]
}
"""
OBSERVED = """  observed: { %s }
"""
START = datetime(2026, 3, 1, tzinfo=UTC)
HOURS, STALE, PER_HOUR = 6, 3, 500


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two clusters stored; one of them had yesterday's weights for an hour."""
    rng = random.Random(3)
    rows = []
    for n, cluster in product(range(HOURS * PER_HOUR), ("east", "west")):
        canary = 0.5 if cluster == "east" else 0.7 if n // PER_HOUR == STALE else 0.3
        name = "v2" if rng.random() < canary else "v1"
        subject = f"{'west.' if cluster == 'west' else ''}{name}.{n % 50}"
        time = (START + n * timedelta(hours=1) / PER_HOUR).isoformat()
        rows.append({"seq": len(rows) + 1, "ts": time, "subject": subject, "cluster": cluster})
    return dumped(tmp_path_factory.mktemp("observed") / "messages.jsonl", rows)


def add(project: Project, messages: Path, more: str, tolerance: int = 12) -> None:
    folder = project.add("shop", OBSERVED % more, MAPPING)
    project.edit("shop", ("tolerance: 15", f"tolerance: {tolerance}"))
    (folder / "messages.jsonl").write_bytes(messages.read_bytes())


def check_of(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    assert result.success, failures(result)
    (check,) = (c for c in result.get_asset_check_evaluations() if c.check_name == SPLIT)
    return check


def look(project: Project, until: datetime | str) -> dg.ExecuteInProcessResult:
    ops = {"shop__canary_watch": {"until": str(until)}}
    return project.run(assets=["shop/canary_watch"], ops=ops)


def tell(project: Project, result: dg.ExecuteInProcessResult) -> None:
    """What the sensor does after the run."""
    with dg.build_run_status_sensor_context(
        "canary_alarms",
        dagster_event=result.get_run_success_event(),
        dagster_instance=project.instance,
        dagster_run=result.dagster_run,
    ) as context:
        alarms.canary_alarms(context)


def test_the_stale_hour_fails_the_check_and_somebody_is_told_once(
    bare_project: Project, messages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(bare_project, messages, "watch: { running: false }")
    bare_project.made("shop", ["mapping_version"])
    result = bare_project.materialize("shop", ["messages", "weight_audit"], (FIRST, FIRST))
    check = check_of(result)
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert values(check.metadata)["splits off"] == 1
    summary = "Observed: outside the tolerance: shop.* in west from 2026-03-01 03:00 to 04:00 UTC"
    assert str(check.metadata["summary"].value).startswith(summary)
    # The UI reads Markdown, in which stars are no stars.
    assert str(check.description).startswith(summary.replace("*", r"\*"))
    page = Path(str(check.metadata["page"].value))
    report = json.loads(page.with_suffix(".json").read_text())
    out = [
        (rule["cluster"], bucket["from"])
        for rule in report["rules"]
        for bucket in rule["buckets"]
        if bucket["verdict"] == "outside"
    ]
    assert out == [("west", "2026-03-01T03:00:00Z")]

    monkeypatch.setenv(alarms.VARIABLE, "orchestration.alarms:slack")
    with receiver() as (url, posted):
        monkeypatch.setenv(alarms.WEBHOOK, url)
        verdicts = []
        for hours in (STALE, STALE + 1, STALE + 2):
            looked = look(bare_project, START + timedelta(hours=hours, minutes=5))
            verdicts.append(check_of(looked).metadata["verdict"].value)
            tell(bare_project, looked)
    assert verdicts[0] != "outside"
    assert verdicts[1:] == ["outside", "outside"]
    (message,) = posted
    assert "*shop/canary_watch*: Observed: outside the tolerance: shop.* in west" in message["text"]
    assert "canary-watch-2026-03-01T0000.html" in message["text"]


def test_days_that_no_run_has_ingested_are_not_within(bare_project: Project) -> None:
    folder = bare_project.add("shop", OBSERVED % "watch: { running: false }", MAPPING)
    rng = random.Random(1)
    rows = (
        {"seq": n, "ts": START.isoformat(), "subject": f"v{rng.randint(1, 2)}.x", "cluster": "east"}
        for n in range(1, 4_001)
    )
    dumped(folder / "messages.jsonl", rows)
    bare_project.made("shop", ["mapping_version"])
    bare_project.made("shop", ["messages"], (FIRST, FIRST))
    two_days = (FIRST, FIRST + timedelta(days=1))

    def audited() -> list[tuple[bool, str, str]]:
        checks = [
            check_of(bare_project.materialize("shop", ["weight_audit"], two_days)),
            check_of(look(bare_project, START + timedelta(hours=30))),
        ]
        said = [values(check.metadata) for check in checks]
        return [(c.passed, t["verdict"], t["summary"]) for c, t in zip(checks, said, strict=True)]

    for passed, verdict, summary in audited():
        assert (passed, verdict) == (False, "within")
        assert "not looked at: 2026-03-02 (no run has ingested them)" in summary
    bare_project.made("shop", ["messages"], two_days)
    assert [passed for passed, _, _ in audited()] == [True, True]


def test_a_look_counts_since_the_mapping_changed(bare_project: Project, messages: Path) -> None:
    add(bare_project, messages, "watch: { hours: 2, running: false }")
    bare_project.made("shop", ["mapping_version"])
    bare_project.made("shop", ["messages"], (FIRST, FIRST))
    pages = [
        Path(
            str(check_of(look(bare_project, START + timedelta(hours=hours))).metadata["page"].value)
        )
        for hours in (2, 3)
    ]
    # Each window keeps its page.
    assert [page.name for page in pages] == [
        f"shop-canary-watch-2026-03-01T0{hour}00.html" for hour in (0, 2)
    ]
    assert all(page.exists() for page in pages)
    bare_project.edit("shop", ("hours: 2", "hours: 100000"))
    edit(bare_project.defs_folder / "shop" / "mapping.conf", ("70%", "10%"), ("30%", "90%"))
    before = datetime.now(UTC)
    for _ in range(2):
        bare_project.made("shop", ["mapping_version"])
    told = failures(look(bare_project, before))["shop/canary_watch"]
    assert re.match(saying("canary-too-young"), told)


@pytest.mark.parametrize(
    ("more", "assets", "warns"),
    [
        pytest.param("", ASSETS, set(), id="rehearsal"),
        pytest.param(
            OBSERVED % "by: day", ("mapping_version", "messages", "weight_audit"), {SPLIT},
            id="observed",
        ),
    ],
)  # fmt: skip
def test_a_day_without_messages_fails_nothing(
    bare_project: Project, more: str, assets: tuple[str, ...], warns: set[str]
) -> None:
    folder = bare_project.add("east", more, count=8)
    bare_project.edit("east", ("messages.jsonl", "messages.jsonl\n    - jsonl: late.jsonl"))
    (folder / "late.jsonl").write_text('{"subject": "a", "ts": "2026-03-06", "seq": 100}')
    quiet, late = date(2026, 3, 5), date(2026, 3, 6)
    # What the first source lacks, the next one has.
    result = bare_project.made("east", ("messages",), (late, late))
    assert told_of(result, "east/messages")["added"] == 1
    result = bare_project.made("east", assets, (quiet, quiet))
    evaluations = result.get_asset_check_evaluations()
    assert {check.check_name for check in evaluations if not check.passed} == warns
    assert told_of(result, "east/weight_audit")["verdict"] == "nothing to audit"


@pytest.mark.parametrize("asset", ["subject_census", "transformed_messages"])
def test_nothing_is_made_of_a_day_that_no_run_has_ingested(
    bare_project: Project, asset: str
) -> None:
    bare_project.add("east", count=8)
    bare_project.made("east", ["mapping_version"])
    bare_project.made("east", ["messages"], (FIRST, FIRST))
    result = bare_project.materialize("east", [asset], (FIRST, date(2026, 3, 5)))
    days = "2026-03-02..2026-03-05"
    told = failures(result)[f"east/{asset}"]
    assert says(told, "days-not-ingested", days=days, asset="east/messages")


@pytest.mark.parametrize(
    ("until", "code"),
    [
        ("3 o'clock", "not-a-moment"),
        ("2026-03-01T03:00", "no-time-zone"),
    ],
    ids=["no moment", "no zone"],
)
def test_a_mistyped_end_of_a_look_is_one_line(bare_project: Project, until: str, code: str) -> None:
    bare_project.add("shop", OBSERVED % "watch: { running: false }", MAPPING, count=1)
    told = failures(look(bare_project, until))["shop/canary_watch"]
    assert re.match(f"until: {saying(code)}", told)
    assert "\n" not in told


def test_severity_stages_and_what_is_undecided(bare_project: Project, messages: Path) -> None:
    later = "in_force: [{ since: '2026-03-01T03:00Z', mapping: later.conf }]"
    add(bare_project, messages, f"severity: warn, {later}")
    swapped = MAPPING.replace("70%", "31%").replace("30%", "69%")
    (bare_project.defs_folder / "shop" / "later.conf").write_text(swapped)
    bare_project.materialize("shop", ["mapping_version"])
    result = bare_project.materialize("shop", ["messages", "weight_audit"], (FIRST, FIRST))
    check = check_of(result)
    # In force from 03:00 on were other weights: of that stage, all hours but one are outside.
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "(2 times)" in str(check.description)
    bare_project.edit("shop", ("tolerance: 12", "tolerance: 1"), (later, ""))
    edit(bare_project.defs_folder / "shop" / "mapping.conf", ("west", "south"))
    bare_project.materialize("shop", ["mapping_version"])
    check = check_of(bare_project.materialize("shop", ["weight_audit"], (FIRST, FIRST)))
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "messages would decide it" in str(check.description)


@pytest.mark.parametrize(
    ("now", "day"),
    [
        (datetime(2026, 3, 2, 7, 5, tzinfo=UTC), date(2026, 3, 2)),
        (datetime(2026, 3, 2, 0, 5, tzinfo=UTC), date(2026, 3, 1)),
    ],
    ids=["in a day", "after midnight"],
)
def test_a_look_ingests_the_day_of_its_last_hour(
    bare_project: Project, now: datetime, day: date
) -> None:
    bare_project.add("shop", OBSERVED % "watch: {}" + "  include_today: true\n", MAPPING)
    (request,) = bare_project.ticked_at(now, "shop_watch").run_requests
    assert request.partition_key == day.isoformat()
    until = request.run_config["ops"]["shop__canary_watch"]["config"]["until"]
    assert datetime.fromisoformat(until) == now.replace(minute=0)
    assert request.partition_key_range is None
    for ingested in ("2026-02-28", day.isoformat()):  # before the start, and the day itself
        bare_project.instance.report_runless_asset_event(
            dg.AssetMaterialization(dg.AssetKey(["shop", "messages"]), partition=ingested)
        )
    (after,) = bare_project.ticked_at(now + timedelta(days=3), "shop_watch").run_requests
    days = after.partition_key_range
    assert (days.start, days.end) == (str(day), str(day + timedelta(days=3)))
    job = bare_project.load().resolve_job_def("shop_watch")
    names = {key.path[-1] for key in job.asset_layer.selected_asset_keys}
    assert names == {"mapping_version", "messages", "canary_watch"}
