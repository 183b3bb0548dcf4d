"""The reader of archives, against archives made byte by byte."""

from __future__ import annotations

import ctypes
import io
import json
import re
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transform.backup import archive as module
from nats_transform.backup.archive import Head, first_bytes, read_head, read_messages
from nats_transform.backup.consumers import parse_consumer
from nats_transform.backup.library import library
from nats_transform.errors import InvalidBackup, sentence
from tests.nats_transform.backup.test_s2 import encoded
from tests.support import backups
from tests.support.backups import END, Entry, archive, entry, packed, state_of
from tests.support.refused import refused, told

CONSUMER = {"config": {"durable_name": "d"}, "state": {"delivered": {}}}
MESSAGES: list[Entry] = [
    (b"a.b", 1_700_000_000_000_000_001, 3, b"", b"one"),
    (b"a.\xff", -5, 4, b"NATS/1.0\r\nA: 1\r\n\r\n", b""),
    ("ü.日本".encode(), 2**62, 2**40, b"", bytes(300)),
]


def read(stream: bytes) -> tuple[Head, list[Entry]]:
    """All that a file has."""
    head, found = backups.read(io.BytesIO(stream))
    for name, text in head.consumers.items():
        parse_consumer(name, text)
    return head, found


def test_all_of_an_archive() -> None:
    head, messages = read(packed(archive(MESSAGES, consumers=[("d", CONSUMER)])))
    assert messages == MESSAGES
    assert head.state == state_of(MESSAGES, consumer_count=1)
    assert {n: parse_consumer(n, text) for n, text in head.consumers.items()} == {"d": CONSUMER}


def test_an_empty_stream() -> None:
    used = state_of([], first_seq=8, last_seq=7)
    assert read(packed(archive([], used))) == (read(packed(archive([], used)))[0], [])


_MESSAGES = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=20),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(1, 2**20),
        st.binary(max_size=20),
        st.binary(max_size=200),
    ),
    unique_by=lambda message: message[2],
    max_size=20,
).map(lambda messages: sorted(messages, key=lambda message: message[2]))


