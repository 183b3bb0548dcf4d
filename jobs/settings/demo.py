"""The settings of the demo."""

from __future__ import annotations

from pathlib import Path

from jobs.settings.base import Folder, Seed, Settings, setting


class DemoSettings(Settings):
    """How the demo runs."""

    server: str | None = setting(
        None,
        "A nats-server with JetStream.",
        metavar="URL",
        otherwise="one is started, and stopped at the end",
        cure="because the demo makes streams there: give it with --server",
    )
    # The census of all three days stays below 200,000 subjects: dry runs of it need no Spark.
    messages: int = setting(
        200_000,
        "How many messages to archive: two days and today, the last of them from a live stream.",
        ge=1_000,
        metavar="N",
    )
    seed: Seed = setting(
        7, "The seed for the messages and all draws. The same seed gives the same digest."
    )
    folder: Folder = setting(
        Path("demo"),
        "The folder for everything the demo makes. It removes an earlier demo there.",
        name="dir",
        otherwise="./demo",
        is_written=True,
    )
