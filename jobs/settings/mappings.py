"""Which mappings are meant, of which file and account, and how their shares are judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from jobs.settings.base import Name, Points, Probability, Seed, Settings, setting
from jobs.settings.days import StreamDays
from jobs.settings.warehouse import BranchedWarehouse, Warehouse
from nats_transform.errors import InvalidValue

if TYPE_CHECKING:
    from nats_transform.mappings.mapping import AccountMappings

Account = Annotated[
    Name,
    Field(description="The account whose mappings are used, if the file has several accounts."),
]


class LeafNodeSettings(Settings):
    """The account of the mappings, and what is beyond a leaf node connection of it."""

    account: Account = "$G"
    leaf_node: Path | None = setting(
        None,
        "The mappings on the other side of a leaf node connection. They apply to what passes it.",
    )
    leaf_node_account: Name | None = setting(
        None,
        "The connection's account on that side.",
        otherwise="the account that --account names",
    )

    @model_validator(mode="after")
    def _with_leaf_node(self) -> Self:
        if self.leaf_node_account is not None and self.leaf_node is None:
            raise InvalidValue("leaf-account-without-file")
        return self

    def other_side(self) -> AccountMappings | None:
        """The mappings beyond the connection; None if nobody shows them.

        Raises:
            InvalidConfig: the file cannot be read or is refused.
        """
        from nats_transform.config import load_mappings

        if self.leaf_node is None:
            return None
        return load_mappings(self.leaf_node, self.leaf_node_account or self.account)


class MappedDays(StreamDays):
    """Some days of a stream, and the mappings that are applied to its messages."""

    mapping: Path = setting(
        ..., "The mappings: a server configuration, an account JWT, JSON or YAML."
    )
    account: Account = "$G"
    # What the table of mapping versions can hold.
    seed: Seed = setting(
        0,
        "The seed for all draws. The same seed gives the same rows.",
        ge=-(2**63),
        le=2**63 - 1,
    )


class JudgedDays(StreamDays):
    """Some days of a stream, and how strictly the shares of destinations are judged."""

    warehouse: BranchedWarehouse = Warehouse()

    tolerance: Points = setting(
        1.0,
        "How many percentage points a share may differ from its weight, at most half of a small "
        "weight.",
    )
    confidence: Probability = setting(
        0.99, "The probability, from 0 to 1, that all confidence intervals are right together."
    )
