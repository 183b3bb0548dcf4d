"""Whether an Avro file is whole. Iceberg's manifests and lists of manifests are such files.

PyIceberg (0.12) takes a file that was cut for one with fewer entries, or reads memory behind its
end. A warehouse that was not copied to the end has such files.
"""

from __future__ import annotations

_MAGIC = b"Obj\x01"
_SYNC = 16  # bytes of the marker that ends the header and every block


def is_whole(data: bytes) -> bool:
    """Whether the header and all blocks are there, and nothing else.

    PyIceberg writes a block even into a list of nothing, so a file without one was cut.

    Source: the chapter "Object Container Files" of the Avro specification.
    """
    try:
        at = _end_of_header(data)
        sync = data[at - _SYNC : at]
        while True:
            _, at = _number(data, at)
            size, at = _number(data, at)
            at += size + _SYNC
            if size < 0 or data[at - _SYNC : at] != sync:
                return False
            if at == len(data):
                return True
    except (IndexError, ValueError):
        return False


def _end_of_header(data: bytes) -> int:
    """Where the header ends: the magic, a map of texts to bytes, and the marker."""
    if not data.startswith(_MAGIC):
        raise ValueError
    count, at = _number(data, len(_MAGIC))
    while count:
        if count < 0:  # then the size of the entries follows
            count = -count
            _, at = _number(data, at)
        for _ in range(2 * count):  # each ends, as it takes a byte at least
            size, at = _number(data, at)
            if size < 0:
                raise ValueError
            at += size
        count, at = _number(data, at)
    return at + _SYNC


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number, in the zigzag form of up to ten bytes, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError
