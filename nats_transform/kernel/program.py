"""Rules, laid out as tables for the compiled kernel, and the call that maps a batch with them."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from nats_transform.errors import NatsTransformError
from nats_transform.kernel.columns import Columns, number_array, text_array
from nats_transform.kernel.filters import FilterTables, Pattern
from nats_transform.kernel.library import checked, library
from nats_transform.kernel.pieces import PieceTables
from nats_transform.kernel.rules import ILLEGAL_STATES, End, Ends, Rule, State
from nats_transform.kernel.texts import Texts
from nats_transform.mappings.draw import mapping_key
from nats_transform.mappings.functions import Random

_SPARE = 64  # bytes that the first guess at the size of the result allows for each row to grow


class _Filters(ctypes.Structure):
    """`filters` of transform.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("shapes", "runs", "slots", "order", "starts")),
        ("longest", ctypes.c_int64),
    )


class _Program(ctypes.Structure):
    """`program` of transform.c."""

    _fields_ = (
        ("rules", _Filters),
        ("takers", _Filters),
        ("has_takers", ctypes.c_int64),
        ("otherwise", ctypes.c_int64),
        *(
            (name, ctypes.c_void_p)
            for name in ("keys", "scopes", "scope_table", "shares", "pieces", "hashed", "clusters")
        ),
        ("cluster_count", ctypes.c_int64),
        ("text", ctypes.c_void_p),
        ("kept", ctypes.c_int64),
    )


class _Output(ctypes.Structure):
    """`output` of transform.c."""

    _fields_ = (
        ("bytes", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("capacity", "used", "wanted")),
        *(
            (name, ctypes.c_void_p)
            for name in ("offsets", "has_subject", "states", "draws", "has_draw", "starts")
        ),
    )


@dataclass(frozen=True, slots=True)
class Mapped:
    """What the kernel made of a batch: a value for each row.

    Attributes:
        subjects: the new subjects, binary; null unless the fate is mapped or unmatched.
        states: places in `Program.states`, int32.
        draws: the draws, int32 from 0 to 99; null where nothing was drawn.
    """

    subjects: pa.Array
    states: pa.Array
    draws: pa.Array


