"""Which shapes subjects fit: the kernel's answer is that of each shape alone."""

from __future__ import annotations

import pickle

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobs.audit.fits import Fits
from nats_transform import Transform
from nats_transform.audit.chance import KEYS
from nats_transform.mappings.shape import shape_of, shape_of_filter
from nats_transform.mappings.subject import encode

SHAPES = [
    shape_of(Transform("*.*", destination))
    for destination in (
        "a.$1",
        "a.b",
        "$1.b",
        "a.$1.$1",
        "a.{{partition(12,1)}}",
        "é.{{left(1,2)}}",
        "b.{{split(1,-)}}",
        "b.{{splitfromleft(1,2)}}.x",
        "c.{{slicefromright(1,2)}}",
        "{{wildcard(0)}}.{{random(3)}}.c",
    )
] + [shape_of_filter(filter) for filter in ("a.>", ">", "*.b", "b.*.x", "é.*")]
TOKEN = st.sampled_from([*b"a b c x 0 11 12 b-c * > ab".split(), "é".encode(), b"\xff", b""])


@given(
    st.lists(st.sampled_from(SHAPES), min_size=1, max_size=6),
    st.lists(st.lists(TOKEN, min_size=1, max_size=4).map(b".".join), max_size=30),
)
def test_every_shape_that_fits_is_found(shapes: list, subjects: list[bytes]) -> None:
    fits = pickle.loads(pickle.dumps(Fits(shapes)))  # noqa: S301 - as tasks get it
    rows = [*subjects, None]
    for kind in (pa.binary(), pa.string()):
        given = pa.array(rows, pa.binary()).view(kind)
        layers = list(fits.of(given))
        for row, subject in enumerate(rows):
            found = {layer.values[layer.numbers[row]] for layer in layers} - {None}
            wanted = {
                s.pattern
                for s in shapes
                if subject is not None and s.fits(subject.decode("utf-8", "surrogateescape"))
            }
            assert found == wanted, subject


def test_mappings_without_overlap_need_one_look() -> None:
    shapes = [shape_of(Transform(f"s{n}.*", f"d{n}.$1")) for n in range(50)]
    assert len(list(Fits(shapes).of(pa.array([encode("d7.x")])))) == 1


def test_keys_are_hashed_as_partition_does() -> None:
    shapes = [shape_of(Transform("*.*.*", "k.$2.$1")), shape_of_filter("k.>")]
    fits = Fits(shapes, {shapes[0].pattern: (2, 1)})
    subjects = ["k.a.b", "k.long-token.*", "k.a", "x", None]
    _, hashes = fits.with_keys(pa.array(subjects, pa.string()))
    key_of = Transform("*.*.*", f"{{{{partition({KEYS},3,2)}}}}").apply
    assert hashes.tolist() == [int(key_of("k.a.b") or -1), -1, -1, -1, -1]


def test_a_key_is_that_of_the_shape_that_fits() -> None:
    """The filter of another one may cover the subject too, and its key be another token."""
    shapes = [
        shape_of(Transform("*", "a.v1.$1")),
        shape_of(Transform("*.*", "a.$1.{{partition(3,2)}}")),
    ]
    fits = Fits(shapes, {shapes[0].pattern: (2,), shapes[1].pattern: (1,)})
    tokens = [*"klmnopqrst"]
    subjects = [*(f"a.v1.{token}" for token in tokens), "a.k.0", "a.v1.0"]
    _, hashes = fits.with_keys(pa.array(subjects, pa.string()))
    key_of = Transform("*", f"{{{{partition({KEYS},1)}}}}").apply
    # Of which the last is the key is not known.
    assert hashes.tolist() == [*(int(key_of(token) or -1) for token in [*tokens, "k"]), -1]
