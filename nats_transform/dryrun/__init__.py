"""Migration dry runs: what a new mapping would do to the subjects that were really there."""

from nats_transform.dryrun.case import CensusRow
from nats_transform.dryrun.delivery import Consumer, parse_consumer
from nats_transform.dryrun.findings import ALL, FROM_CHECK, RULES, Example, Finding
from nats_transform.dryrun.permissions import Allowance, User, users_of
from nats_transform.dryrun.run import DryRun, Parts, Question, dry_run, dry_run_of_parts

__all__ = [
    "ALL",
    "FROM_CHECK",
    "RULES",
    "Allowance",
    "CensusRow",
    "Consumer",
    "DryRun",
    "Example",
    "Finding",
    "Parts",
    "Question",
    "User",
    "dry_run",
    "dry_run_of_parts",
    "parse_consumer",
    "users_of",
]
