"""The settings of the job that tidies up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator

from jobs.settings.base import Name, Settings, setting
from jobs.settings.warehouse import BRANCH, Warehouse

_BY_HAND = "because its author would choose what you delete: give it as an option"


def _days(value: Any) -> Any:
    try:
        return timedelta(days=float(value)) if isinstance(value, str) else value
    except (ValueError, OverflowError):
        return value  # a duration in ISO 8601, as JSON has it


class MaintenanceSettings(Settings):
    """What to tidy up."""

    alternatives = (("remove_stream", "remove_branch"),)

    retention: Annotated[timedelta, BeforeValidator(_days)] = setting(
        timedelta(days=7),
        "For how many days a snapshot of a table can still be read after it was replaced.",
        ge=timedelta(0),
        metavar="DAYS",
        otherwise="7",
        cure=_BY_HAND,
    )
    remove_stream: Name | None = setting(
        None, "Remove this stream from all tables, and do nothing else.", cure=_BY_HAND
    )
    remove_branch: Name | None = setting(
        None,
        "Remove this branch, which `transform --branch` made, and do nothing else.",
        pattern=BRANCH,
        cure=_BY_HAND,
    )
    warehouse: Warehouse = Warehouse()
    now: datetime | None = setting(
        None,
        "The time that counts as now, for tests and to find out what a later run would do.",
        is_option=False,
    )
