"""Whether messages, mappings and seed give the outcomes that were written, by other code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from expectations.expectation import Expectation, Row, no_row
from expectations.measures import flags
from nats_transform import AccountMappings
from nats_transform.kernel.counting import texts
from nats_transform.kernel.proof import IS_SAME, Opinion, Proof

OUTCOME = ("mapped_subject", "fate", "mapping_source", "mapping_destination", "draw", "reason")
"""The columns of what an `Outcome` says, in its order."""


class Outcomes:
    """The outcomes that mappings make; it can be sent to a task."""

    def __init__(self, mappings: AccountMappings, seed: int) -> None:
        self.proof = Proof(mappings, seed)
        states = self.proof.states
        self._words = {
            "fate": _Words([state.fate.value for state in states]),
            "reason": _Words([state.reason for state in states]),
            "mapping_source": _Words([state.source for state in states]),
            "mapping_destination": _Words([state.destination for state in states]),
        }

    def judge(self, rows: pa.RecordBatch) -> tuple[Opinion, np.ndarray, np.ndarray]:
        """What should have become of each row of a batch.

        And whether it is so in all columns of its outcome, and whether the row names the mapping
        and the destination that decide.
        """
        opinion = self.proof.judge(rows)
        fate, reason, source, destination = (
            words.are_in(rows.column(name), opinion.states) for name, words in self._words.items()
        )
        draws, is_drawn = rows.column("draw"), opinion.draws >= 0
        drawn = flags(draws.is_valid()) == is_drawn
        drawn &= ~is_drawn | (np.asarray(draws.fill_null(0)) == opinion.draws)
        is_right = (opinion.marks & IS_SAME > 0) & fate & reason & source & destination & drawn
        return opinion, is_right, source & destination


class _Words:
    """The word of each state, as numbers that can be compared at once."""

    def __init__(self, of_states: Sequence[str | None]) -> None:
        self._known: dict[str | None, int] = {}
        numbers = [self._known.setdefault(word, len(self._known)) for word in of_states]
        self._expected = np.array(numbers, np.int32)

    def are_in(self, column: pa.Array, states: np.ndarray) -> np.ndarray:
        """Whether each value of a column is the word of its state."""
        coded = texts(column)
        numbers = np.array([self._known.get(word, -1) for word in coded.values], np.int32)
        same: np.ndarray = numbers.take(coded.numbers) == self._expected.take(states)
        return same


def every_outcome(mappings: AccountMappings, seed: int = 0) -> Expectation:
    """Mapping, draw, destination and new subject of every row are found again by other code."""

    def explain(rows: Sequence[Row]) -> Sequence[Row]:
        # What the scalar library makes of them; where it agrees with the kernel, the row is shown.
        return [_difference(row, mappings, seed) or row for row in rows]

    return no_row(
        "ExpectEveryOutcomeToAgree", "determinism", "different",
        f"Code other than the kernel's, with seed {seed}, finds the mapping, draw, destination and "
        "new subject that were written for every message.",
        "The same message must get the same outcome, and a sample would miss one wrong message "
        "among millions.",
        "with another outcome than the mappings give", explain=explain,
    )  # fmt: skip


def _difference(row: Row, mappings: AccountMappings, seed: int) -> Row:
    of_message = {name: row[name] for name in ("stream", "seq", "subject", "cluster")}
    outcome = mappings.replay(
        row["subject"], row["cluster"], stream=row["stream"], seq=row["seq"], seed=seed
    )
    differs: dict[str, Any] = {}
    for name, expected in zip(OUTCOME, outcome, strict=True):
        if row[name] != expected:
            differs |= {name: row[name], f"expected {name}": expected}
    return differs and of_message | differs
