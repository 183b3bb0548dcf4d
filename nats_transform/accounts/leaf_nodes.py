"""Which accounts of two servers a leaf node connection joins."""

from __future__ import annotations

from typing import NamedTuple

ANYBODY = "*"


class LeafNodes(NamedTuple):
    """The leaf node connections of an account.

    Attributes:
        goes_as: the users as which the account goes to other servers; "" without a user.
        comes_as: the users as which others come to the account; `ANYBODY` for all.
    """

    goes_as: frozenset[str] = frozenset()
    comes_as: frozenset[str] = frozenset()

    def meets(self, other: LeafNodes) -> bool:
        """Whether there is a connection between two accounts if their servers have one."""
        return any(
            bool(one.goes_as & two.comes_as) or (bool(one.goes_as) and ANYBODY in two.comes_as)
            for one, two in ((self, other), (other, self))
        )


NO_LEAF_NODES = LeafNodes()
