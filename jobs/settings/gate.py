"""Whether new rows are checked before they are published."""

from __future__ import annotations

from jobs.settings.base import Settings, setting


class Gated(Settings):
    """What the gate before a table is told."""

    no_checks: bool = setting(
        False,
        "Publish the rows unchecked. The result and the table say so.",
        in_project=False,
        cure="because the file's author would publish rows that nobody looked at: give it with "
        "--no-checks",
    )
