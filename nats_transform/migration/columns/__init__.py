"""Dry runs of large archives: the compiled kernel works on Arrow columns of subjects.

Subjects that behave alike form a group. The analyses of `nats_transform.migration` look at one
subject of each group and count for all of them. This package needs pyarrow; that one does not.
"""

from nats_transform.migration.columns.part import Part, added_up
from nats_transform.migration.columns.run import dry_run_of_columns

__all__ = ["Part", "added_up", "dry_run_of_columns"]
