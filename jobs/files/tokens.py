"""One token of each subject of a batch, taken out by the kernel."""

from __future__ import annotations

import pyarrow as pa

from nats_transform.kernel import Program
from nats_transform.kernel.filters import Pattern
from nats_transform.kernel.rules import End, Ends, Rule, State
from nats_transform.mappings.functions import Wildcard
from nats_transform.mappings.mapping import Fate
from nats_transform.mappings.subject import SEPARATOR

_ILLEGAL = 3  # the states below this are those of subjects that are not literal; see `rules`


class TokenAt:
    """Takes one token out of subjects. It can be sent to a task.

    Args:
        place: the place of the token, from 1 on.
    """

    def __init__(self, place: int) -> None:
        self._place = place
        ends = Ends([End(State(Fate.MAPPED), (Wildcard(place - 1),))])
        patterns = [Pattern((None,) * place, is_open) for is_open in (False, True)]
        self._program = Program(
            [Rule(pattern, "", ends) for pattern in patterns], End(State(Fate.LOST))
        )

    def of(self, subjects: pa.Array) -> pa.Array:
        """The token of each subject, binary; null where a subject has fewer tokens."""
        mapped = self._program.run(subjects)
        illegal = mapped.states.to_numpy() < _ILLEGAL
        if not illegal.any():
            return mapped.subjects
        texts = mapped.subjects.to_pylist()
        raw = subjects.view(pa.binary()).to_pylist()
        for row in illegal.nonzero()[0].tolist():
            tokens = [] if raw[row] is None else raw[row].split(SEPARATOR.encode())
            texts[row] = tokens[self._place - 1] if len(tokens) >= self._place else None
        return pa.array(texts, pa.binary())