class Program:
    """Rules that are laid out as tables for the kernel.

    A program is made once and used on any number of batches, in any number of threads. It is
    pickled with its tables, so a worker need not make them again.

    Args:
        rules: the rules, in the order in which they are tried.
        otherwise: the end of a message that no rule applies to.
        takers: filters of which at least one must cover a message, else no rule applies to it.
            With each filter comes the number of the rule that applies if no pattern of `rules`
            covers the message.
        seed: the seed of the run, which decides the draws.

    Attributes:
        states: the states that the numbers in `Mapped.states` stand for.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        otherwise: End,
        *,
        takers: Iterable[tuple[Pattern, int]] | None = None,
        seed: int = 0,
    ) -> None:
        texts = Texts()
        self._filters = FilterTables(
            [(r.pattern, number) for number, r in enumerate(rules) if r.pattern is not None], texts
        )
        self._takers = FilterTables(takers, texts) if takers is not None else None
        clusters = list(dict.fromkeys(name for rule in rules for name in rule.scoped))
        self._states = {state: place for place, state in enumerate(ILLEGAL_STATES)}
        self._scopes, self._scope_table = array("i"), array("i")
        self._shares = array("i")
        self._pieces = PieceTables(texts)
        for rule in rules:
            general = self._add_ends(rule.ends)
            scoped = {cluster: self._add_ends(ends) for cluster, ends in rule.scoped.items()}
            self._scopes.append(general)
            self._scopes.extend(scoped.get(cluster, general) for cluster in clusters)
        last = self._add_ends(Ends([otherwise]))
        self._scopes.extend([last] * (len(clusters) + 1))
        self._clusters = array("i", [n for name in clusters for n in texts.add(name)])
        self._text = texts.data()
        self.states: tuple[State, ...] = tuple(self._states)
        self.seed = seed
        places = [*(rule.place for rule in rules), ""]
        self._keys = array("q", [mapping_key(seed, place) for place in places])
        self._lookups: dict[pa.DataType, list[tuple[pa.Array, pa.Array]]] = {}
        self._struct = self._in_c()

    def _add_ends(self, ends: Ends) -> int:
        """Adds a scope to the tables; returns the number of the scope."""
        has_chance = ends.is_drawn or any(
            isinstance(token, Random) for end in ends.ends for token in end.tokens or ()
        )
        self._scope_table.extend((len(self._shares) // 8, ends.is_drawn, has_chance))
        for end in ends.ends:
            piece = (-1, -1, 0, 0) if end.tokens is None else self._pieces.add(end.tokens)
            first_piece, end_piece, fixed, copies = piece
            state = self._state(end.state)
            failed = self._state(end.failed) if end.failed is not None else state
            self._shares.extend(
                (end.below, state, first_piece, end_piece, fixed, copies, end.check, failed)
            )
        return len(self._scope_table) // 3 - 1

    def _state(self, state: State) -> int:
        return self._states.setdefault(state, len(self._states))

    def _in_c(self) -> _Program:
        program = _Program(
            rules=_filters(self._filters),
            takers=_filters(self._takers or self._filters),
            has_takers=self._takers is not None,
            otherwise=len(self._keys) - 1,
            cluster_count=len(self._clusters) // 2,
            text=ctypes.cast(ctypes.c_char_p(self._text), ctypes.c_void_p),
            kept=max(
                self._filters.kept, self._takers.kept if self._takers else 0, self._pieces.kept
            ),
        )
        for name, table in (
            ("keys", self._keys),
            ("scopes", self._scopes),
            ("scope_table", self._scope_table),
            ("shares", self._shares),
            ("pieces", self._pieces.pieces),
            ("hashed", self._pieces.hashed),
            ("clusters", self._clusters),
        ):
            setattr(program, name, table.buffer_info()[0])
        return program

    def __getstate__(self) -> dict[str, object]:
        # These two hold addresses of this process, so another process makes them again.
        return {key: v for key, v in vars(self).items() if key not in ("_struct", "_lookups")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._lookups = {}
        self._struct = self._in_c()

    def run(
        self, subjects: object, *, cluster: object = None, stream: object = None, seq: object = None
    ) -> Mapped:
        """What becomes of each message of a batch, as numbers.

        Args:
            subjects: an array of string or binary of any kind: large, sliced or dictionary. A null
                is a message without a subject.
            cluster: the cluster where each message was published: an array, or one text for all.
            stream: the stream of each message: an array, or one text for all.
            seq: the sequence of each message: an array of whole numbers, or one number for all.

        Raises:
            NatsTransformError: an argument has the wrong type or length, an array is broken, or
                the new subjects come to 2 GB.
            KernelUnavailable: the kernel is not compiled.
        """
        kernel = library()
        if subjects is None or isinstance(subjects, str | bytes):
            raise NatsTransformError("subjects-not-an-array")
        given = text_array(subjects, "subjects")
        rows = len(given)
        arrays = [given]
        for role, value, read in (
            ("cluster", cluster, text_array),
            ("stream", stream, text_array),
            ("seq", seq, number_array),
        ):
            array = read(value, role)
            if isinstance(value, pa.Array | pa.ChunkedArray) and len(array) != rows:
                raise NatsTransformError(
                    "column-of-other-length", role=role, values=len(array), rows=rows
                )
            arrays.append(array)
        return self._run(kernel, Columns(arrays), rows, given.nbytes)

    def _run(self, kernel: ctypes.CDLL, given: Columns, rows: int, size: int) -> Mapped:
        bits = (rows + 7) // 8
        data = pa.allocate_buffer(min(size, 2**31) + _SPARE * (rows + 1), resizable=True)
        offsets, states, draws = (pa.allocate_buffer(4 * (rows + 1)) for _ in range(3))
        has_subject, has_draw = pa.allocate_buffer(bits), pa.allocate_buffer(bits)
        starts = array("I", bytes(4 * (self._struct.kept + 1)))
        ctypes.c_int32.from_address(offsets.address).value = 0
        output = _Output(
            offsets=offsets.address,
            has_subject=has_subject.address,
            states=states.address,
            draws=draws.address,
            has_draw=has_draw.address,
            starts=starts.buffer_info()[0],
        )
        row = 0
        while True:
            output.bytes, output.capacity = data.address, data.size
            row = checked(
                kernel.nats_map(
                    ctypes.byref(self._struct), given.columns, ctypes.byref(output), row, rows
                )
            )
            if row == rows:
                break
            try:
                data.resize(max(2 * data.size, output.used + output.wanted))
            except MemoryError:
                raise NatsTransformError("kernel-no-memory", rows=rows) from None
        return Mapped(
            pa.Array.from_buffers(
                pa.binary(), rows, [has_subject, offsets, data.slice(0, output.used)]
            ),
            pa.Array.from_buffers(pa.int32(), rows, [None, states]),
            pa.Array.from_buffers(pa.int32(), rows, [has_draw, draws]),
        )

    def apply(
        self,
        subjects: object,
        *,
        cluster: object = None,
        stream: object = None,
        seq: object = None,
        text: pa.DataType | None = None,
    ) -> pa.RecordBatch:
        """What becomes of each message of a batch.

        Args:
            subjects: as for `run`.
            cluster: as for `run`.
            stream: as for `run`.
            seq: as for `run`.
            text: the type of subjects, sources and destinations. The default is `pa.binary()`,
                because they may be any bytes. With `pa.string()` the bytes are the same, so
                whoever reads the column must expect text that is not UTF-8.

        Returns:
            The columns `mapped_subject`, `fate`, `reason`, `mapping_source`, `mapping_destination`
            and `draw` (int32), as in `Outcome`. All but the first and the last are dictionaries
            with int32 indexes.

        Raises:
            NatsTransformError, KernelUnavailable: for the same reasons as `run`.
        """
        text = text or pa.binary()
        mapped = self.run(subjects, cluster=cluster, stream=stream, seq=seq)
        looked_up = [
            pa.DictionaryArray.from_arrays(codes.take(mapped.states), values)
            for codes, values in self._lookup(text)
        ]
        return pa.record_batch(
            [mapped.subjects.view(text), *looked_up, mapped.draws], schema=outcome_schema(text)
        )

    def _lookup(self, text: pa.DataType) -> list[tuple[pa.Array, pa.Array]]:
        """For fate, reason, source and destination: the code of each state, and the dictionary."""
        if text not in self._lookups:
            self._lookups[text] = [
                _encoded([state.fate.value for state in self.states], pa.string()),
                _encoded([state.reason for state in self.states], pa.string()),
                _encoded([state.source for state in self.states], text),
                _encoded([state.destination for state in self.states], text),
            ]
        return self._lookups[text]


def outcome_schema(text: pa.DataType) -> pa.Schema:
    """The columns of `Program.apply`."""
    words, subjects = pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), text)
    return pa.schema(
        [
            pa.field("mapped_subject", text),
            pa.field("fate", words, nullable=False),
            pa.field("reason", words),
            pa.field("mapping_source", subjects),
            pa.field("mapping_destination", subjects),
            pa.field("draw", pa.int32()),
        ]
    )


def _encoded(values: Sequence[str | None], kind: pa.DataType) -> tuple[pa.Array, pa.Array]:
    raw = pa.array(
        [None if value is None else Texts.encoded(value) for value in values], pa.binary()
    )
    encoded = pc.dictionary_encode(raw)
    return encoded.indices, encoded.dictionary.view(kind)


def _filters(tables: FilterTables) -> _Filters:
    filters = _Filters(longest=tables.longest)
    for name in ("shapes", "runs", "slots", "order", "starts"):
        setattr(filters, name, getattr(tables, name).buffer_info()[0])
    return filters
