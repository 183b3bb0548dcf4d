"""Which outcomes differ from those that the mappings make: every row is judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from expectations.measures.rows import flags, numbers_of, words
from nats_transform import AccountMappings
from nats_transform.kernel.proof import IS_SAME, Opinion, Proof
from nats_transform.mappings.subject import encode


@dataclass(frozen=True, slots=True)
class Judged:
    """Rows of a batch, compared with what should have become of them.

    Attributes:
        opinion: what should have.
        is_right: whether a row is so in all columns of its outcome.
        is_of_end: whether it names the mapping and the destination that decide.
    """

    opinion: Opinion
    is_right: np.ndarray
    is_of_end: np.ndarray


class Outcomes:
    """The outcomes that mappings make; it can be sent to a task.

    Attributes:
        proof: the mappings.
    """

    def __init__(self, mappings: AccountMappings, seed: int) -> None:
        self.proof = Proof(mappings, seed)
        states = self.proof.states
        self._words = {
            "fate": _Words([state.fate.value for state in states]),
            "reason": _Words([state.reason for state in states]),
            "mapping_source": _Words([state.source for state in states]),
            "mapping_destination": _Words([state.destination for state in states]),
        }

    def judge(self, rows: pa.RecordBatch) -> Judged:
        """Compares each row of a batch."""
        opinion = self.proof.judge(rows)
        fate, reason, source, destination = (
            expected.are_in(rows.column(name), opinion.states)
            for name, expected in self._words.items()
        )
        is_right = (opinion.marks & IS_SAME > 0) & fate & reason & source & destination
        return Judged(opinion, is_right & _are_drawn(rows, opinion), source & destination)


def _are_drawn(rows: pa.RecordBatch, opinion: Opinion) -> np.ndarray:
    """Whether the rows have the draws that they should have."""
    draws, is_drawn = rows.column("draw"), opinion.draws >= 0
    found: np.ndarray = flags(draws.is_valid()) == is_drawn
    found &= ~is_drawn | (draws.fill_null(0).to_numpy() == opinion.draws)
    return found


class _Words:
    """The word of each state, as numbers that can be compared at once."""

    def __init__(self, of_states: Sequence[str | None]) -> None:
        self._known: dict[bytes | None, int] = {None: 0}
        self._expected = np.array(list(self._numbers(of_states)), np.int32)

    def _numbers(self, of_states: Sequence[str | None]) -> Iterator[int]:
        for word in of_states:
            yield self._known.setdefault(None if word is None else encode(word), len(self._known))

    def are_in(self, column: pa.Array, states: np.ndarray) -> np.ndarray:
        """Whether each value of a column is the word of its state."""
        found = words(column)
        there = found.dictionary.view(pa.binary()).to_pylist()
        numbers = np.array([*(self._known.get(word, -1) for word in there), 0], np.int32)
        same: np.ndarray = numbers[numbers_of(found)] == self._expected[states]
        return same
