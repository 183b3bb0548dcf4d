"""Stream archives and S2 streams as their specifications say, byte by byte: slow, and short."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, BinaryIO

from nats_transform.backup.archive import Head, read_head, read_messages

Entry = tuple[bytes, int, int, bytes, bytes]  # name, time, sequence, header block, data
END: Entry = (b"", 0, 0, b"", b"")
IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"


def varint(number: int) -> bytes:
    """A number as Go's `binary.PutUvarint` writes it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def zigzag(number: int) -> bytes:
    """A number as Go's `binary.PutVarint` writes it."""
    return varint(number * 2 if number >= 0 else -number * 2 - 1)


def entry(name: bytes, time: int, sequence: int, headers: bytes, data: bytes) -> bytes:
    """An entry of an archive."""
    sizes = varint(sequence) + varint(len(headers)) + varint(len(data))
    return varint(len(name)) + zigzag(time) + sizes + name + headers + data


def state_of(messages: list[Entry], **more: Any) -> dict[str, Any]:
    """What `state.json` says of a stream with these messages."""
    sequences = [message[2] for message in messages]
    return {
        "messages": len(messages),
        "bytes": sum(len(m[0]) + len(m[3]) + len(m[4]) for m in messages),
        "first_seq": min(sequences, default=1),
        "last_seq": max(sequences, default=0),
        "consumer_count": 0,
    } | more


def archive(
    messages: Iterable[Entry],
    state: Any = None,
    consumers: Iterable[tuple[str, Any]] = (),
    end: Iterable[Entry] = (END,),
) -> bytes:
    """The unpacked archive of a stream."""
    messages, consumers = list(messages), list(consumers)
    if state is None:
        state = state_of(messages, consumer_count=len(consumers))
    documents = [("state.json", state), *((f"consumers/{n}", text) for n, text in consumers)]
    entries = [(n.encode(), 5, 0, b"", json.dumps(text).encode()) for n, text in documents]
    return b"NATSARC1" + b"".join(entry(*one) for one in [*entries, *messages, *end])


def read(file: BinaryIO) -> tuple[Head, list[Entry]]:
    """All that a file has, as our reader reads it."""
    head, found = read_head(file), list[Entry]()
    for batch in read_messages(file, head.messages):
        columns = (batch.subjects(), batch.headers(), batch.data())
        subjects, headers, data = (column.to_pylist() for column in columns)
        numbers = (batch.times.tolist(), batch.sequences.tolist())
        found += zip(subjects, *numbers, headers, data, strict=True)
    return head, found


def crc32c(data: bytes) -> int:
    """The checksum with the Castagnoli polynomial, byte by byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_OF[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_OF = [_crc_of(byte) for byte in range(256)]


def chunk(kind: int, body: bytes, checksum_of: bytes | None = None) -> bytes:
    """A chunk of a stream; one with data starts with the masked checksum of what it unpacks to."""
    if checksum_of is not None:
        crc = crc32c(checksum_of)
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        body = masked.to_bytes(4, "little") + body
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def packed(data: bytes, block: int = 100_000) -> bytes:
    """A stream of plain chunks."""
    blocks = [data[at : at + block] for at in range(0, len(data), block)]
    return IDENTIFIER + b"".join(chunk(1, one, one) for one in blocks)


def unpack_block(block: bytes) -> bytes:
    """What a block unpacks to; ValueError or IndexError if it is damaged."""
    length = shift = at = 0
    while True:
        byte = block[at]
        at += 1
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
        if at == 5:
            raise ValueError("too long a number")
    out, offset = bytearray(), 0

    def number(count: int) -> int:
        nonlocal at
        found = block[at : at + count]
        if len(found) < count:
            raise ValueError("cut off")
        at += count
        return int.from_bytes(found, "little")

    while at < len(block):
        tag = number(1)
        if tag & 3 == 0:
            count = (tag >> 2) + 1
            if count > 60:
                count = number(count - 60) + 1
            if at + count > len(block):
                raise ValueError("cut off")
            out += block[at : at + count]
            at += count
            continue
        if tag & 3 == 1:
            count = tag >> 2 & 7
            found = number(1) | (tag & 0xE0) << 3
            if found:
                offset = found
            elif count > 4:
                count = number(count - 4) + (0, 4, 1 << 8, 1 << 16)[count - 4]
            count += 4
        else:
            count = (tag >> 2) + 1
            offset = number(2 if tag & 3 == 2 else 4)
        if not 0 < offset <= len(out) or len(out) + count > length:
            raise ValueError("a copy from or to nowhere")
        for _ in range(count):
            out.append(out[-offset])
    if len(out) != length:
        raise ValueError("another length")
    return bytes(out)
