"""What a commit costs by the number of snapshots of a table, beside PyIceberg's transaction.

    python benchmarks/commits.py [--snapshots 10 100 1000] [--rounds 3]

Each commit appends nothing and sets a property. Prints means of processor milliseconds.
"""

from __future__ import annotations

import argparse
import tempfile
import time

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.types import LongType, NestedField

from jobs.warehouse.transaction import FrugalTransaction


def commit(kind: type[Transaction], table: Table) -> float:
    """Processor milliseconds of a commit."""
    start = time.process_time()
    transaction = kind(table)
    transaction.update_snapshot().fast_append().commit()
    transaction.set_properties({"at": str(start)})
    transaction.commit_transaction()
    return (time.process_time() - start) * 1000


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snapshots", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder)
        catalog.create_namespace("bench")
        schema = Schema(NestedField(1, "number", LongType(), required=False))
        table = catalog.create_table("bench.commits", schema)
        for goal in sorted(given.snapshots):
            while len(table.metadata.snapshots) < goal:
                commit(FrugalTransaction, table)
            kinds = (Transaction, FrugalTransaction) * given.rounds
            took = [commit(kind, table) for kind in kinds]
            theirs, ours = (sum(took[n::2]) / given.rounds for n in (0, 1))
            print(
                f"{goal:,} snapshots: PyIceberg {theirs:.0f} ms, ours {ours:.0f} ms, "
                f"ratio {ours / theirs:.2f}"
            )


if __name__ == "__main__":
    main()
