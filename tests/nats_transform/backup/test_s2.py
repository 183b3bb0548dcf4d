"""The decoder and encoder of S2, against the specification read byte by byte."""

from __future__ import annotations

import io
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_transform.backup.s2 import LARGEST_BLOCK, Decoder, Encoder
from nats_transform.errors import InvalidBackup
from tests.support.backups import IDENTIFIER, chunk, packed, unpack_block, varint
from tests.support.refused import refused, told


def decoded(stream: bytes, room: int = LARGEST_BLOCK) -> bytes:
    """What a stream unpacks to, so many bytes at a time."""
    decoder, out, found = Decoder(io.BytesIO(stream)), np.empty(room, np.uint8), b""
    while made := decoder.into(out):
        found += out[:made].tobytes()
    return found


def encoded(data: bytes) -> bytes:
    """The stream that our encoder makes."""
    file = io.BytesIO(IDENTIFIER)
    file.seek(0, io.SEEK_END)
    encoder = Encoder(file)
    for at in range(0, len(data), 700_000):
        encoder.write(data[at : at + 700_000])
    encoder.close()
    return file.getvalue()


def literal(data: bytes) -> bytes:
    return bytes([(len(data) - 1) << 2]) + data


# What unpacks to something: the rest of a block after its length, and what comes of it.
BLOCKS = {
    "literal": (literal(b"abc"), b"abc"),
    "literal-length-in-a-byte": (bytes([60 << 2, 99]) + b"x" * 100, b"x" * 100),
    "literal-length-in-four-bytes": (bytes([63 << 2, 2, 0, 0, 0]) + b"abc", b"abc"),
    "copy-with-one-byte": (literal(b"abcd") + b"\x01\x04", b"abcdabcd"),
    "copy-with-two-bytes": (literal(b"abcd") + b"\x0e\x04\x00", b"abcdabcd"),
    "copy-with-four-bytes": (literal(b"abcd") + b"\x0f\x04\0\0\0", b"abcdabcd"),
    "copy-of-what-it-writes": (literal(b"ab") + b"\x1d\x01", b"ab" + b"b" * 11),
    "repeat": (literal(b"abcd") + b"\x01\x04\x01\x00", b"abcd" * 3),
    "repeat-8-bits": (literal(b"ab") + b"\x01\x02\x15\x00\x05", b"ab" * 9 + b"a"),
    "repeat-16-bits": (literal(b"ab") + b"\x01\x02\x19\x00\x00\x00", b"ab" * 133),
    "repeat-24-bits": (literal(b"ab") + b"\x01\x02\x1d\x00\x00\x00\x01", b"ab" * 65541),
}
BROKEN = {
    "repeat-of-nothing": b"\x01\x00",
    "copy-from-before-the-start": literal(b"ab") + b"\x01\x03",
    "copy-with-offset-0": literal(b"ab") + b"\x02\x00\x00",
    "copy-cut-off": literal(b"ab") + b"\x01",
    "repeat-cut-off": literal(b"ab") + b"\x01\x01\x15\x00",
    "literal-cut-off": b"\x08ab",
    "literal-length-cut-off": bytes([62 << 2, 1]),
    "literal-of-4-gb": bytes([63 << 2, 255, 255, 255, 255]),
}


@pytest.mark.parametrize(("rest", "result"), BLOCKS.values(), ids=BLOCKS)
def test_blocks(rest: bytes, result: bytes) -> None:
    block = varint(len(result)) + rest
    assert unpack_block(block) == result
    assert decoded(IDENTIFIER + chunk(0, block, result), len(result)) == result


@pytest.mark.parametrize("rest", BROKEN.values(), ids=BROKEN)
def test_broken_blocks(rest: bytes) -> None:
    for length in (0, 1, 2, 10, 100):
        block = varint(length) + rest
        with pytest.raises((ValueError, IndexError)):
            unpack_block(block)
        with refused(InvalidBackup, "backup-packed-fault", reason="s2-damaged"):
            decoded(IDENTIFIER + chunk(0, block, b""), length)


