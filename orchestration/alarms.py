"""Tells somebody that an observed audit found a share outside its tolerance.

Set `NATS_TRANSFORM_ON_ALARM` to `package.module:function`; the function is called with an `Alarm`
once when the check `split_as_configured` of an archive starts to fail, and not again while it
goes on failing. If the function raises, the next look that fails calls it again.
`log` is what happens without the variable. `slack` is an example: it posts to the Slack webhook
whose URL is in `NATS_TRANSFORM_SLACK_WEBHOOK`.
"""

from __future__ import annotations

import html
import os
from dataclasses import dataclass

import dagster as dg

from nats_transform.errors import NatsTransformError
from orchestration.assets.checks import SPLIT
from orchestration.hooks import hook_of

VARIABLE = "NATS_TRANSFORM_ON_ALARM"
WEBHOOK = "NATS_TRANSFORM_SLACK_WEBHOOK"
TOLD = "nats-transform/alarms_told"
"""The tag of a run with the assets of whose alarm somebody knows."""


@dataclass(frozen=True)
class Alarm:
    """A canary that is not split as configured.

    Attributes:
        asset: the asset whose check failed, such as shop/canary_watch.
        headline: what is wrong, where, when, and what to do next.
        page: the path or the URL of the page of the audit.
        run_id: the run that looked.
    """

    asset: str
    headline: str
    page: str
    run_id: str


def log(alarm: Alarm) -> None:
    """Logs the alarm: an example of what can be called."""
    dg.get_dagster_logger().error(f"{alarm.asset}: {alarm.headline} ({alarm.page})")


def slack(alarm: Alarm) -> None:
    """Posts the alarm to a Slack channel; needs the package slack-sdk (extra `slack`)."""
    from slack_sdk.webhook import WebhookClient

    text = f"*{alarm.asset}*: {alarm.headline}\n{alarm.page}"
    # Publishers choose the names of clusters: they must neither call a channel nor make a link.
    text = html.escape(text, quote=False)
    answer = WebhookClient(os.environ[WEBHOOK]).send(text=text)
    if answer.status_code != 200:
        raise NatsTransformError(
            "slack-refuses", status=answer.status_code, body=answer.body, webhook=WEBHOOK
        )


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    name="canary_alarms",
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=f"Calls the function named by {VARIABLE} when a canary goes off.",
)
def canary_alarms(context: dg.RunStatusSensorContext) -> None:
    """Calls the hook for each check that started to fail in a run.

    Dagster never comes back to a run, even if this fails. So the run's tag names the assets of
    which somebody knows, and the next look that finds the others outside tells of them.
    """
    run_id = context.dagster_run.run_id
    known, errors = list[str](), list[Exception]()
    looked = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    for entry in context.instance.all_logs(run_id, of_type=looked):
        event = entry.dagster_event
        evaluation = event.asset_check_evaluation_data if event is not None else None
        if evaluation is None or evaluation.check_name != SPLIT or not _is_outside(evaluation):
            continue
        asset = evaluation.asset_key.to_user_string()
        try:
            if not _is_known(context.instance, evaluation, run_id):
                said = {name: str(entry.value) for name, entry in evaluation.metadata.items()}
                tell = hook_of(VARIABLE, log)
                tell(Alarm(asset, headline=said["summary"], page=said["page"], run_id=run_id))
            known.append(asset)
        except Exception as error:  # noqa: BLE001 - of a user's function
            error.add_note(f"nobody was told of {asset}; the next look that finds it outside does")
            errors.append(error)
    if known:
        context.instance.add_run_tags(run_id, {TOLD: ",".join(known)})
    if errors:
        raise ExceptionGroup("alarms that could not be passed on", errors)


def _is_outside(check: dg.AssetCheckEvaluation) -> bool:
    verdict = check.metadata.get("verdict")
    return verdict is not None and verdict.value in ("outside", "not-random")


def _is_known(instance: dg.DagsterInstance, check: dg.AssetCheckEvaluation, run_id: str) -> bool:
    """Whether the look before this one said so too, and somebody knows of it."""
    history = instance.event_log_storage.get_asset_check_execution_history(
        check.asset_check_key, limit=20
    )
    runs = [record.run_id for record in history]
    for record in history[runs.index(run_id) + 1 :] if run_id in runs else []:
        event = record.event.dagster_event if record.event is not None else None
        if event is not None and event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            run = instance.get_run_by_id(record.run_id)
            told = run.tags.get(TOLD, "") if run is not None else ""
            return check.asset_key.to_user_string() in told.split(",")
    return False
