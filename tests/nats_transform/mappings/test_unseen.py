"""What a result on the subjects of an archive says that it did not look at."""

from __future__ import annotations

import pytest

from nats_transform.mappings.unseen import unseen_of_archive
from tests.support.rules import mappings as account

SECOND = "whether the second partition() of a destination, and later ones, move keys"

NUMBERS = "how many messages get each number of random(), if not all go the same way"


@pytest.mark.parametrize(
    ("destination", "expected"),
    [
        ("p.$1.$2", []),
        ("p.{{partition(2,1)}}.$2", []),
        ("p.{{partition(2,1)}}.{{partition(3,2)}}", [SECOND]),
        ("p.{{random(2)}}.$2", [NUMBERS]),
    ],
)
def test_what_a_destination_hides(destination: str, expected: list[str]) -> None:
    mappings = account({"a.*.*": destination})

    def told(*given: object) -> list[str]:
        unseen = unseen_of_archive(
            given,  # type: ignore[arg-type]
            stream="",
            is_live=False,
            has_streams=True,
            has_consumers=True,
            has_permissions=True,
            clusters=(),
            unknown=(),
            knows_headers=True,
            headers=(),
            has_other_side=True,
        )
        return [one.what for one in unseen]

    assert [what for what in told(mappings) if what not in told()] == expected
