"""The consumers in a backup. Each has a configuration and a state, as the server writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Consumer = Mapping[str, Any]


def filters_of(consumer: Consumer) -> list[str]:
    """The filters of a consumer. Without filters it gets every message."""
    config = consumer["config"]
    one = config.get("filter_subject")
    return [one] if one else list(config.get("filter_subjects") or [])


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
            state[part] = {key: value for key, value in had.items() if int(key) not in sequences}
            if not state[part]:
                del state[part]
    if consumer["state"].get("pending") and "pending" not in state:
        state["ack_floor"] = state["delivered"]
    return {**consumer, "state": state}
