"""Messages made of archived rows, many at a time, by Spark's workers.

Two looks at the same rows: `look` says which subjects there are and what cannot be sent, without
the payloads; `pack` gives the messages themselves. Both make them in the same way (`Making`), so
what passes the first is what the second sends.

The rows come as columns `seq, ts_ns, to` (the subject), `headers, headers_raw, size` (of the
payload) and `data`; texts as bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.jetstream import wire
from jobs.jetstream.chain import CHAIN_BYTES
from jobs.jetstream.control import OWN, outgoing
from jobs.jetstream.target import SOURCE

TIME = OWN + b"Time"
EXAMPLES = 3
"""How many of the messages that cannot be sent are named."""
_BLOB_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Making:
    """How Spark's workers make messages out of rows.

    Attributes:
        version, stream: of the archive, as `SOURCE` has them.
        acts: headers that act again.
        most: bytes that the headers and the payload of a message may have together.
    """

    version: bytes
    stream: bytes
    acts: frozenset[str]
    most: int

    def head(
        self,
        seq: int,
        ts_ns: int,
        archived: bytes | list[tuple[bytes, bytes]],
        subject: bytes,
        size: int,
    ) -> bytes:
        """The header block of a message, without the empty line at its end.

        Raises:
            Unsendable: the protocol or the target cannot carry the message.
        """
        wire.literal(subject)
        if isinstance(archived, bytes):
            # Without its first line, whose status the server drops as well.
            lines = archived.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
        else:
            lines = [wire.header(name, value) for name, value in archived]
        added = [
            b"%b: %b %d %b" % (SOURCE, self.version, seq, self.stream),
            b"%b: %b" % (TIME, iso_time(ts_ns).encode()),
        ]
        block = b"\r\n".join([b"NATS/1.0", *added, *outgoing(lines, self.acts), b""])
        most = min(self.most - size, wire.MAX_HEADERS) - CHAIN_BYTES
        if len(block) > most:
            raise wire.Unsendable(
                "size", f"{len(block) + size} bytes of headers and payload are too many"
            )
        return block


def iso_time(ts_ns: int) -> str:
    """A time in nanoseconds since 1970 as ISO 8601 with nine decimals, UTC."""
    seconds, nanoseconds = divmod(ts_ns, 1_000_000_000)
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{nanoseconds:09}Z"


def _archived(batch: pa.RecordBatch) -> Iterator[bytes | list[tuple[bytes, bytes]]]:
    """The header block of each row as it was stored, or the pairs that it is made of."""
    headers = batch.column("headers")
    pairs = headers.flatten()
    names, values = (pairs.field(name).to_pylist() for name in ("name", "value"))
    at = 0
    for count, raw in zip(
        headers.value_lengths().to_pylist(), batch.column("headers_raw").to_pylist(), strict=True
    ):
        end = at + (count or 0)
        if raw is not None:
            yield raw
        else:
            # A value that is null is an empty one.
            found = zip(names[at:end], values[at:end], strict=True)
            yield [(name or b"", value or b"") for name, value in found]
        at = end


def _made(
    making: Making, batch: pa.RecordBatch
) -> Iterator[tuple[int, bytes, bytes, wire.Unsendable | None]]:
    """Sequence, subject, header block and fault of each row."""
    columns = (batch.column(n).to_pylist() for n in ("seq", "ts_ns", "to", "size"))
    for seq, ts_ns, to, size, archived in zip(*columns, _archived(batch), strict=True):
        subject = to or b""
        try:
            yield seq, subject, making.head(seq, ts_ns, archived, subject, size), None
        except wire.Unsendable as fault:
            yield seq, subject, b"", fault


LOOKED = "to binary, reason string, messages long, first long, example string"
_LOOKED_SCHEMA = pa.schema(
    [("to", pa.binary()), ("reason", pa.string()), ("messages", pa.int64()),
     ("first", pa.int64()), ("example", pa.string())]
)  # fmt: skip


def look(making: Making, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each subject and what is wrong with its messages, with how many and the first of them."""
    for batch in batches:
        counts: Counter[tuple[bytes, str | None]] = Counter()
        faults: dict[str, list[tuple[int, str]]] = {}
        for seq, subject, _, fault in _made(making, batch):
            if fault is None:
                counts[subject, None] += 1
            else:
                # The subject of a message that cannot be sent does not matter any more.
                counts[b"", fault.reason] += 1
                faults.setdefault(fault.reason, []).append((seq, str(fault)))
        rows: list[Any] = []
        for (subject, reason), messages in counts.items():
            examples = sorted(faults[reason])[:EXAMPLES] if reason else [(0, None)]
            rows += [
                (subject, reason, 0 if n else messages, *example)
                for n, example in enumerate(examples)
            ]
        if rows:
            columns = zip(zip(*rows, strict=True), _LOOKED_SCHEMA.types, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, kind) for column, kind in columns], schema=_LOOKED_SCHEMA
            )


PACKED = pa.schema(
    [("seq", pa.int64()), ("to", pa.binary()), ("head", pa.binary()), ("data", pa.binary())]
)


def pack(making: Making, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The messages that can be sent, many in one value: Spark hands over few large rows quickly."""
    for batch in batches:
        seqs, subjects, heads, take = [], [], [], []
        for row, (seq, subject, head, fault) in enumerate(_made(making, batch)):
            if fault is None:
                seqs.append(seq)
                subjects.append(subject)
                heads.append(head)
                take.append(row)
        packed = pa.RecordBatch.from_arrays(
            [
                pa.array(seqs, pa.int64()),
                pa.array(subjects, pa.binary()),
                pa.array(heads, pa.binary()),
                batch.column("data").take(pa.array(take, pa.int64())),
            ],
            schema=PACKED,
        )
        step = max(1, len(packed) * _BLOB_BYTES // max(packed.nbytes, 1))
        for at in range(0, len(packed), step):
            blob = packed.slice(at, step).serialize().to_pybytes()
            yield pa.RecordBatch.from_arrays([pa.array([blob], pa.binary())], names=["blob"])
