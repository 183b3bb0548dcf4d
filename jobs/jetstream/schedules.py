"""Schedules of an archive that still wait, and the subjects that they name under their new names.

nats-server's scheduler publishes to the target of a schedule inside its stream, perhaps with the
last message of a source; no account mapping applies there. So both must change where they move.
Only the first header of a name counts, letter by letter, as nats-server reads it.

A schedule that fired is gone from its stream, but an archive may still have its message: a later
message names it and says `purge`. It must not fire again.

Source: nats-server 2.15.1 `server/scheduler.go`, `getHeaderKeyIndex` in `server/client.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress

import numpy as np
import pyarrow as pa

from jobs.jetstream import wire
from jobs.jetstream.headers import first_values
from nats_transform import AccountMappings
from nats_transform.mappings.subject import decode, encode

SCHEDULE = b"Nats-Schedule"
TARGET = b"Nats-Schedule-Target"
NAMING = (TARGET, b"Nats-Schedule-Source")
"""The headers of a schedule that name a subject."""
COLUMNS = ("seq", "subject", "mapped_subject", "headers")
"""What `Rewriting.of` reads."""
_SCHEDULER, _NEXT = b"Nats-Scheduler", b"Nats-Schedule-Next"
_NAMES = (SCHEDULE, *NAMING, _SCHEDULER, _NEXT)


def schedules_in(headers: pa.ListArray) -> int:
    """How many messages have a schedule."""
    return len(first_values(headers, [SCHEDULE]))


@dataclass
class _Schedule:
    """A schedule that waits.

    Attributes:
        stored: the subject that its message gets.
        named: the first value of each header that names a subject.
    """

    seq: int
    stored: bytes
    named: dict[bytes, bytes]


@dataclass
class Rewriting:
    """The schedules of an archive that wait, with their new headers.

    Attributes:
        values: for the sequence of each schedule, the new values of the headers that change.
        faults: for the sequence of each other schedule that waits, why it cannot be rewritten.
        fired: how many schedules fired or were replaced, as later messages show.
    """

    values: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
    faults: dict[int, wire.Unsendable] = field(default_factory=dict)
    fired: int = 0

    @property
    def rewritten(self) -> dict[str, int]:
        """How many headers change, by their names."""
        return dict(Counter(name.decode() for new in self.values.values() for name in new))

    @classmethod
    def of(
        cls,
        batches: Iterable[pa.RecordBatch],
        chosen: Iterable[pa.RecordBatch] | None,
        mappings: AccountMappings,
        fault: Callable[[str], str | None],
    ) -> Rewriting:
        """The schedules among chosen messages.

        Args:
            batches: all messages of a stream, in any order, with the `COLUMNS`: whether a schedule
                fired may stand in a message that is not chosen.
            chosen: the sequences of the chosen ones; None chooses all.
            fault: why the stream that gets the schedules does not store a subject.
        """
        rewriting = cls()
        waiting, rewriting.fired = _waiting(batches)
        numbers = np.array([schedule.seq for schedule in waiting], np.int64)
        is_chosen = np.full(len(waiting), chosen is None)
        for rows in chosen or () if waiting else ():
            is_chosen |= np.isin(numbers, rows.column("seq").to_numpy())
        renamed = lru_cache(100_000)(lambda subject: new_name(mappings, subject, fault))
        for schedule in compress(waiting, is_chosen):
            changed: dict[bytes, bytes] = {}
            for name, old in schedule.named.items():
                new, why = renamed(old)
                if why or new == schedule.stored:
                    rewriting.faults[schedule.seq] = wire.Unsendable(
                        "schedule-not-rewritten" if why else "schedule-of-itself",
                        about="schedule",
                        header=name.decode(),
                        subject=wire.shown(old),
                        why=why,
                        new=wire.shown(new),
                    )
                    break
                if new != old:
                    changed[name] = new
            else:
                rewriting.values[schedule.seq] = changed
        return rewriting

    def lines(self, seq: int, lines: Sequence[bytes]) -> list[bytes] | None:
        """The lines of a schedule's header block with the new values; None for other messages.

        Raises:
            Unsendable: it is a schedule that cannot be rewritten.
        """
        if seq in self.faults:
            raise self.faults[seq]
        if seq not in self.values:
            return None
        left, rewritten = dict(self.values[seq]), list(lines)
        for place, line in enumerate(lines):
            name, colon, value = line.partition(b":")
            if colon and name in left:
                blanks = value[: len(value) - len(value.lstrip(b" "))]
                rewritten[place] = name + colon + blanks + left.pop(name)
        return rewritten

    def blocks(self, sequences: pa.Array, blocks: pa.Array) -> pa.Array:
        """Header blocks of messages, with the new values in those of schedules.

        Raises:
            Unsendable: a block gets too long.
        """
        numbers = sequences.to_numpy()
        rows = np.flatnonzero(np.isin(numbers, [*self.values]))
        if not len(rows):
            return blocks
        texts = blocks.to_pylist()
        for row in rows.tolist():
            version, *lines = texts[row].split(b"\r\n")
            new = b"\r\n".join([version, *(self.lines(int(numbers[row]), lines) or lines)])
            if len(new) > wire.MAX_HEADERS:
                raise wire.Unsendable(
                    "schedule-headers-too-large",
                    about="size",
                    sequence=numbers[row],
                    size=len(new),
                    most=wire.MAX_HEADERS,
                )
            texts[row] = new
        return pa.array(texts, pa.binary())


def _waiting(batches: Iterable[pa.RecordBatch]) -> tuple[list[_Schedule], int]:
    """The schedules that wait, and how many others there are."""
    last: dict[bytes, _Schedule] = {}
    purged: dict[bytes, int] = {}
    schedules = 0
    for batch in batches:
        for row, named in first_values(batch.column("headers"), _NAMES):
            seq = int(batch.column("seq")[row].as_py())
            if named.get(_NEXT) == b"purge" and (scheduler := named.get(_SCHEDULER)):
                purged[scheduler] = max(seq, purged.get(scheduler, 0))
            if named.get(SCHEDULE):
                schedules += 1
                old = _text(batch, "subject", row) or b""
                if old not in last or last[old].seq < seq:
                    stored = _text(batch, "mapped_subject", row) or old
                    # Every server refuses a schedule without a target.
                    named.setdefault(TARGET, b"")
                    kept = {name: named[name] for name in NAMING if name in named}
                    last[old] = _Schedule(seq, stored, kept)
    waiting = [s for old, s in last.items() if s.seq > purged.get(old, 0)]
    return sorted(waiting, key=lambda s: s.seq), schedules - len(waiting)


def _text(batch: pa.RecordBatch, column: str, row: int) -> bytes | None:
    text: bytes | None = batch.column(column).slice(row, 1).view(pa.binary())[0].as_py()
    return text


def new_name(
    mappings: AccountMappings, old: bytes, fault: Callable[[str], str | None] = lambda subject: None
) -> tuple[bytes, str]:
    """The one subject that messages under a subject get, and what is wrong with it; "" if nothing.

    Args:
        fault: why the new subject cannot be stored.
    """
    if not wire.is_literal(old):
        return b"", "is not a subject that a message can have"
    subject = decode(old)
    mapping = mappings.match(subject)
    scopes = (None,) if mapping is None else mapping.scopes
    ends = {
        outcome.subject
        for scope in scopes
        for outcome, _ in mappings.outcomes_of(mapping, subject, scope)
    }
    # A random() stays as it is written among the ends.
    if len(ends) > 1 or mappings.apply(subject).subject not in ends:
        return b"", "has no single new subject: weights, random() or the cluster decide"
    (new,) = ends
    if new is None:
        return b"", "is lost by its mapping"
    if not wire.is_literal(encode(new)):
        return b"", f"would get the new subject '{wire.shown(encode(new))}', which is not legal"
    why = fault(new)
    shown = wire.shown(encode(new))
    return encode(new), f"would be '{shown}': {why}" if why else ""
