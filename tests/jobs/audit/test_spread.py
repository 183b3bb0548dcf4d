"""How messages spread over partitions, and keys over destinations."""

from __future__ import annotations

from jobs.settings.warehouse import Warehouse
from tests.jobs.audit.rehearsal import MAPPINGS, archived, audit


def test_partition_balance(warehouse: Warehouse) -> None:
    rows = archived(warehouse)
    (balance,) = audit(warehouse).partitions
    counts = [0] * 4
    for row in rows:
        outcome = MAPPINGS.replay(row["subject"], row["cluster"], stream="S", seq=row["seq"])
        if outcome.mapping_destination == "v2.{{partition(4,1)}}":
            counts[int(outcome.subject.split(".")[1])] += 1
    assert balance.counts == tuple(counts)
    assert balance.busiest == max(counts) * 4 / sum(counts)


def test_keys_that_saw_more_than_one_destination(warehouse: Warehouse) -> None:
    rows = archived(warehouse)
    result = audit(warehouse, key=1)
    ends: dict[tuple[str, str], set[str | None]] = {}
    for row in rows:
        outcome = MAPPINGS.replay(row["subject"], row["cluster"], stream="S", seq=row["seq"])
        if outcome.mapping_source in ("shop.*", "east.*"):
            key = outcome.mapping_source, row["subject"].split(".")[1]
            ends.setdefault(key, set()).add(outcome.mapping_destination)
    assert [(k.source, k.wildcard, k.keys, k.split) for k in result.keys] == [
        (
            source,
            1,
            sum(key[0] == source for key in ends),
            sum(key[0] == source and len(saw) > 1 for key, saw in ends.items()),
        )
        for source in ("east.*", "shop.*")
    ]