@given(_MESSAGES, st.integers(1, 50))
def test_any_messages_and_from_every_place(messages: list[Entry], block: int) -> None:
    """However the stream is cut into chunks, also the remaining messages are read."""
    stream = packed(archive(messages), block)
    head, found = read(stream)
    assert found == messages
    file = io.BytesIO(stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BATCH", 1)
        patch.setattr(module, "_BUFFER", 50)
        starts = [batch.start for batch in read_messages(file, head.messages)]
        for place, start in enumerate(starts):
            rest = [int(n) for batch in read_messages(file, start) for n in batch.sequences]
            assert rest == [message[2] for message in messages[place:]]


GOOD = archive(MESSAGES, consumers=[("d", CONSUMER)])
ENDS = list(
    accumulate(
        len(entry(*one))
        for one in [
            (b"state.json", 5, 0, b"", json.dumps(state_of(MESSAGES, consumer_count=1)).encode()),
            (b"consumers/d", 5, 0, b"", json.dumps(CONSUMER).encode()),
            *MESSAGES,
            END,
        ]
    )
)
"""Where the entries of `GOOD` end, behind its magic."""


def said(consumer: object, name: str = "d") -> bytes:
    """An archive that says this of its one consumer."""
    return archive([], consumers=[(name, consumer)])


NONE = archive([], end=[])  # no message, and no mark of the end
BROKEN = {
    "empty": (b"", "backup-cut-off"),
    "another-magic": (b"NATSARC2" + GOOD[8:], "backup-not-magic"),
    "no-end-mark": (archive(MESSAGES, end=[]), "backup-cut-off"),
    "cut-in-a-message": (GOOD[:-8], "backup-cut-off"),
    "byte-after-the-end": (GOOD + b"\0", "backup-goes-on"),
    "message-after-end": (archive(MESSAGES, end=[END, MESSAGES[0]]), "backup-goes-on"),
    "huge-headers": (archive([(b"a", 1, 1, b"h" * (2**17 + 1), b"")]), "backup-headers-too-large"),
    "descending": (archive(MESSAGES[::-1]), "backup-sequences-fall"),
    "twice": (archive([MESSAGES[0]] * 2), "backup-sequences-fall"),
    "early": (archive(MESSAGES, state_of(MESSAGES, first_seq=4)), "backup-sequences-fall"),
    "no-seq": (archive([(b"a", 1, 0, b"", b"x")]), "backup-no-sequence"),
    "large-sequence": (
        archive([(b"a", 1, 2**63, b"", b"x")], state_of([])),
        "sequence-above-63-bits",
    ),
    "long-name": (archive([(b"a" * 2**20 + b"b", 1, 1, b"", b"")]), "entry-name-too-long"),
    "huge-payload": (NONE + b"\x01\x01\x01\x00" + b"\xff" * 8 + b"\x7fa", "entry-too-large"),
    "sizes-that-overflow-together": (
        NONE + b"\x01\x01\x01" + b"\xff" * 9 + b"\x01" + b"\x01" + b"a",
        "entry-too-large",
    ),
    "no-number": (NONE + b"\xff" * 10, "entry-without-number"),
    "state-a-list": (archive(MESSAGES, state=[]), "backup-state-invalid: Input"),
    "empty-state": (archive(MESSAGES, state={}), "backup-state-invalid: messages"),
    "state-fraction": (archive(MESSAGES, state_of(MESSAGES, last_seq=1.5)), "last_seq: Input"),
    "missing-consumer": (
        archive(MESSAGES, state_of(MESSAGES, consumer_count=1)),
        "backup-consumer-count",
    ),
    "no-state": (said({"config": {}}), "state: Field"),
    "no-config": (said({"config": None, "state": {}}), "config: Input"),
    "bad-name": (said([], "d\n\x1b"), "backup-consumer-invalid: Input"),
    "filters-no-list": (
        said({"config": {"filter_subjects": 7}, "state": {}}),
        "config.filter_subjects",
    ),
    "pending-no-sequence": (
        said({"config": {}, "state": {"pending": {"x": 1}}}),
        "state.pending.x",
    ),
    "pending-not-delivered": (
        said({"config": {}, "state": {"pending": {"1": {}}}}),
        f"backup-consumer-invalid: state: {sentence('consumer-pending-alone')}",
    ),
    "no-state-first": (
        b"NATSARC1" + archive(MESSAGES)[8:].replace(b"state.json", b"other.json", 1),
        "backup-first-entry",
    ),
}


@pytest.mark.parametrize(("unpacked", "code"), BROKEN.values(), ids=BROKEN)
def test_broken_archives(unpacked: bytes, code: str) -> None:
    with pytest.raises(InvalidBackup) as caught:
        read(packed(unpacked, 2**20))
    assert code in told(caught.value)


def test_every_cut_is_seen() -> None:
    stream = packed(GOOD, 50)
    for end in range(len(stream)):
        with pytest.raises(InvalidBackup):
            read(stream[:end])


def test_entries_are_found_within_the_given_bytes() -> None:
    """Each cut is in a block of memory of its own, behind which nothing may be read."""
    for end in range(len(GOOD)):
        part = np.frombuffer(GOOD[8:end], np.uint8).copy()
        entries, consumed = np.zeros((9, 6), np.int64), ctypes.c_int64()
        count = library().nats_archive_scan(
            *(part.ctypes, len(part), 9, 2**20, entries.ctypes, ctypes.byref(consumed))
        )
        ends = [row[0] + row[1] + row[4] + row[5] for row in entries[:count].tolist()]
        assert max(ends, default=0) == consumed.value <= len(part)
        assert count == sum(len(GOOD[8:end]) >= place for place in ENDS)


def test_a_json_that_is_nested_too_deep() -> None:
    text = b"[" * 100_000
    raw = b"NATSARC1\x0a\x02\x00\x00\xa0\x8d\x06state.json" + text
    with refused(InvalidBackup, "backup-state-invalid", reason=re.compile("recursion limit")):
        read(packed(raw))


@pytest.mark.parametrize(
    ("consumers", "size"), [(1, 16_000_000), (3, 6_000_000), (50_000, 1)], ids=str
)
def test_consumers_that_are_far_larger_than_the_file(consumers: int, size: int) -> None:
    described = {"config": {}, "state": {"x": [0] * (size // 3)}}
    stream = encoded(archive([], consumers=[(f"{n:05}", described) for n in range(consumers)]))
    assert len(stream) < 1_000_000
    with refused(InvalidBackup, "backup-unpacked-fault", reason="entry-too-large"):
        read_head(io.BytesIO(stream))


def test_headers_come_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEADERS_AT_ONCE", 100)
    sizes = [0, 0, 60, 30, 70, 250, 0, 1]
    messages = [(b"a", 1, n, b"h" * size, b"x") for n, size in enumerate(sizes, 1)]
    file = io.BytesIO(packed(archive(messages)))
    (batch,) = read_messages(file, read_head(file).messages)
    parts = [part.sequences.tolist() for part in batch.parts()]
    assert parts == [[1, 2], [3, 4], [5], [6, 7, 8]]


def test_large_messages_and_many_small_ones() -> None:
    """More than the reader holds at a time, of either kind."""
    large: list[Entry] = [(b"l", 1, n, b"", bytes([n]) * 7_000_000) for n in range(1, 5)]
    small: list[Entry] = [(b"s", 1, n, b"", b"") for n in range(10, 70_000)]
    stream = encoded(archive(large + small))
    assert first_bytes(io.BytesIO(stream)) == b"NATSARC1"
    assert read(stream)[1] == large + small
