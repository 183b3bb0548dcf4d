"""Runs messages through the scalar library and the kernel, and finds the first difference."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

import pyarrow as pa

from nats_transform import AccountMappings, Outcome, StreamConfig, StreamSource
from nats_transform.kernel import (
    Program,
    compile_ingress,
    compile_mappings,
    compile_republish,
    compile_take,
)
from nats_transform.mappings.subject import decode, encode


@dataclass(frozen=True)
class Message:
    subject: str | None
    cluster: str | None = None
    stream: str | None = "S"
    seq: int | None = 1


@dataclass(frozen=True)
class Case:
    """Messages to be held against a program and the scalar function that it equals."""

    program: Program
    replay: Callable[[Message], Outcome] = field(repr=False)
    messages: Sequence[Message] = field(repr=False)
    origin: object = None


def mappings_case(mappings: AccountMappings, messages: Sequence[Message], seed: int = 0) -> Case:
    def replay(m: Message) -> Outcome:
        return mappings.replay(m.subject, m.cluster, stream=m.stream, seq=m.seq, seed=seed)

    return Case(compile_mappings(mappings, seed), replay, messages, (mappings, seed))


def _stream_case(
    compiled: Callable[..., Program],
    replay_of: Callable[[Any], Callable[..., Outcome]],
    config: StreamConfig | StreamSource,
    messages: Sequence[Message],
    seed: int = 0,
) -> Case:
    def replay(m: Message) -> Outcome:
        return replay_of(config)(m.subject, stream=m.stream, seq=m.seq, seed=seed)

    return Case(compiled(config, seed), replay, messages, (config, seed))


ingress_case = partial(_stream_case, compile_ingress, attrgetter("replay"))
republish_case = partial(_stream_case, compile_republish, attrgetter("replay_republish"))
take_case = partial(_stream_case, compile_take, attrgetter("replay"))


def texts(values: Sequence[str | None], kind: pa.DataType | None = None) -> pa.Array:
    """An array of texts of any bytes, binary or of the same layout, with nothing behind them."""
    raw = [None if value is None else encode(value) for value in values]
    wide = kind in (pa.large_string(), pa.large_binary())
    array = pa.array(raw, pa.large_binary() if wide else pa.binary())
    array = pa.Array.from_buffers(
        array.type, len(array), [b and exact_buffer(b.size, b) for b in array.buffers()]
    )
    return array.view(kind) if kind else array


def exact_buffer(size: int, content: pa.Buffer | None = None) -> pa.Buffer:
    """A block of memory of its own, of this size exactly: Arrow's are a little larger."""
    block = ctypes.create_string_buffer(max(size, 1))
    if content is not None:
        ctypes.memmove(block, content.address, size)
    return pa.foreign_buffer(ctypes.addressof(block), size, block)


def outcomes(batch: pa.RecordBatch) -> list[Outcome]:
    """What the rows of a batch say."""
    columns = [column.to_pylist() for column in batch.columns]
    return [
        Outcome(_text(subject), fate, _text(source), _text(destination), draw, reason)
        for subject, fate, reason, source, destination, draw in zip(*columns, strict=True)
    ]


def compare(case: Case, *, text: Callable[[Sequence[str | None]], pa.Array] = texts) -> int:
    """Asserts that the kernel gives what the scalar path gives; returns how many rows it saw.

    Args:
        case: what to compare.
        text: makes the arrays of texts.
    """
    messages = case.messages
    batch = case.program.apply(
        text([m.subject for m in messages]),
        cluster=text([m.cluster for m in messages]),
        stream=text([m.stream for m in messages]),
        seq=pa.array([m.seq for m in messages], pa.int64()),
    )
    batch.validate(full=True)
    found = outcomes(batch)
    assert len(found) == len(messages)
    for message, outcome in zip(messages, found, strict=True):
        assert outcome == case.replay(message), (case.origin, message)
    return len(found)


def _text(data: bytes | None) -> str | None:
    return None if data is None else decode(data)


def slices(values: Sequence[str | None]) -> pa.Array:
    """A slice that starts within a byte of the bits that say what is null."""
    return texts([None, "not.ours", "x", *values, "behind"]).slice(3, len(values))


LAYOUTS = {
    "binary": texts,
    "large": partial(texts, kind=pa.large_binary()),
    "string": partial(texts, kind=pa.string()),
    "dictionary": lambda values: texts(values).dictionary_encode(),
    "slice": slices,
}
