"""Where Spark runs."""

from __future__ import annotations

from typing import Literal

from jobs.settings.base import Settings, setting

_WHOSE = "because the file's author would get your archive"


class SparkSettings(Settings):
    """Where Spark runs."""

    alternatives = (("master", "remote"),)

    engine: Literal["auto", "process", "spark"] = setting(
        "auto",
        "What does the work: this process, Spark, or Spark only for more than 16 GiB of Parquet "
        "or where a master or a Spark Connect server is named.",
    )
    master: str | None = setting(
        None,
        "The master of a Spark cluster.",
        metavar="URL",
        otherwise="local[*], all cores of this machine",
        in_project=r"local(\[.*\])?",
        cure=f"master must be local or local[N] in a project file, {_WHOSE}",
    )
    remote: str | None = setting(
        None,
        "A Spark Connect server, such as sc://host:15002, instead of a master.",
        metavar="URL",
        cure=_WHOSE,
    )
    driver_memory: str = setting("2g", "The heap of a local Spark, such as 8g.", is_option=False)
    config: dict[str, str] = setting(
        {}, "Further settings of Spark, which replace ours.", is_option=False
    )
