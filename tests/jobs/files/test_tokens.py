"""One token of every subject."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobs.files.tokens import TokenAt

TOKENS = st.lists(st.sampled_from([b"a", b"", b"*", b">", b"\xff", b"long token"]), min_size=1)


@given(
    st.lists(TOKENS.map(b".".join)), st.integers(1, 4), st.sampled_from([pa.binary(), pa.string()])
)
def test_the_token_at_a_place(subjects: list[bytes], place: int, kind: pa.DataType) -> None:
    found = TokenAt(place).of(pa.array([*subjects, None], pa.binary()).view(kind)).to_pylist()
    cut = [subject.split(b".") for subject in subjects]
    assert found == [t[place - 1] if len(t) >= place else None for t in cut] + [None]
