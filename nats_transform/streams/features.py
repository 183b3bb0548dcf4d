"""Features of streams that hold on to the names of subjects: counters, schedules, batches.

Messages are stored, and nothing looks wrong, but what they stand for breaks when a mapping moves
them. Seen on nats-server 2.15.1: `tests/conformance/test_stream_features.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from nats_transform.streams.fields import StreamFields

MESSAGES: dict[str, str] = {
    "counter-restarts": "it keeps counters (allow_msg_counter), which start at 0 under a new name",
    "schedule-not-mapped": "its scheduler (allow_msg_schedules) publishes to the old subject, "
    "because account mappings don't apply inside a stream",
    "batch-split": "it takes atomic batches (allow_atomic), and nats-server refuses a batch that "
    "goes to two streams (10176) or to one that doesn't allow batches (10174)",
    "counted-twice": "it adds up another stream's counters and keeps one sum for the old and the "
    "new name: an old value that you add again under the new name counts twice",
}
"""What happens to a message of such a stream that gets a new subject.

A batch is only split if the stream does not capture the new subject. Nobody but its publisher knows
whether all of a batch moves.
"""

SCHEDULE_HEADERS = ("Nats-Schedule-Target", "Nats-Schedule-Source")
"""Where a schedule publishes to, and of which subject it publishes the last message."""
HEADERS: dict[str, str] = {
    "schedule-target-moves": "the scheduler uses these subjects as written: account mappings don't "
    "apply inside a stream",
    "header-not-mapped": "these headers still name the old subjects: mappings don't change headers",
}
"""What happens to subjects that headers name, and that a mapping changes."""

CARRIED: dict[str, str] = {
    "Nats-Batch-Id": "batch",
    "Nats-Expected-Last-Subject-Sequence": "condition",
    "Nats-Incr": "counter",
    "Nats-Msg-Id": "id",
    "Nats-Schedule": "schedule",
}
"""What messages carry that holds on to a subject or a stream, by the header that shows it.

nats-server compares the names of headers letter by letter.
"""
CARRIED_WITH: dict[str, str] = {
    "batch-split": "batch",
    "counted-twice": "counter",
    "counter-restarts": "counter",
}
"""What a message carries that a finding is about; others of its stream do not suffer."""


def features(stream: StreamFields) -> Iterator[str]:
    """What moves of subjects can break in a stream."""
    if stream.allow_msg_counter:
        yield "counter-restarts"
    if stream.allow_msg_schedules:
        yield "schedule-not-mapped"
    if stream.allow_atomic:
        yield "batch-split"


def sums(stream: StreamFields) -> bool:
    """Whether a stream adds up the counters of others."""
    return stream.allow_msg_counter and bool(stream.sources)
