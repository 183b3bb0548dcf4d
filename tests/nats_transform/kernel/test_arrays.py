"""What the kernel takes: arrays of every layout, single values, and nothing that is broken."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from nats_transform import NatsTransformError
from nats_transform.kernel import compile_mappings
from nats_transform.mappings.subject import encode
from tests.nats_transform.kernel.comparing import Message, compare, mappings_case, outcomes, texts
from tests.support import rules
from tests.support.refused import refused

MAPPINGS = rules.mappings(
    {
        "orders.*.*": [
            ("v2.$2.{{partition(16,1)}}.$1", 60),
            ("v3.{{split(1,-)}}.{{random(9)}}", 30),
            ("east.$1.$2", 70, "east"),
        ]
    }
)
GROWS = rules.mappings({"*": ".".join(["{{slicefromleft(1,1)}}"] * 20)})
MESSAGES = [
    Message(subject, cluster, stream, seq)
    for seq, subject in enumerate(["orders.eu.1", None, "orders.--.2", "x", "", "orders.\udcff.3"])
    for cluster in (None, "east", "west")
    for stream in ("S", None, "ORDERS")
]


# Those of most arrays are in test_differential.py.
OTHER_LAYOUTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "view": lambda array: array.cast(pa.binary_view()),
    "large-string": lambda array: array.cast(pa.large_binary()).view(pa.large_string()),
    "chunked": lambda array: pa.chunked_array([array[:5], array[5:5], array[5:]]),
    "narrow-index": lambda array: indexed_by(array.dictionary_encode(), pa.int8()),
    "unsigned-index": lambda array: indexed_by(array.dictionary_encode(), pa.uint64()),
    "slice-of-dictionary": lambda array: (
        pa.concat_arrays([array, array]).dictionary_encode().slice(len(array))
    ),
    "null-in-dictionary": lambda array: array.dictionary_encode(null_encoding="encode"),
    "one-byte-off": lambda array: pa.Array.from_buffers(
        array.type, len(array), [array.buffers()[0], moved(array.buffers()[1]), array.buffers()[2]]
    ),
}


def indexed_by(array: pa.DictionaryArray, kind: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(array.indices.cast(kind), array.dictionary)


def moved(buffer: pa.Buffer) -> pa.Buffer:
    """A copy at an odd address."""
    return pa.py_buffer(b"x" + buffer.to_pybytes()).slice(1)


@pytest.mark.parametrize("layout", OTHER_LAYOUTS.values(), ids=OTHER_LAYOUTS)
def test_other_layouts(layout: Callable[[pa.Array], pa.Array]) -> None:
    compare(mappings_case(MAPPINGS, MESSAGES), text=lambda values: layout(texts(values)))


def test_single_values_stand_for_all_rows() -> None:
    subjects = texts([m.subject for m in MESSAGES])
    batch = compile_mappings(MAPPINGS, 3).apply(subjects, cluster="east", stream="S", seq=7)
    assert outcomes(batch) == [
        MAPPINGS.replay(m.subject, "east", stream="S", seq=7, seed=3) for m in MESSAGES
    ]
    none = compile_mappings(MAPPINGS).apply(subjects)
    assert outcomes(none) == [
        MAPPINGS.replay(m.subject, None, stream=None, seq=None) for m in MESSAGES
    ]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.uint32(), pa.uint64()])
def test_sequences_of_any_width(kind: pa.DataType) -> None:
    subjects = texts(["orders.a.b"] * 100)
    batch = compile_mappings(MAPPINGS).apply(subjects, stream="S", seq=pa.array(range(100), kind))
    assert outcomes(batch) == [
        MAPPINGS.replay("orders.a.b", stream="S", seq=seq) for seq in range(100)
    ]


@pytest.mark.parametrize("subjects", [pa.array([], pa.binary()), pa.array([], pa.null())])
def test_no_rows(subjects: pa.Array) -> None:
    batch = compile_mappings(MAPPINGS).apply(subjects)
    batch.validate(full=True)
    assert batch.num_rows == 0
    assert batch.schema.names == [
        *("mapped_subject", "fate", "reason", "mapping_source", "mapping_destination", "draw")
    ]


def test_only_nulls() -> None:
    (outcome,) = set(outcomes(compile_mappings(MAPPINGS).apply(pa.nulls(9))))
    assert outcome == MAPPINGS.replay(None, stream=None, seq=None)


def test_columns_of_strings() -> None:
    """For tables whose columns are strings: the same bytes, also where they are not UTF-8."""
    program = compile_mappings(MAPPINGS)
    subjects = texts(["orders.a.b", "\udcff"])
    binary, text = program.apply(subjects), program.apply(subjects, text=pa.string())
    assert text.schema.field("mapped_subject").type == pa.string()
    assert text["mapped_subject"].view(pa.binary()) == binary["mapped_subject"]
    assert text["mapping_source"].to_pylist() == ["orders.*.*", None]


def test_states_stand_for_what_is_told() -> None:
    program = compile_mappings(MAPPINGS)
    subjects = texts([m.subject for m in MESSAGES])
    mapped, batch = program.run(subjects), program.apply(subjects)
    states = [program.states[place] for place in mapped.states.to_pylist()]
    assert [state.fate for state in states] == batch["fate"].to_pylist()
    assert [state.reason for state in states] == batch["reason"].to_pylist()
    assert {state.rule for state in states} == {None, 0}
    assert (mapped.subjects, mapped.draws) == (batch["mapped_subject"], batch["draw"])


def test_pickled_programs_do_the_same() -> None:
    case = mappings_case(MAPPINGS, MESSAGES, seed=5)
    copy = pickle.loads(pickle.dumps(case.program))  # noqa: S301 - our own
    assert copy.states == case.program.states
    subjects, seqs = texts([m.subject for m in MESSAGES]), pa.array([m.seq for m in MESSAGES])
    assert copy.apply(subjects, seq=seqs) == case.program.apply(subjects, seq=seqs)


ONE = texts(["orders.a.b"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param({"subjects": "orders.a.b"}, "subjects-not-an-array", id="text"),
        pytest.param({"subjects": None}, "subjects-not-an-array", id="none"),
        pytest.param({"subjects": ["a"]}, "column-not-an-array", id="list"),
        pytest.param({"subjects": pa.array([1])}, "column-not-text", id="numbers"),
        pytest.param({"cluster": 5}, "column-not-an-array", id="cluster"),
        pytest.param({"stream": pa.array([[1]])}, "column-not-text", id="stream"),
        pytest.param({"seq": "5"}, "column-not-an-array", id="seq"),
        pytest.param({"seq": pa.array([1.5])}, "column-not-whole-numbers", id="fractions"),
        pytest.param({"seq": 2**63}, "number-over-64-bits-in", id="large-number"),
        pytest.param({"seq": pa.array([2**63], "u8")}, "number-over-64-bits-in", id="large-array"),
        pytest.param({"seq": pa.array([1, 2])}, "column-of-other-length", id="length"),
        pytest.param({"cluster": texts(["a", "b"])}, "column-of-other-length", id="cluster-length"),
    ],
)  # fmt: skip
def test_refuses(arguments: dict[str, object], code: str) -> None:
    with refused(NatsTransformError, code):
        compile_mappings(MAPPINGS).run(**({"subjects": ONE} | arguments))


def binary(offsets: Sequence[int], data: bytes, wide: bool = False) -> pa.Array:
    """An array that was not checked."""
    packed = struct.pack(f"<{len(offsets)}{'q' if wide else 'i'}", *offsets)
    kind = pa.large_binary() if wide else pa.binary()
    return pa.Array.from_buffers(
        kind, len(offsets) - 1, [None, pa.py_buffer(packed), pa.py_buffer(data)]
    )


def dictionary(indexes: Sequence[int], kind: pa.DataType | None = None) -> pa.Array:
    numbers = pa.array(indexes, kind or pa.int32())
    return pa.DictionaryArray.from_arrays(numbers, texts(["a"]), safe=False)


BROKEN = {
    "beyond-the-end": binary([0, 9, 3], b"abc"),
    "descending": binary([0, 3, 1, 3], b"abc"),
    "below-zero": binary([0, -3, 3], b"abc"),
    "far-beyond": binary([0, 2**31 - 1, 3], b"abc"),
    "large-beyond": binary([0, 2**62, 3], b"abc", wide=True),
    "large-below-zero": binary([0, -(2**62), 3], b"abc", wide=True),
    "index-beyond": dictionary([0, 1]),
    "index-below-zero": dictionary([0, -1]),
    "narrow-index-beyond": dictionary([0, 1], pa.int8()),
    "narrow-index-below-zero": dictionary([0, -1], pa.int8()),
    "unsigned-index-beyond": dictionary([0, 2**63], pa.uint64()),
}


@pytest.mark.parametrize("array", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("role", ["subjects", "cluster", "stream"])
def test_broken_arrays_are_refused(role: str, array: pa.Array) -> None:
    given = {"subjects": texts(["orders.a.b"] * len(array)), "seq": 1} | {role: array}
    with pytest.raises(NatsTransformError) as caught:
        compile_mappings(MAPPINGS).run(**given)
    assert caught.value.code in ("array-broken", "offsets-broken")


def test_results_grow() -> None:
    """Forty times the size of the subject, and more than the first guess."""
    subject = "x" * 2**16
    mapped = compile_mappings(GROWS).apply(texts([subject] * 3))["mapped_subject"].to_pylist()
    assert mapped == [encode(GROWS.replay(subject, stream=None, seq=None).subject or "")] * 3


@pytest.mark.slow
def test_results_of_two_gigabytes_are_refused() -> None:
    """Offsets have 32 bits; the buffer of the result ends well before the memory does."""
    with refused(NatsTransformError, "subjects-over-2-gb"):
        compile_mappings(GROWS).apply(texts(["x" * 2**20] * 60))


def test_results_without_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subject that may grow forty-fold, where nothing more can be had."""

    class Full:
        def __init__(self, size: int) -> None:
            self._buffer = pa.py_buffer(bytearray(size))
            self.address, self.size = self._buffer.address, size

        def resize(self, size: int) -> None:
            raise pa.ArrowMemoryError("realloc failed")

    allocate = pa.allocate_buffer
    monkeypatch.setattr(
        pa,
        "allocate_buffer",
        lambda size, resizable=False: Full(size) if resizable else allocate(size),
    )
    with refused(NatsTransformError, "kernel-no-memory", rows=1):
        compile_mappings(GROWS).apply(texts(["x" * 2**16]))


def test_text_that_has_no_bytes_is_refused() -> None:
    with refused(NatsTransformError, "text-half-surrogate"):
        compile_mappings(rules.mappings({"a.\ud800": "b"})).apply(ONE)
