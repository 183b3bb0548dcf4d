"""The condition under which Dagster reprocesses days by itself."""

from __future__ import annotations

from typing import Any

import dagster as dg
from dagster import AutomationCondition as Condition

from orchestration.archive import Archive


def stale_days(archive: Archive) -> dg.AutomationCondition[Any] | None:
    """The condition of what a mapping version decides, if its stale days are to be reprocessed.

    A day counts once what it was made of has another data version; a day that was never made is
    left alone.
    """
    if archive.automation != "stale_days":
        return None
    return (
        Condition.any_deps_match(Condition.data_version_changed()).since_last_handled()
        & ~Condition.missing()
        & ~Condition.any_deps_missing()
        & ~Condition.any_deps_in_progress()
        & ~Condition.in_progress()
    ).with_label("stale days")
