"""Every job: its settings, its function, and what its result can become.

The command line, `python -m jobs` and the jobs of Dagster find a job here. A module of a job is
imported only when the job runs; its settings are light.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from jobs.settings.base import Settings
from jobs.settings.output import NEVER
from jobs.settings.spark import SparkSettings


class Job(NamedTuple):
    """The place of a job in the code.

    Attributes:
        settings: the module of `jobs.settings` and the class of the settings.
        work: the module of this package and the function. It takes the settings, and before them
            a function that gives a Spark session, if `needs_spark` is true.
        needs_spark: whether the function takes a function that gives a Spark session.
        page: the module of this package that renders the result as an HTML page, or the template
            that needs nothing but the result.
        levels: the outcomes that can make the exit code 1, the default first.
    """

    settings: str
    work: str
    needs_spark: bool = True
    page: str | None = None
    levels: tuple[str, ...] = ()

    @property
    def model(self) -> type[Settings]:
        """The class of the settings."""
        model: type[Settings] = _named(f"settings.{self.settings}")
        return model

    @property
    def function(self) -> Any:
        """The function that does the work."""
        return _named(self.work)

    def run(self, settings: Settings, spark: SparkSettings) -> Any:
        """The result of the job."""
        from jobs.session import SessionOnDemand
        from jobs.startup import without_pandas

        without_pandas()
        function = self.function
        return function(*([SessionOnDemand(spark)] if self.needs_spark else []), settings)

    def write_page(self, result: Any, path: Path) -> None:
        """Writes the result as an HTML page."""
        if str(self.page).endswith(".html"):
            html = _named("pages.page:page")(self.page, result=result)
        else:
            html = _named(f"{self.page}:render")(result)
        _named("pages.page:write_page")(html, path)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"{__package__}.{module}"), name)


def document(result: Any) -> Any:
    """A result as plain JSON values: those of its own method, or else its fields."""
    return result.as_json() if hasattr(result, "as_json") else to_jsonable_python(result)


def is_fine(result: Any, level: str | None) -> bool:
    """Whether a result is better than a level. A job that was refused its work never is."""
    if getattr(result, "refused", None):
        return False
    return level in (None, NEVER) or not result.fails(level)


JOBS = {
    "ingest": Job("ingest:IngestSettings", "ingest:ingest_streams"),
    "census": Job("census:CensusSettings", "census:census"),
    "transform": Job("transform:TransformSettings", "transform:transform", levels=("empty",)),
    "verify-table": Job(
        "transform:VerifyTableSettings",
        "verify_table:verify_table",
        levels=("error", "warning"),
    ),
    "audit": Job(
        "audit:AuditSettings",
        "audit.run:audit",
        page="pages.audit",
        levels=("outside", "undecided", "nothing"),
    ),
    "plan-canary": Job("audit:CanarySettings", "audit.canary:plan_canary", page="pages.canary"),
    "dry-run": Job(
        "dry_run:DryRunSettings",
        "dry_run.run:dry_run",
        page="pages.dry_run",
        levels=("error", "warning", "info"),
    ),
    "certify": Job(
        "certify:CertifySettings",
        "certify.run:certify",
        needs_spark=False,
        page="certificate.html",
        levels=("divergence",),
    ),
    "plan": Job("dry_run:PlanSettings", "plan:plan", levels=("refused",)),
    "verify": Job(
        "verify:VerifySettings", "verify.run:verify", needs_spark=False, levels=("missing",)
    ),
    "census-export": Job("census:CensusExportSettings", "census_export:export_census"),
    "compare": Job(
        "branches:CompareSettings",
        "compare:compare",
        needs_spark=False,
        page="compare.html",
        levels=(NEVER, "moved", "changed"),
    ),
    "promote": Job("branches:PromoteSettings", "promote:promote", needs_spark=False),
    "replay": Job("replay:ReplaySettings", "replay:replay", needs_spark=False, levels=("refused",)),
    "export": Job("export:ExportSettings", "export:export", needs_spark=False, levels=("finding",)),
    "erase": Job("erase:EraseSettings", "erase:erase"),
    "maintain": Job("maintain:MaintenanceSettings", "maintain:maintain", needs_spark=False),
}
"""Name -> job."""
