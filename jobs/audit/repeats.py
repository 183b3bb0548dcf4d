"""Messages that were stored again: an earlier one of their stream has the same `Nats-Msg-Id`.

A publisher that gets no answer sends a message again, under the same id. nats-server drops the
second one only within the duplicate window of a stream, and draws anew for it, so a canary that
answers late gets other counts than its weight says. Only the first message of an id is counted.

Source: nats-server `server/stream.go` `getMsgId`, `processJetStreamMsg`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.audit.rows import Reading, Rows
from jobs.files.grouped import Grouping, grouped
from jobs.files.read import Task
from nats_transform.kernel.counting import Coded

MSG_ID = "Nats-Msg-Id"
COLUMNS = ("seq", "headers")


@dataclass(frozen=True)
class Repeats:
    """The ids that more than one message has. They can be sent to a task.

    Attributes:
        firsts: the lowest sequence of each.
        are_names: whether ids name messages: no more of them are used again than not.
    """

    ids: pa.Array
    firsts: pa.Array
    are_names: bool

    def of(self, rows: pa.RecordBatch) -> Coded:
        """Whether each row repeats an earlier one."""
        is_repeat = np.zeros(len(rows), np.int64)
        if self.are_names and len(self.ids):
            places, ids = _ids(rows.column("headers"))
            known = pc.index_in(ids, self.ids)
            is_first = pc.equal(rows.column("seq").take(places), self.firsts.take(known))
            is_repeat[places.filter(pc.fill_null(pc.invert(is_first), False)).to_numpy()] = 1
        return Coded(is_repeat, (False, True))


def repeats_of(rows: Rows) -> Repeats | None:
    """The ids that more than one of some messages has; None if no message has an id."""
    parts = grouped(
        rows.tasks,
        partial(_read_ids, rows.reading),
        Grouping(("id",), sums=("messages",), lows=("first",)),
        _repeated,
        storage=rows.reading.reader.storage,
        folder=rows.folder,
        spark=rows.session,
    )
    if not parts:
        return None
    ids, firsts, counts = (
        pa.concat_arrays([repeated.column(name) for repeated, _ in parts])
        for name in ("id", "first", "messages")
    )
    again = (pc.sum(counts).as_py() or 0) - len(ids)
    return Repeats(ids, firsts, 2 * again <= sum(messages for _, messages in parts))


def _read_ids(reading: Reading, task: Task) -> Iterator[pa.RecordBatch]:
    """The ids of the messages of a task."""
    for _, rows in reading.read(task, COLUMNS, filled=["headers"]):
        places, ids = _ids(rows.column("headers"))
        if len(ids):
            first, once = rows.column("seq").take(places), pa.array(np.ones(len(ids), np.int64))
            yield pa.record_batch([ids, once, first], names=["id", "messages", "first"])


def _ids(headers: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The places of the rows with an id, and their ids."""
    pairs = headers.flatten()
    is_id = pc.equal(pairs.field("name").view(pa.binary()), MSG_ID.encode())
    places = pc.list_parent_indices(headers).filter(is_id)
    ids = pairs.field("value").view(pa.binary()).filter(is_id)
    if len(places) > 1 and pc.count_distinct(places).as_py() < len(places):
        # The server takes the first of several, and an empty one is none.
        _, firsts = np.unique(places.to_numpy(), return_index=True)
        places, ids = places.take(pa.array(firsts)), ids.take(pa.array(firsts))
    is_named = pc.greater(pc.binary_length(ids), 0)
    return places.filter(is_named), ids.filter(is_named)


def _repeated(_: object, groups: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """The ids that more than one message has, and how many messages have an id."""
    repeated = groups.filter(pc.greater(groups.column("messages"), 1))
    return repeated, pc.sum(groups.column("messages")).as_py()
