"""The ways of subjects: which ends their messages can come to, with which shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nats_transform.kernel.accounts import compile_destinations, destinations_of
from nats_transform.kernel.rules import State
from nats_transform.mappings.mapping import AccountMappings, Fate
from nats_transform.mappings.subject import SEPARATOR, decode, encode
from nats_transform.mappings.subject_index import SubjectIndex
from nats_transform.mappings.symbolic import reversed_mappings
from nats_transform.migration.question import Question
from nats_transform.migration.tables.forms import Form, Receiver, Renamed
from nats_transform.migration.tables.kinds import MOST_KINDS, Kind, Kinds
from nats_transform.migration.tables.mapped import Mapped, numbers_drawn, result
from nats_transform.migration.tables.schemas import SIDES
from nats_transform.migration.tables.texts import Classes, Numbers, Signatures, Words, flags, same
from nats_transform.streams.features import CARRIED

MOST_DRAWS = 2**62
"""The tables have no larger number of draws."""


class End(NamedTuple):
    """One possible end of the messages of a row.

    Attributes:
        place: the place of the destination among those of its mapping; -1 if nothing is made.
        percent: the share of the messages.
        mapping: the number of the mapping; -1 if none applies.
        rule, destination: the texts of the mapping.
        fate: the fate if nothing is made.
        draws: how many subjects its `random()` can make of one.
    """

    place: int
    percent: int
    mapping: int = -1
    rule: str | None = None
    destination: str | None = None
    fate: Fate = Fate.MAPPED
    draws: int = 1


class _Ends:
    """The ends of one side: current or candidate."""

    def __init__(self, mappings: AccountMappings) -> None:
        self._mappings = mappings.mappings
        self._known: dict[tuple[object, ...], tuple[End, ...]] = {}

    def of(self, state: State, cluster: str | None, chosen: Sequence[str | None]) -> Sequence[End]:
        """The ends of a row, in the order in which nats-server tries them.

        Args:
            state: the state of the first place.
            cluster: the cluster of the row.
            chosen: the destination that was drawn; none if all count by their weights.
        """
        if state.rule is None:
            is_legal = state.fate is not Fate.INVALID
            return (
                End(0, 100, fate=Fate.UNMATCHED) if is_legal else End(-1, 100, fate=Fate.INVALID),
            )
        key = (state.rule, cluster, *chosen)
        if key not in self._known:
            self._known[key] = tuple(self._listed(state.rule, cluster, chosen))
        return self._known[key]

    def _listed(
        self, number: int, cluster: str | None, chosen: Sequence[str | None]
    ) -> Iterator[End]:
        mapping = self._mappings[number]
        places = [share.destination for share in destinations_of(mapping)]
        for share in mapping.shares(cluster):
            if not share.weight or (chosen and share.destination != chosen[0]):
                continue
            percent = 100 if chosen else share.weight
            texts = number, mapping.source, share.destination
            if share.transform is None:
                fate = Fate.LOST if share.destination is None else Fate.INVALID
                yield End(-1, percent, *texts, fate)
            else:
                place = places.index(share.destination)
                yield End(place, percent, *texts, draws=numbers_drawn(share.transform))


class Column(NamedTuple):
    """The results of one place of one side, and what is known of them."""

    side: int
    place: int
    mapped: Mapped
    forms: Numbers
    renamed: list[Renamed]


class Stay(NamedTuple):
    """Two results of a subject that a stream stores under the same name.

    Attributes:
        before, after: their columns, one of each side.
        layer, stream: the numbers of the layer and of the stream.
    """

    before: int
    after: int
    layer: int
    stream: int


class Way(NamedTuple):
    """The ends of a way on each side, and the number of the likeliest of them."""

    ends: tuple[Sequence[End], Sequence[End]]
    likeliest: tuple[int, int]


class _Facts(NamedTuple):
    """What one result of a subject is; its fields make a row of `ways`.

    Attributes:
        state: the state of the mapping.
        form: the number of its form, or -1.
        result, partition: the number of the first column with the same result or partition.
        comes_back: whether the mappings that undo those of the side give the subject back.
    """

    state: State
    form: int
    result: int
    partition: int | None
    comes_back: bool


_Known: TypeAlias = tuple[
    tuple[str | None, ...], tuple[int, ...], bool, tuple[_Facts, ...], tuple[Stay, ...]
]
"""What makes a way: its cluster and the like, the mappings that cover it, and so on."""


class Ways:
    """Numbers the ways of subjects.

    Attributes:
        all: the ways by their numbers.
        shares: the number of each source of a mapping with one of its destinations, from 0 on.
        rows: the rows of the table.
        stays: the rows of the table of the ends that a stream stores under the same name.
    """

    def __init__(self, question: Question) -> None:
        self._ends = _Ends(question.current), _Ends(question.candidate)
        self._covering = Covering(question.candidate)
        self._back = _Back(question.current), _Back(question.candidate)
        self._numbers: dict[_Known, int] = {}
        self.all: list[Way] = []
        self.shares: dict[tuple[str, str | None], int] = {}
        self.rows: list[tuple[object, ...]] = []
        self.stays: list[tuple[int, ...]] = []

    def of(
        self,
        subjects: pa.Array,
        words: Sequence[Words],
        columns: Sequence[Column],
        forms: Sequence[Form],
    ) -> tuple[Numbers, Numbers]:
        """The ways of some subjects.

        Args:
            subjects: the subjects.
            words: the cluster of each, what it carries, and the destinations that it drew, if any.
            columns: what becomes of them.
            forms: all forms, by their numbers.

        Returns:
            For each row the place of its way in the second array, and the numbers of the ways.
        """
        classes = Classes(len(subjects))
        for word in words:
            classes.add(word.codes + 1, len(word.words) + 1)
        for numbers, below in self._covering.signatures.of(subjects):
            classes.add(numbers, below)
        for column in columns:
            classes.add(column.mapped.states, len(column.mapped.of))
            classes.add(column.forms + 1, len(forms) + 1)
        pairs = list(combinations(range(len(columns)), 2))
        alike = [same(columns[i].mapped.results, columns[j].mapped.results) for i, j in pairs]
        meet = [_meet(columns[i].mapped, columns[j].mapped) for i, j in pairs]
        back = [self._back[c.side].gives(c.mapped.results, subjects) for c in columns]
        is_of_server = flags(pc.starts_with(subjects, "$"))
        stays = dict(_stays(columns, forms))
        for is_so in (is_of_server, *alike, *meet, *back, *stays.values()):
            classes.add(is_so.astype(np.int64), 2)
        codes, firsts = classes.codes()
        ways = []
        for row in firsts.tolist():
            results = _firsts(len(columns), pairs, alike, row)
            partitions = _firsts(len(columns), pairs, meet, row)
            facts = tuple(
                _Facts(
                    column.mapped.of[column.mapped.states[row]],
                    int(column.forms[row]),
                    results[n],
                    partitions[n] if column.mapped.has_partition(row) else None,
                    bool(back[n][row]),
                )
                for n, column in enumerate(columns)
            )
            covering = self._covering.of(decode(subjects[row].as_py() or b""))
            texts = tuple(word.word(row) for word in words)
            places = {(column.side, column.place): n for n, column in enumerate(columns)}
            stay = tuple(one for one, rows in stays.items() if rows[row])
            known = texts, covering, bool(is_of_server[row]), facts, stay
            ways.append(self._number(known, places))
        return codes, np.array(ways, np.int64)

    def _number(self, known: _Known, places: dict[tuple[int, int], int]) -> int:
        """The number of a way, which is added to the table if it is new."""
        way = self._numbers.setdefault(known, len(self.all))
        if way < len(self.all):
            return way
        (cluster, carries, *chosen), covering, is_of_server, facts, stays = known
        ends = tuple(
            of.of(facts[places[side, 0]].state, cluster, chosen[side : side + 1])
            for side, of in enumerate(self._ends)
        )
        likeliest = tuple(_likeliest(end) for end in ends)
        of_all = (
            way,
            None if cluster is None else encode(cluster),
            ends[0][0].fate is not Fate.INVALID or ends[0][0].mapping >= 0,
            is_of_server,
            covering,
            None if carries is None else [w for w in CARRIED.values() if w in carries.split()],
        )
        for side, name in enumerate(SIDES):
            for number, end in enumerate(ends[side]):
                of_end = facts[places[side, end.place]] if end.place >= 0 else None
                has_result = of_end is not None and of_end.form >= 0
                row = (
                    *of_all,
                    name,
                    number,
                    end.percent,
                    number == likeliest[side],
                    end.mapping,
                    self._share(end),
                    None if end.rule is None else encode(end.rule),
                    None if end.destination is None else encode(end.destination),
                    (end.fate if of_end is None else of_end.state.fate).value,
                    of_end.form if of_end and has_result else None,
                    of_end.result if of_end and has_result else None,
                    of_end.partition if of_end else None,
                    of_end.comes_back if of_end else False,
                    min(end.draws, MOST_DRAWS),
                )
                self.rows.append(row)
        numbers = [
            {places[side, end.place]: number for number, end in enumerate(of) if end.place >= 0}
            for side, of in enumerate(ends)
        ]
        self.stays += (
            (way, numbers[0][stay.before], numbers[1][stay.after], stay.layer, stay.stream)
            for stay in stays
            if stay.before in numbers[0] and stay.after in numbers[1]
        )
        self.all.append(Way((ends[0], ends[1]), (likeliest[0], likeliest[1])))
        return way

    def _share(self, end: End) -> int | None:
        if end.rule is None:
            return None
        return self.shares.setdefault((end.rule, end.destination), len(self.shares))


def _likeliest(ends: Sequence[End]) -> int:
    return max(range(len(ends)), key=lambda number: ends[number].percent)


def _stays(
    columns: Sequence[Column], forms: Sequence[Form]
) -> Iterator[tuple[Stay, NDArray[np.bool_]]]:
    """The rows whose different results have a name in common in a stream that stores both."""
    keys = {(renamed.layer, renamed.stream) for column in columns for renamed in column.renamed}
    for (i, before), (j, after) in product(enumerate(columns), repeat=2):
        if before.side == after.side or before.side:
            continue
        differs = ~same(before.mapped.results, after.mapped.results)
        for key in sorted(keys):
            rows = np.flatnonzero(differs & (_rows(before, key) | _rows(after, key)))
            if not len(rows):
                continue
            stays = np.zeros(len(differs), bool)
            names = (_names(column, key, rows, forms) for column in (before, after))
            for one, other in product(*names):
                stays[rows] |= same(one, other)
            if stays.any():
                yield Stay(i, j, *key), stays


def _rows(column: Column, key: tuple[int, int]) -> NDArray[np.bool_]:
    """The rows whose result a stream of a layer renames."""
    rows = np.zeros(len(column.forms), bool)
    for renamed in column.renamed:
        if (renamed.layer, renamed.stream) == key:
            rows[renamed.rows] = True
    return rows


def _names(
    column: Column, key: tuple[int, int], rows: Numbers, forms: Sequence[Form]
) -> Iterator[pa.Array]:
    """The names under which a stream of a layer stores some rows; null where it has no other one.

    It can have several: a stream gets what another one republishes, and takes the message too.
    """
    keeps, numbers = Receiver(key[0], "keeps", key[1]), column.forms[rows]
    keeping = [n for n in set(numbers.tolist()) if n >= 0 and keeps in forms[n].receivers]
    results = column.mapped.results.take(pa.array(rows))
    yield pc.if_else(pa.array(np.isin(numbers, keeping)), results, None)
    texts, size, places = list[pa.Array](), 0, list[Numbers]()
    seen = np.zeros(len(column.forms), np.int64)
    for renamed in column.renamed:
        if (renamed.layer, renamed.stream) == key:
            number = int(seen[renamed.rows].max())
            if number == len(places):
                places.append(np.full(len(column.forms), -1))
            places[number][renamed.rows] = np.arange(size, size + len(renamed.rows))
            seen[renamed.rows] += 1
            size += len(renamed.rows)
            texts.append(renamed.texts)
    for place in places:
        yield pa.concat_arrays(texts).take(pa.array(place[rows], mask=place[rows] < 0))


def _meet(one: Mapped, other: Mapped) -> NDArray[np.bool_]:
    """Where both have the same partition."""
    if one.keys is None or other.keys is None:
        return np.zeros(len(one.states), bool)
    equal: NDArray[np.bool_] = one.keys.partitions == other.keys.partitions
    return equal & (one.keys.partitions >= 0)


def _firsts(
    count: int, pairs: Sequence[tuple[int, int]], equal: Sequence[NDArray[np.bool_]], row: int
) -> list[int]:
    """For each column the first column that is equal to it in a row."""
    firsts = list(range(count))
    for (i, j), rows in zip(pairs, equal, strict=True):
        if rows[row]:
            firsts[j] = min(firsts[i], firsts[j])
    return firsts


class _Back:
    """The mappings that undo others."""

    def __init__(self, mappings: AccountMappings) -> None:
        undoing = reversed_mappings(mappings.mappings)
        self._mappings = undoing.mappings
        self._program = compile_destinations(undoing, result)[0]

    def gives(self, results: pa.Array, subjects: pa.Array) -> NDArray[np.bool_]:
        """Where they change a result back into its subject."""
        back = self._program.run(results).subjects
        equal = same(back, subjects)
        # The kernel takes no result that is not legal.
        for row in np.flatnonzero(flags(pc.and_(back.is_null(), results.is_valid()))).tolist():
            text = decode(results[row].as_py())
            tokens = text.split(SEPARATOR)
            transforms = (
                m.shares()[0].transform for m in self._mappings if m.filter.covers(tokens)
            )
            transform = next(transforms, None)
            undone = text if transform is None else transform.evaluate(tokens, None)
            equal[row] = undone == decode(subjects[row].as_py())
        return equal


class Covering:
    """Which mappings cover a subject, found once for each kind of subject."""

    def __init__(self, mappings: AccountMappings) -> None:
        sources = [mapping.source for mapping in mappings.mappings]
        self.signatures = Signatures(sources)
        self._kinds, self._index = Kinds(sources), SubjectIndex(sources)
        self._known: dict[Kind, tuple[int, ...]] = {}

    def of(self, subject: str) -> tuple[int, ...]:
        """The numbers of the mappings, ascending; none for a subject that is not legal."""
        kind = self._kinds.of(subject.split(SEPARATOR))
        if kind is None:
            return ()
        if kind not in self._known:
            if len(self._known) >= MOST_KINDS:
                self._known.clear()
            self._known[kind] = tuple(self._index.covering(subject))
        return self._known[kind]
