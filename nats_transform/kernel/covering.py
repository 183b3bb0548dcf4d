"""Finds the subjects of a column that some filters cover."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nats_transform.kernel.filters import Pattern
from nats_transform.kernel.program import Program
from nats_transform.kernel.rules import ILLEGAL_STATES, End, Ends, Rule, State
from nats_transform.mappings.mapping import Fate
from nats_transform.mappings.subject import Filter, decode, is_subset


class Covering:
    """The filters of a stream or a consumer: what a subscription with one of them would get."""

    def __init__(self, filters: Sequence[str]) -> None:
        self._filters = filters
        covered = State(Fate.UNMATCHED)
        rules = [
            Rule(Pattern.of_subscription(Filter(filter)), str(number), Ends([End(covered)]))
            for number, filter in enumerate(filters)
        ]
        self._program = Program(rules, End(State(Fate.FILTERED)))
        self._covered = self._program.states.index(covered) if rules else -1

    def __call__(self, subjects: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether each subject is covered."""
        covered: npt.NDArray[np.bool_] = (
            self._program.run(subjects).states.to_numpy() == self._covered
        )
        return covered

    def stored(self, subjects: pa.Array) -> npt.NDArray[np.bool_]:
        """Whether a consumer with one of the filters gets each subject, if a stream has it.

        A stream's subject transform can store what nobody can publish, such as `orders..17`.

        Source: nats-server `isSubsetMatchTokenized`, by which the file store chooses.
        """
        states = self._program.run(subjects).states.to_numpy()
        covered: npt.NDArray[np.bool_] = states == self._covered
        (illegal,) = np.nonzero(states < len(ILLEGAL_STATES))
        texts = subjects.take(pa.array(illegal)).cast(pa.binary()).to_pylist()
        for row, text in zip(illegal.tolist(), texts, strict=True):
            subject = None if text is None else decode(text)
            covered[row] = subject is not None and any(is_subset(subject, f) for f in self._filters)
        return covered
