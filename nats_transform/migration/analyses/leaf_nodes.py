"""What is mapped on both sides of a leaf node connection.

A server maps what comes over such a connection as if it were published there, so that the mappings
of both sides apply to a message, one after the other: `tests/conformance/test_leaf_nodes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from nats_transform.kernel.covering import Covering
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import encode
from nats_transform.mappings.symbolic import filter_of_results
from nats_transform.migration.analysis import Draft
from nats_transform.migration.count import EXAMPLES, PARTS, Count, whole
from nats_transform.migration.database import Database, text
from nats_transform.migration.findings import Example
from nats_transform.migration.question import Question
from nats_transform.migration.result import DryRun
from nats_transform.migration.tables.census import CensusPart, added_up

# What the candidate makes, and the current mappings do not; also a remainder, which is drawn anew.
_MADE = """
CREATE TEMP {view} made AS
SELECT o.subject, o.result, sum(o.percent::BIGINT * o.messages)::BIGINT AS messages
FROM outcomes o JOIN ways a USING (side, way, number)
WHERE side = 'after' AND a.mapping >= 0 AND o.result IS NOT NULL AND NOT EXISTS (
  FROM ways b
  WHERE b.way = a.way AND b.side = 'before' AND b.mapping >= 0 AND b.result = a.result
) GROUP BY ALL
"""
_GOING = """
SELECT result AS subject, NULL::BLOB AS cluster, sum(messages)::BIGINT AS messages, 0 AS bytes
FROM made GROUP BY result
"""
_COMING = "SELECT * FROM made WHERE result <> subject ORDER BY messages DESC, subject, result"


def mapped_twice(
    database: Database, there: AccountMappings, ask: Callable[[CensusPart, Question], DryRun]
) -> Iterator[Draft]:
    """The messages that the mappings of both sides change.

    Args:
        database: the tables of a dry run.
        there: the mappings of the other side.
        ask: gives the answer to a question about some subjects.
    """
    database.run(_MADE.format(view=database.view))
    going = added_up(pa.Table.from_batches(database.batches(_GOING)))
    dry_run = ask(going, Question(there, AccountMappings(())))
    if dry_run.changed_subjects:
        examples = [example for change in dry_run.changes for example in change.examples]
        examples.sort(key=lambda example: -example.messages)
        names = {e.subject: _origin(database, e.subject or "") for e in examples[:EXAMPLES]}
        shown = tuple(
            Example(names[e.subject], e.subject, e.after, e.messages / PARTS)
            for e in examples[:EXAMPLES]
        )
        count = Count(round(dry_run.changed_messages), dry_run.changed_subjects, shown)
        message = "the mappings on the other side change what the candidate makes"
        yield "mapped-twice", "what goes over the leaf node connection", message, count
    ends = [share for mapping in there.mappings for share in mapping.ends() if share.weight]
    covers = Covering(sorted({filter_of_results(end.transform) for end in ends if end.transform}))
    coming = [b.filter(pa.array(covers(b["subject"]))) for b in database.batches(_COMING)]
    rows = pa.Table.from_batches(coming)
    if len(rows):
        largest = rows.slice(0, EXAMPLES).to_pylist()
        shown = tuple(
            Example(text(row["subject"]), None, text(row["result"]), whole(row["messages"]))
            for row in largest
        )
        parts = sum(rows["messages"].to_pylist())
        count = Count(parts, len(set(rows["subject"].to_pylist())), shown)
        message = "the candidate changes what the mappings on the other side make"
        yield "mapped-twice", "what comes over the leaf node connection", message, count


def _origin(database: Database, result: str) -> str | None:
    """The largest subject with a result."""
    query = "SELECT arg_max(subject, messages) FROM made WHERE result = $1"
    ((subject,),) = database.rows(query, encode(result))
    return text(subject)
