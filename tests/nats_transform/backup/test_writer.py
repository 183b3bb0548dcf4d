"""The writer of archives: what it counts is what the server shows of the stream."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pytest

from nats_transform.backup.archive import read_head, read_messages
from nats_transform.backup.writer import ArchiveWriter, utc
from nats_transform.errors import InvalidBackup

T = 1_700_000_000_000_000_001


def write(writer: ArchiveWriter, sequences: Sequence[int], headers: bytes | None = None) -> None:
    """Messages of 3 bytes of subject and 1 byte of data, a second apart."""
    count = len(sequences)
    writer.write(
        pa.array(sequences, pa.int64()),
        pa.array([T + n * 10**9 for n in sequences], pa.int64()),
        *(pa.array([text] * count, pa.binary()) for text in (b"a.b", headers, b"x")),
    )


@pytest.mark.parametrize(("is_memory", "size"), [(False, 3 * 34 + 4 + 14), (True, 3 * 20 + 14)])
def test_the_state_of_a_stream(is_memory: bool, size: int) -> None:
    file = io.BytesIO()
    consumer = {"config": {"durable_name": "c"}, "state": {"delivered": {}}}
    writer = ArchiveWriter(file, {"c": consumer}, is_memory)
    write(writer, [3, 5])
    write(writer, [])
    write(writer, [9], b"NATS/1.0\r\n\r\n12")
    state = writer.close(last=12)
    assert state == {
        "messages": 3,
        "bytes": size,
        "first_seq": 3,
        "first_ts": "2023-11-14T22:13:23.000000001Z",
        "last_seq": 12,
        "last_ts": "2023-11-14T22:13:29.000000001Z",
        "consumer_count": 1,
    }
    file.seek(0)
    head = read_head(file)
    assert head.state == state
    assert list(head.consumers) == ["c"]
    assert sum(len(batch.subjects()) for batch in read_messages(file, head.messages)) == 3


@pytest.mark.parametrize("last", [0, 7])
def test_the_state_of_a_stream_without_messages(last: int) -> None:
    state = ArchiveWriter(io.BytesIO(), {}).close(last)
    assert (state["first_seq"], state["last_seq"]) == (last + 1, last)
    assert state["first_ts"] == state["last_ts"] == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize(("sequences", "after"), [([4, 4], 0), ([0], 0), ([5, 6], 5)])
def test_sequences_that_do_not_rise(sequences: list[int], after: int) -> None:
    writer = ArchiveWriter(io.BytesIO(), {})
    if after:
        write(writer, [after])
    with pytest.raises(InvalidBackup):
        write(writer, sequences)


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (T + 119_999_999, "2023-11-14T22:13:20.12Z"),
        (951_782_400 * 10**9, "2000-02-29T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
    ],
)
def test_times_are_written_as_the_server_does(time: int, text: str) -> None:
    assert utc(time) == text
