"""Which outcomes differ from those that the mappings make: every row is judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from expectations.measures.rows import flags
from nats_transform import AccountMappings
from nats_transform.kernel.counting import texts
from nats_transform.kernel.proof import IS_SAME, Opinion, Proof


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
            words.are_in(rows.column(name), opinion.states) for name, words in self._words.items()
        )
        draws, is_drawn = rows.column("draw"), opinion.draws >= 0
        drawn = flags(draws.is_valid()) == is_drawn
        drawn &= ~is_drawn | (np.asarray(draws.fill_null(0)) == opinion.draws)
        is_right = (opinion.marks & IS_SAME > 0) & fate & reason & source & destination & drawn
        return Judged(opinion, is_right, source & destination)


class _Words:
    """The word of each state, as numbers that can be compared at once."""

    def __init__(self, of_states: Sequence[str | None]) -> None:
        self._known: dict[str | None, int] = {}
        numbers = [self._known.setdefault(word, len(self._known)) for word in of_states]
        self._expected = np.array(numbers, np.int32)

    def are_in(self, column: pa.Array, states: np.ndarray) -> np.ndarray:
        """Whether each value of a column is the word of its state."""
        found = texts(column)
        numbers = np.array([self._known.get(word, -1) for word in found.values], np.int32)
        same: np.ndarray = numbers[found.numbers] == self._expected[states]
        return same
