"""Perfect hashes over strings."""

from __future__ import annotations

import pytest

from nats_transform.spark.lookup import Index


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 7, 8, 16, 100, 5000])
def test_every_string_has_a_slot_of_its_own(count: int) -> None:
    # Many sets of each size: hashes that are alike in their last bits are rare in one.
    for n in range(max(1, 300 // (count + 1))):
        numbers = {f"{n}.{k}": k for k in range(count)}
        index = Index(numbers)
        found = {text: index.numbers[slot] for slot, text in enumerate(index.keys) if text}
        assert found == numbers
