"""Whether messages, mappings and seed give the outcomes that were written, by other code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.expectation import Expectation, Row
from expectations.measures import flags
from expectations.rules import no_row
from nats_transform import AccountMappings, Fate
from nats_transform.kernel.counting import texts
from nats_transform.kernel.proof import IS_SAME, Opinion, Proof
from nats_transform.mappings.mapping import DRAWS

OUTCOME = ("mapped_subject", "fate", "mapping_source", "mapping_destination", "draw", "reason")
"""The columns of what an `Outcome` says, in its order."""


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
        "with an outcome that its mapping doesn't give it", explain=explain,
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


COHERENT = no_row(
    "ExpectFatesToBeCoherent", "conservation", "incoherent",
    "The fate, mapped subject, mapping, draw and reason of every message fit together.",
    "An unmatched message keeps its subject, a lost or invalid one has none, and an invalid one "
    "says why.",
    "whose columns contradict one another",
)  # fmt: skip


def is_incoherent(rows: pa.RecordBatch, is_right: np.ndarray) -> np.ndarray:
    """Whether a row breaks `COHERENT`; those that are right in every column do not."""
    wrong = np.flatnonzero(~is_right)
    rows = rows.select(["subject", *OUTCOME]).take(pa.array(wrong))
    has_subject, has_mapping, has_reason = (
        flags(rows.column(name).is_valid())
        for name in ("mapped_subject", "mapping_source", "reason")
    )
    fate, draws = rows.column("fate").cast(pa.string()), rows.column("draw")
    is_mapped, is_invalid = (flags(pc.equal(fate, f.value)) for f in (Fate.MAPPED, Fate.INVALID))
    passes = is_mapped | flags(pc.equal(fate, Fate.UNMATCHED.value))
    is_known = flags(pc.is_in(fate, pa.array([f.value for f in Fate])))
    moved = pc.not_equal(
        *(rows.column(name).view(pa.binary()) for name in ("mapped_subject", "subject"))
    )
    broken = ~is_known | (has_subject != passes) | (has_reason != is_invalid)
    broken |= (passes & (has_mapping != is_mapped)) | (flags(moved) & ~has_mapping)
    broken |= flags(pc.or_(pc.less(draws, 0), pc.greater_equal(draws, DRAWS)))
    found = np.zeros(len(is_right), np.bool_)
    found[wrong] = broken
    return found
