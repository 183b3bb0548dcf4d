"""Dry runs at the size of archives, by the compiled kernel over Arrow columns.

The analyses are the same: they look at one of many subjects that are alike, with the numbers of all
of them. It needs pyarrow; `nats_transform.migration` does not.
"""

from nats_transform.migration.columns.part import Part, added_up
from nats_transform.migration.columns.run import dry_run_of_columns

__all__ = ["Part", "added_up", "dry_run_of_columns"]
