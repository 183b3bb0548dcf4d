"""The settings of the job that ends a branch."""

from __future__ import annotations

from jobs.settings.base import Name, Settings, setting
from jobs.settings.warehouse import BRANCH, Warehouse


class PromoteSettings(Settings):
    """The branch that ends."""

    branch: Name = setting(
        ...,
        "The branch whose days take the place of those that everybody reads.",
        is_argument=True,
        pattern=BRANCH,
    )
    warehouse: Warehouse = Warehouse()
