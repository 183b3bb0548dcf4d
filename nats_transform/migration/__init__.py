"""Migration dry runs: what a new mapping would do to the subjects of an archive."""

from nats_transform.migration.findings import ALL, CODES, FROM_CHECK, Example, MigrationFinding
from nats_transform.migration.question import Question
from nats_transform.migration.result import DryRun

__all__ = [
    "ALL",
    "CODES",
    "FROM_CHECK",
    "DryRun",
    "Example",
    "MigrationFinding",
    "Question",
]
