"""The settings of the jobs that compare branches, and end them."""

from __future__ import annotations

from jobs.settings.base import Name, Settings, setting
from jobs.settings.days import Stream, StreamDays
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


class CompareSettings(StreamDays):
    """The two states of the table."""

    before: Name = setting(
        ...,
        "A branch such as main, the id of a snapshot, or a mapping version or the beginning of it.",
        is_argument=True,
        metavar="BEFORE",
    )
    after: Name = setting(..., "The state to compare with it.", is_argument=True, metavar="AFTER")
    stream: Stream = setting("", "The stream to compare.", otherwise="all streams of the table")
