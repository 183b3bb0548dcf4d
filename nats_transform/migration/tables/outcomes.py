"""Writes the tables of a dry run: what becomes of each subject, today and after the switch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nats_transform.mappings.subject import encode
from nats_transform.migration.question import Question
from nats_transform.migration.tables.census import KEYS, CensusPart
from nats_transform.migration.tables.forms import Forms
from nats_transform.migration.tables.mapped import Side
from nats_transform.migration.tables.schemas import SCHEMAS, SIDES
from nats_transform.migration.tables.texts import Numbers, Words, has_capitals, prefixes
from nats_transform.migration.tables.ways import MOST_DRAWS, Column, End, Way, Ways

BATCH_ROWS = 2**16
"""How many rows are mapped at once."""


class Outcomes:
    """Writes the tables.

    Args:
        questions: the layers of a question, which have the same mappings.
        folder: an empty folder for the files.

    Attributes:
        forms, ways: the forms of results, and the ways of subjects.
        messages, subjects, bytes: the sums over the census.
        has_capitals: whether some new subject has a capital letter.
    """

    def __init__(self, questions: Sequence[Question], folder: Path) -> None:
        self._folder, self._questions = folder, questions
        self._sides = Side(questions[0].current), Side(questions[0].candidate)
        self.forms, self.ways = Forms(questions), Ways(questions[0])
        self.messages = self.subjects = self.bytes = self._rows = 0
        self.has_capitals = False

    def write(self, parts: Iterable[CensusPart]) -> None:
        """Writes all tables for the parts of a census."""
        with self._writer("outcomes") as outcomes, self._writer("renamed") as renamed:
            for part in parts:
                numbers, sizes = part.subjects
                for start in range(0, len(numbers), BATCH_ROWS):
                    end = start + BATCH_ROWS
                    rows = part.rows.slice(start, BATCH_ROWS)
                    batch = self._batch(rows, numbers[start:end] + self.subjects, sizes[start:end])
                    for block in batch.outcomes():
                        outcomes.write_batch(block)
                    for block in batch.renamed():
                        renamed.write_batch(block)
                self.subjects += int(numbers[-1]) + 1 if len(numbers) else 0
        self._write("ways", self.ways.rows)
        self._write("stays", self.ways.stays)
        forms = [(number, *form) for form, number in self.forms.numbers.items()]
        receivers = [
            (number, *end, encode(end.name(self._questions[end.layer])))
            for number, *_, all_ in forms
            for end in sorted(all_)
        ]
        self._write("forms", [form[:-1] for form in forms])
        self._write("receivers", receivers)
        pa.default_memory_pool().release_unused()

    def _batch(self, rows: pa.RecordBatch, ids: Numbers, sizes: Numbers) -> _Batch:
        self.messages += pc.sum(rows.column("messages")).as_py()
        self.bytes += pc.sum(rows.column("bytes")).as_py()
        subjects = rows.column("subject")
        columns = [
            Column(side, place, mapped, *self.forms.of(mapped.results, mapped.draws))
            for side, compiled in enumerate(self._sides)
            for place, mapped in enumerate(compiled.of(subjects))
        ]
        self.has_capitals = self.has_capitals or any(
            has_capitals(column.mapped.results) for column in columns if column.side
        )
        words = [Words(rows.column(name)) for name in KEYS if name in rows.schema.names]
        classes, ways = self.ways.of(subjects, words, columns, list(self.forms.numbers))
        row_ids = np.arange(len(ids)) + self._rows
        self._rows += len(ids)
        local = [self.ways.all[number] for number in ways.tolist()]
        return _Batch(rows, ids, sizes, row_ids, words[0], ways[classes], classes, columns, local)

    def _writer(self, name: str) -> pq.ParquetWriter:
        schema = SCHEMAS[name]
        return pq.ParquetWriter(
            str(self._folder / f"{name}.parquet"),
            schema,
            compression="lz4",
            use_dictionary=[f.name for f in schema if pa.types.is_dictionary(f.type)],
            # Nothing is looked up by the least and the greatest text.
            write_statistics=["side", "way", "subject_id", "row_id"],
        )

    def _write(self, name: str, rows: Sequence[tuple[object, ...]]) -> None:
        schema = SCHEMAS[name]
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        pq.write_table(pa.table(arrays, schema=schema), str(self._folder / f"{name}.parquet"))


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows of a census with their ways.

    Attributes:
        rows: the rows.
        ids, sizes: the number of each row's subject, and how many rows that subject has.
        row_ids: the number of each row.
        clusters: the cluster of each row.
        ways: the way of each row.
        classes: the place of that way in `local`.
        columns: the results of all places.
        local: the ways of these rows.
    """

    rows: pa.RecordBatch
    ids: Numbers
    sizes: Numbers
    row_ids: Numbers
    clusters: Words
    ways: Numbers
    classes: Numbers
    columns: Sequence[Column]
    local: Sequence[Way]

    def outcomes(self) -> Iterator[pa.RecordBatch]:
        """The rows of `outcomes`: those of one side and place together."""
        starts = [prefixes(column.mapped.results) for column in self.columns]
        was, was_start = self._was(starts)
        for column, start in zip(self.columns, starts, strict=True):
            mapped, keys = column.mapped, column.mapped.keys
            values: dict[str, pa.Array] = {
                "fate": _words([s.fate.value for s in mapped.of], mapped.states, pa.string()),
                "result": mapped.results,
                "prefix": start,
                "form": pa.array(column.forms, mask=column.forms < 0),
            }
            if keys is not None:
                values["key"] = keys.texts
                values["key_hash"] = pa.array(keys.hashes, mask=keys.partitions < 0)
                values["partition"] = pa.array(keys.partitions, mask=keys.partitions < 0)
            if column.side:
                values |= {"was": was, "was_prefix": was_start}
            yield from self._block(column.side, self._numbers(column.side, column.place), values)
        for side in range(len(SIDES)):
            nothing = {n for w in self.local for n, end in enumerate(w.ends[side]) if end.place < 0}
            for number in sorted(nothing):
                has_it = [
                    number < len(w.ends[side]) and w.ends[side][number].place < 0
                    for w in self.local
                ]
                numbers = np.where(has_it, number, -1)
                fates = [end.fate.value for end in self._ends(side, numbers)]
                values = {"fate": _words(fates, self.classes, pa.string())}
                if side:
                    values |= {"was": was, "was_prefix": was_start}
                yield from self._block(side, numbers, values)

    def renamed(self) -> Iterator[pa.RecordBatch]:
        """The rows of `renamed`."""
        was = None
        for column in self.columns:
            numbers = self._numbers(column.side, column.place)
            for layer, stream, rows, texts in column.renamed:
                chosen = np.flatnonzero(numbers[self.classes[rows]] >= 0)
                if not len(chosen):
                    continue
                was = self._was([])[0] if was is None else was
                at = rows[chosen]
                ends = self._ends(column.side, numbers)
                percents = [end.percent for end in ends]
                draws = [min(end.draws, MOST_DRAWS) for end in ends]
                values = {
                    "side": pa.array([SIDES[column.side]] * len(at)),
                    "layer": pa.array([layer] * len(at)),
                    "stream": pa.array([stream] * len(at)),
                    "subject_id": pa.array(self.ids[at]),
                    "subject": self.rows.column("subject").take(pa.array(at)),
                    "was": was.take(pa.array(at)),
                    "percent": pa.array(np.array(percents)[self.classes[at]]),
                    "draws": pa.array(np.array(draws)[self.classes[at]]),
                    "messages": self.rows.column("messages").take(pa.array(at)),
                    "stored": texts.take(pa.array(chosen)),
                }
                yield _with_all_columns("renamed", values, len(at))

    def _was(self, starts: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array | None]:
        """The likeliest result under the current mapping, and its prefix."""
        places = np.array([way.ends[0][way.likeliest[0]].place for way in self.local])
        results = [column.mapped.results for column in self.columns if column.side == 0]
        if len(set(places.tolist())) == 1 and places[0] >= 0:
            return results[places[0]], starts[places[0]] if starts else None
        chosen = places[self.classes]
        was = pc.choose(pa.array(chosen, mask=chosen < 0), *results)
        return was, prefixes(was) if starts else None

    def _numbers(self, side: int, place: int) -> Numbers:
        """For each local way the number of the end at a place, or -1."""
        numbers = np.full(len(self.local), -1)
        for at, way in enumerate(self.local):
            for number, end in enumerate(way.ends[side]):
                if end.place == place:
                    numbers[at] = number
        return numbers

    def _ends(self, side: int, numbers: Numbers) -> list[End]:
        """The end of each local way with a number; any of its ends for -1."""
        return [
            way.ends[side][max(0, number)]
            for way, number in zip(self.local, numbers.tolist(), strict=True)
        ]

    def _block(
        self, side: int, numbers: Numbers, values: dict[str, pa.Array]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the ways that have an end.

        Args:
            side: the number of the side.
            numbers: for each local way the number of the end, or -1.
            values: columns for all rows.
        """
        ends = self._ends(side, numbers)
        here = numbers[self.classes]
        values = values | {
            "side": _words([SIDES[side]], np.zeros(len(here), np.int64), pa.string()),
            "subject_id": pa.array(self.ids),
            "row_id": pa.array(self.row_ids),
            "rows": pa.array(self.sizes),
            "subject": self.rows.column("subject"),
            "cluster": self.clusters.taken(np.arange(len(here))),
            "messages": self.rows.column("messages"),
            "bytes": self.rows.column("bytes"),
            "way": pa.array(self.ways),
            "number": pa.array(here),
            "rule": _words([_bytes(end.rule) for end in ends], self.classes, pa.binary()),
            "destination": _words(
                [_bytes(end.destination) for end in ends], self.classes, pa.binary()
            ),
            "percent": pa.array(np.array([end.percent for end in ends])[self.classes]),
        }
        block = _with_all_columns("outcomes", values, len(here))
        chosen = here >= 0
        if not chosen.all():
            block = block.filter(pa.array(chosen))
        if len(block):
            yield block


def _with_all_columns(table: str, values: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
    arrays = [
        values[field.name].cast(field.type) if field.name in values else pa.nulls(rows, field.type)
        for field in SCHEMAS[table]
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[table])


def _words(
    texts: Sequence[str | bytes | None], rows: Numbers, kind: pa.DataType
) -> pa.DictionaryArray:
    """A text for each row, given the places of the texts."""
    words = pa.array(texts, kind).dictionary_encode()
    return pa.DictionaryArray.from_arrays(words.indices.take(pa.array(rows)), words.dictionary)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else encode(text)
