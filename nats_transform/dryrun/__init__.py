"""Migration dry runs: what a new mapping would do to the subjects that were really there."""

from nats_transform.dryrun.case import CensusRow
from nats_transform.dryrun.delivery import Consumer, parse_consumer
from nats_transform.dryrun.findings import ALL, FROM_CHECK, RULES, Example, Finding
from nats_transform.dryrun.permissions import Allowance, User, users_of
from nats_transform.dryrun.run import DryRun, dry_run

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
    "User",
    "dry_run",
    "parse_consumer",
    "users_of",
]
