"""The consumers in a backup. Each has a configuration and a state, as the server writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nats_transform.errors import InvalidBackup, InvalidValue, first_fault

Consumer = Mapping[str, Any]


_Sequence = Annotated[int, Field(ge=0, lt=2**63)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Config(_Part):
    filter_subject: str | None = None
    filter_subjects: list[str] | None = None


class _State(_Part):
    delivered: dict[str, Any] | None = None
    pending: dict[_Sequence, Any] | None = None
    redelivered: dict[_Sequence, Any] | None = None

    @model_validator(mode="after")
    def _refuse(self) -> _State:
        if self.pending and self.delivered is None:
            raise InvalidValue("consumer-pending-alone")
        return self


class _Document(_Part):
    config: _Config
    state: _State


def parse_consumer(name: str, text: bytes) -> Consumer:
    """The `config` and `state` of the consumer in a document of an archive.

    Raises:
        InvalidBackup: they are not what a server writes.
    """
    try:
        return _Document.model_validate_json(text).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise InvalidBackup(
            "backup-consumer-invalid", name=name, reason=first_fault(error)
        ) from None


def with_filters(consumer: Consumer, filters: Sequence[str]) -> Consumer:
    """The consumer with other filters."""
    config = {
        name: value
        for name, value in consumer["config"].items()
        if name not in ("filter_subject", "filter_subjects")
    }
    if len(filters) == 1:
        config["filter_subject"] = filters[0]
    elif filters:
        config["filter_subjects"] = list(filters)
    return {**consumer, "config": config}


def without(consumer: Consumer, sequences: Collection[int]) -> Consumer:
    """The consumer, which no longer waits for acknowledgements of some messages.

    If it waited for no others, everything that was delivered counts as acknowledged. nats-server
    does the same for messages that are deleted.
    """
    state = dict(consumer["state"])
    for part in ("pending", "redelivered"):
        if had := state.get(part):
            state[part] = {key: value for key, value in had.items() if key not in sequences}
            if not state[part]:
                del state[part]
    if consumer["state"].get("pending") and "pending" not in state:
        state["ack_floor"] = state["delivered"]
    return {**consumer, "state": state}
