"""Alarms that cannot be passed on at once, under the daemon's own evaluation of the sensor."""

# Dagster reads the annotation of an asset's context: no `from __future__ import annotations` here.
from collections.abc import Iterator

import dagster as dg
import pytest

from orchestration import alarms
from orchestration.assets.checks import SPLIT
from tests.support.posted import receiver

pytestmark = pytest.mark.dagster

TOLD: list[str] = []
BROKEN: set[str] = set()


def hook(alarm: alarms.Alarm) -> None:
    """Passes alarms on, unless the way is broken for an asset."""
    if alarm.asset in BROKEN:
        raise ConnectionError("no answer")
    TOLD.append(alarm.asset)


def watch(name: str) -> dg.AssetsDefinition:
    """An asset whose check has the verdict of the run's tag."""

    @dg.asset(name=name, check_specs=[dg.AssetCheckSpec(SPLIT, asset=name)])
    def asset(context: dg.AssetExecutionContext) -> Iterator[object]:
        verdict = context.run.tags["verdict"]
        yield dg.AssetCheckResult(
            check_name=SPLIT,
            passed=verdict == "within",
            metadata={"verdict": verdict, "summary": "v2 got 50 %", "page": "page.html"},
        )
        yield dg.MaterializeResult()
        if context.run.tags.get("breaks") == name:
            raise RuntimeError("broken")

    return asset


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # verdict, for which assets the hook is broken, which asset breaks its run
        pytest.param([("outside", "", "")] * 3, [["a", "b"], [], []], id="once"),
        pytest.param(
            [("outside", "", ""), ("within", "", ""), ("outside", "", "")],
            [["a", "b"], [], ["a", "b"]],
            id="again, once it was within",
        ),
        pytest.param(
            [("outside", "a", ""), ("outside", "a", ""), ("outside", "", ""), ("outside", "", "")],
            [["b"], [], ["a"], []],
            id="later, if the hook fails; the other one at once",
        ),
        pytest.param(
            [("outside", "", "b"), ("outside", "", "")], [[], ["a", "b"]], id="after a failed run"
        ),
    ],
)
def test_who_is_told_when(
    monkeypatch: pytest.MonkeyPatch,
    runs: list[tuple[str, str, str]],
    expected: list[list[str]],
) -> None:
    monkeypatch.setenv(alarms.VARIABLE, f"{__name__}:hook")
    job = dg.define_asset_job("look", "*")
    definitions = dg.Definitions([watch("a"), watch("b")], jobs=[job])
    repository, told = definitions.get_repository_def(), list[list[str]]()
    with dg.DagsterInstance.ephemeral() as instance:
        cursor = None

        def evaluate() -> list[bool]:
            nonlocal cursor
            with dg.build_sensor_context(
                instance, cursor=cursor, repository_def=repository
            ) as context:
                tick = alarms.canary_alarms.evaluate_tick(context)
            cursor = tick.cursor
            return [reaction.error is not None for reaction in tick.dagster_run_reactions or ()]

        evaluate()
        for verdict, broken, breaks in runs:
            TOLD.clear()
            BROKEN.clear()
            BROKEN.update(broken)
            definitions.resolve_job_def("look").execute_in_process(
                instance=instance,
                tags={"verdict": verdict, "breaks": breaks},
                raise_on_error=False,
            )
            assert any(evaluate()) == bool(broken)
            assert not any(evaluate())
            told.append(sorted(TOLD))
    assert told == expected


def test_names_of_clusters_do_nothing_in_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as (url, posted):
        monkeypatch.setenv(alarms.WEBHOOK, url)
        alarms.slack(alarms.Alarm("shop", "a.* in <!channel> & <http://x|y>", "page.html", "run"))
    (message,) = posted
    assert "in &lt;!channel&gt; &amp; &lt;http://x|y&gt;\npage.html" in message["text"]
