"""All users at once are told apart as each user alone."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from nats_transform.config.permissions import Allowance, Rights, User

token = st.sampled_from(["a", "b", "*", ">", "*a", ""])
subjects = st.lists(token, min_size=1, max_size=3).map(".".join)
some = st.lists(subjects, max_size=3).map(tuple)
sides = st.builds(Allowance, st.none() | some, some)


@given(st.lists(st.builds(User, st.just("u"), sides, sides), max_size=5), subjects)
def test_who_may(users: list[User], subject: str) -> None:
    expected = {
        (how, number)
        for number, user in enumerate(users)
        for how, side in (("publish", user.publish), ("subscribe", user.subscribe))
        if side != Allowance() and side.allows(subject)
    }
    assert Rights(users).of(subject) == expected


def test_thousands_of_users_are_no_trouble() -> None:
    """Asking each user about each subject would take minutes."""
    started = time.process_time()
    mine = [Allowance((f"dev.{n}.>", f"ans.{n}"), (f"dev.{n}.no",)) for n in range(20_000)]
    rights = Rights([User(f"u{n}", side, side) for n, side in enumerate(mine)])
    for n in range(0, 20_000, 2):
        assert rights.of(f"dev.{n}.x") == {("publish", n), ("subscribe", n)}
    assert time.process_time() - started < 20
