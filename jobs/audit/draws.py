"""Measures the order and the keys of messages, for the tests of chance; a part of the one pass."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jobs.audit.candidates import ByPattern
from nats_transform.audit import End, Scope
from nats_transform.audit.chance import STRETCH, Draws
from nats_transform.kernel.counting import MOST_CELLS, Coded


@dataclass(frozen=True)
class Measure:
    """Which end makes which subjects. It can be sent to a task.

    Attributes:
        ends: the ends of each mapping with weights, by mapping version and source.
        makers: all ends that make subjects.
        keyed: the mappings whose messages have a key.
    """

    ends: Mapping[tuple[int, str], tuple[End, ...]]
    makers: ByPattern
    keyed: Collection[tuple[int, str]]

    def maker(
        self, index: int, patterns: Iterable[str], cluster: str | None
    ) -> tuple[str, int] | None:
        """The source and the place in `ends` of the one end that made a subject of patterns."""
        made_by = self.makers.in_cluster(index, patterns, cluster)
        if len(made_by) != 1:
            return None
        end = made_by[0].end
        ends = self.ends.get((index, end.source), ())
        return (end.source, ends.index(end)) if end in ends else None


@dataclass
class Measuring:
    """The draws of the messages of a task, batch by batch."""

    measure: Measure
    draws: dict[Scope, Draws] = field(default_factory=dict)
    _rest: dict[Scope, np.ndarray] = field(default_factory=dict)

    def add(
        self,
        index: int,
        clusters: Coded,
        layers: Sequence[Coded],
        hashes: np.ndarray,
        repeats: Coded,
    ) -> None:
        """Adds a batch.

        Args:
            index: the index of the mapping version.
            layers: the patterns that each subject fits.
            hashes: the hash of the key of each message; -1 where it has none.
            repeats: whether each message was stored before; those do not count.
        """
        cells, fitting = joined(layers)
        names: list[str] = []
        uncounted = len(self.measure.ends) * len(clusters.values)  # a group behind all others
        kind = np.min_scalar_type(uncounted + len(clusters.values))  # short numbers sort fast
        groups = np.full((len(fitting), len(clusters.values)), uncounted, kind)
        ends = np.zeros(groups.shape, np.int32)
        for cell, patterns in enumerate(fitting):
            for number, cluster in enumerate(clusters.values):
                maker = self.measure.maker(index, patterns, cluster)
                if maker is not None:
                    name, ends[cell, number] = maker
                    if name not in names:
                        names.append(name)
                    groups[cell, number] = names.index(name) * len(clusters.values) + number
        of_row = groups[cells, clusters.numbers]
        if len(repeats.values) > 1:
            of_row[repeats.numbers != 0] = uncounted
        # A stable sort leaves the messages of a group in their order.
        order = np.argsort(of_row, kind="stable")
        places, hashes = ends[cells, clusters.numbers][order], hashes[order]
        start = 0
        for group, count in enumerate(np.bincount(of_row)[:uncounted].tolist()):
            if count:
                source, number = divmod(group, len(clusters.values))
                scope = index, names[source], clusters.values[number]
                mine = slice(start, start + count)
                self._add(scope, places[mine], hashes[mine])
                start += count

    def _add(self, scope: Scope, places: np.ndarray, hashes: np.ndarray) -> None:
        if scope not in self.draws:
            self.draws[scope] = Draws.none(self.measure.ends[scope[:2]])
        draws = self.draws[scope]
        if scope[:2] in self.measure.keyed:
            has_key = hashes >= 0
            draws.add_keys(hashes[has_key], places[has_key])
        if scope in self._rest:
            places = np.concatenate([self._rest[scope], places])
        whole = len(places) // STRETCH * STRETCH
        draws.add_order(places[:whole])
        self._rest[scope] = places[whole:]


def joined(layers: Sequence[Coded]) -> tuple[np.ndarray, list[tuple[str, ...]]]:
    """A number for the patterns that each subject fits, and the patterns of each number.

    Only what is there has a number: the product of many layers would be far more.
    """
    cells, fitting = np.zeros(len(layers[0].numbers), np.int64), list[tuple[str, ...]]([()])
    for layer in layers:
        joined = cells * len(layer.values) + layer.numbers
        if (size := len(fitting) * len(layer.values)) <= MOST_CELLS:  # counting is quicker
            there = np.flatnonzero(np.bincount(joined, minlength=size))
            place = np.empty(size, np.int64)
            place[there] = np.arange(len(there))
            cells = place[joined]
        else:
            there, cells = np.unique(joined, return_inverse=True)
        pairs = zip(*np.divmod(there, len(layer.values)), strict=True)
        names = [(p,) if p is not None else () for p in layer.values]
        fitting = [(*fitting[before], *names[value]) for before, value in pairs]
    return cells, fitting
