"""Which shapes the subjects of a batch fit, found by the kernel.

Shapes with filters that no subject can fit both stand in one layer: there the kernel finds, for a
whole batch at once, the one whose filter covers a subject. Nearly every set of mappings needs one
layer. Where a shape asks more than its filter says, its expression looks at what the filter covers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_transform.audit.chance import KEYS
from nats_transform.kernel import Program
from nats_transform.kernel.counting import Coded
from nats_transform.kernel.filters import Pattern
from nats_transform.kernel.pieces import KeyHash
from nats_transform.kernel.rules import ILLEGAL_STATES, End, Ends, Rule, State
from nats_transform.mappings.mapping import Fate
from nats_transform.mappings.shape import Shape
from nats_transform.mappings.subject import Filter, decode
from nats_transform.mappings.subject_index import SubjectIndex

_NOTHING = End(State(Fate.UNMATCHED))


class Fits:
    """The shapes that subjects are compared with; it can be sent to a task.

    Args:
        shapes: perhaps with repeats.
        keys: the places, from 0 on, of the tokens that are the key of a subject, by pattern.
    """

    def __init__(
        self, shapes: Sequence[Shape], keys: Mapping[str, tuple[int, ...]] | None = None
    ) -> None:
        different = list({shape.pattern: shape for shape in shapes}.values())
        index = SubjectIndex(shape.filter for shape in different)
        layers: list[list[Shape]] = []
        layer_of: list[int] = []
        for shape in different:
            near = (n for n in index.colliding(shape.filter) if n < len(layer_of))
            taken = {layer_of[number] for number in near}
            layer_of.append(min(set(range(len(layers) + 1)) - taken))
            if layer_of[-1] == len(layers):
                layers.append([])
            layers[layer_of[-1]].append(shape)
        self._layers = [_Layer(layer, keys or {}) for layer in layers]

    def of(self, subjects: pa.Array) -> Iterator[Coded]:
        """For each layer, the pattern that each subject fits, or None."""
        for layer in self._layers:
            yield layer.of(subjects)[0]

    def with_keys(self, subjects: pa.Array) -> tuple[list[Coded], np.ndarray]:
        """`of`, and the hash of the key of each subject, 0 to KEYS - 1; -1 where there is none."""
        layers, hashes = zip(*(layer.of(subjects) for layer in self._layers), strict=True)
        # Where several have one, their keys are different tokens.
        is_one = np.sum([hashed >= 0 for hashed in hashes], axis=0) == 1
        return list(layers), np.where(is_one, reduce(np.maximum, hashes), -1)


class _Layer:
    """Shapes none of whose filters covers a subject of another."""

    def __init__(self, shapes: Sequence[Shape], keys: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes
        hashed = {pattern: (KeyHash(KEYS, places),) for pattern, places in keys.items()}
        rules = [
            Rule(
                Pattern.of_subscription(Filter(shape.filter)),
                shape.filter,
                Ends([End(State(Fate.MAPPED, rule=number), hashed.get(shape.pattern))]),
            )
            for number, shape in enumerate(shapes)
        ]
        self._program = Program(rules, _NOTHING)
        # By state: the number of the shape, the one behind them for no shape.
        numbers = [state.rule for state in self._program.states]
        self._of_state = np.array([len(shapes) if n is None else n for n in numbers])

    def of(self, subjects: pa.Array) -> tuple[Coded, np.ndarray]:
        """The pattern that each subject fits, or None; and the hash of its key, or -1."""
        mapped = self._program.run(subjects)
        states = mapped.states.to_numpy()
        places = self._of_state[states]
        for number, shape in enumerate(self._shapes):
            if not shape.is_filter:
                rows = np.flatnonzero(places == number)
                fitting = _matching(subjects.take(pa.array(rows)), shape)
                places[rows[~fitting]] = len(self._shapes)
        # The kernel takes a token `*` for a fault; a server stores such a subject all the same.
        for row in np.flatnonzero(states < len(ILLEGAL_STATES)).tolist():
            subject = subjects[row].cast(pa.binary()).as_py()
            if subject is not None:
                fits = (n for n, s in enumerate(self._shapes) if s.fits(decode(subject)))
                places[row] = next(fits, len(self._shapes))
        hashes = np.frombuffer(mapped.draws.buffers()[1], np.int32)[: len(states)]  # -1 for null
        hashes = np.where(places < len(self._shapes), hashes, -1)
        return Coded(places, [*(shape.pattern for shape in self._shapes), None]), hashes


def _matching(subjects: pa.Array, shape: Shape) -> np.ndarray:
    """Whether each subject matches the expression of a shape."""
    raw = subjects.view(pa.binary())
    # Arrow's expressions know neither what must not follow nor what was there before.
    if "(?!" in shape.pattern or re.search(r"\\[1-9]", shape.pattern):
        fits = [shape.fits(decode(subject)) for subject in raw.to_pylist()]
        return np.array(fits, np.bool_)
    # Bytes above 0x7F as escapes: over binary data the expression is taken for Latin-1, too.
    pattern = re.sub("[\x80-\xff]", lambda match: rf"\x{ord(match[0]):02x}", shape.pattern)
    matches: pa.Array = pc.match_substring_regex(raw, rf"(?s)\A(?:{pattern})\z")
    return np.asarray(matches)
