"""The draw of a message: a pure function of (seed, stream, sequence, mapping).

nats-server draws at random for every message, so two runs of it never agree. Here the same message
under the same mapping and seed always draws the same number, on any engine. The hash is XXH64,
chained column by column as in Spark's `xxhash64`, so that SQL can compute it too.

All outputs depend on this hash, and a mapping version stands for one output. So a change here must
raise `FORMAT` in `nats_transform.config.version`.
"""

from __future__ import annotations

import struct

import xxhash

from nats_transform.mappings.subject import encode

_MASK = 2**64 - 1
_SPARK_SEED = 42  # the fixed seed with which Spark's xxhash64 starts its chain


def mapping_key(seed: int, mapping: str) -> int:
    """The signed 64-bit key that tells apart the draws of one message under different mappings.

    Args:
        seed: any integer; the seed of the run.
        mapping: the source of the mapping, or the place of a stream's transform.
    """
    return _signed(xxhash.xxh64_intdigest(encode(mapping), seed & _MASK))


def message_entropy(stream: str | None, seq: int | None, key: int) -> int:
    """The unsigned 64 bits from which the draw and every `random()` of a message are taken.

    Equals `xxhash64(stream, seq, key)` in Spark, where a NULL is skipped.

    Args:
        stream: the stream of the message.
        seq: its sequence in the stream.
        key: the `mapping_key` of the mapping that matched.
    """
    entropy = _SPARK_SEED
    if stream is not None:
        entropy = xxhash.xxh64_intdigest(encode(stream), entropy)
    if seq is not None:
        entropy = _chain(entropy, seq)
    return _chain(entropy, key)


def draw_of(entropy: int) -> int:
    """The draw, 0 to 99, that stands for nats-server's random choice by weight."""
    return _signed(entropy) % 100


def random_of(entropy: int, slot: int, count: int) -> int:
    """The value of a `random(count)`, 0 to count - 1.

    Args:
        entropy: the bits of the message.
        slot: 0-based position of the function in the destination, so that two functions differ.
        count: how many numbers there are. As in nats-server, 0 gives 0 and the sign is ignored.
    """
    return _signed(_chain(entropy, slot)) % abs(count) if count else 0


def _chain(entropy: int, value: int) -> int:
    return xxhash.xxh64_intdigest(struct.pack("<q", value), entropy)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