SNAPPY = b"\xff\x06\0\0sNaPpY"
BROKEN_STREAMS = {
    "another-format": (b"PK\x03\x04\0\0\0\0", "s2-not-a-stream"),
    "no-identifier": (chunk(1, b"x", b"x"), "s2-not-a-stream"),
    "another-identifier": (b"\xff\x06\0\0S2sTwX", "s2-not-a-stream"),
    "short-identifier": (b"\xff\x05\0\0S2sTw", "s2-not-a-stream"),
    "cut-in-the-identifier": (IDENTIFIER[:-1], "backup-cut-off-at"),
    "cut-in-a-chunk": (packed(b"abc")[:-1], "backup-cut-off-at"),
    "checksum": (IDENTIFIER + chunk(1, b"abd", b"abc"), "s2-checksum"),
    "unknown-chunk": (IDENTIFIER + chunk(2, b""), "s2-unknown-chunk"),
    "no-checksum": (IDENTIFIER + chunk(1, b"abc"), "s2-damaged"),
    "block-of-more-than-4-mb": (
        IDENTIFIER + chunk(0, varint(4 * 2**20 + 1) + b"\0", b"x"),
        "s2-damaged",
    ),
    "block-that-snappy-does-not-have": (
        SNAPPY + chunk(0, varint(2**16 + 1) + b"\0", b"x"),
        "s2-damaged",
    ),
    "length-of-more-than-32-bits": (
        IDENTIFIER + chunk(0, b"\xff\xff\xff\xff\xff\x01", b"x"),
        "s2-damaged",
    ),
}


@pytest.mark.parametrize(("stream", "code"), BROKEN_STREAMS.values(), ids=BROKEN_STREAMS)
def test_broken_streams(stream: bytes, code: str) -> None:
    with pytest.raises(InvalidBackup) as caught:
        decoded(stream)
    assert code in told(caught.value)


def test_skips_what_is_not_data() -> None:
    stream = IDENTIFIER + chunk(0xFE, b"padding") + packed(b"abc") + chunk(0x99, b"an index")
    assert decoded(stream) == b"abc"
    assert decoded(b"") == decoded(IDENTIFIER) == b""


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 80))
def test_any_block_is_read_as_the_specification_says(rest: bytes, length: int) -> None:
    block = varint(length) + rest
    try:
        result = unpack_block(block)
    except (ValueError, IndexError):
        with refused(InvalidBackup, "backup-packed-fault", reason="s2-damaged"):
            decoded(IDENTIFIER + chunk(0, block, b""), length)
        return
    assert decoded(IDENTIFIER + chunk(0, block, result), length) == result


def test_copies_of_all_lengths_and_offsets() -> None:
    """Near the end of a block there is no room to copy more than is asked for."""
    for offset in range(1, 40):
        start = bytes(range(offset))
        for count in range(1, 65):
            block = literal(start) + bytes([(count - 1) << 2 | 2, offset, 0])
            result = (start * (count + 1))[: offset + count]
            whole = varint(len(result)) + block
            assert decoded(IDENTIFIER + chunk(0, whole, result), len(result)) == result


@pytest.mark.parametrize("size", [0, 1, 100, 2**20 - 1, 2**20, 2**20 + 1, 3_000_000])
@pytest.mark.parametrize("kind", ["random", "zeros", "text"])
def test_what_is_encoded_is_decoded(kind: str, size: int) -> None:
    data = {
        "random": random.Random(0).randbytes(size),
        "zeros": bytes(size),
        "text": (b"orders.eu.%d " * (size // 10 + 1))[:size],
    }[kind]
    stream = encoded(data)
    assert decoded(stream) == data
    if kind != "random" and size > 1000:
        assert len(stream) < size / 10


def test_snappy_framing_is_read() -> None:
    """As kept libraries write it; Arrow's own blocks are those of the format."""
    data = b"one two one two three one two " * 50
    block = pa.Codec("snappy").compress(data, asbytes=True)
    assert decoded(SNAPPY + chunk(0, block, data)) == data
