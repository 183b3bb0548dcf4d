"""Consumers of a stream, and the messages that they get."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nats_transform.errors import InvalidStream
from nats_transform.mappings.subject import subscribes
from nats_transform.mappings.subject_index import Interest


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a stream.

    Attributes:
        stream: the name of the stream.
        name: the name of the consumer.
        filters: filters of stored subjects; without any, the consumer gets every message.
    """

    stream: str
    name: str
    filters: tuple[str, ...] = ()

    def wants(self, stored: str) -> bool:
        """Whether the consumer gets a message that its stream stores under this subject."""
        return not self.filters or any(subscribes(f, stored) for f in self.filters)


class Consumers:
    """Finds the consumers that get a message, without asking each of them."""

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._unfiltered: dict[str, list[int]] = defaultdict(list)
        filtered: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for number, consumer in enumerate(consumers):
            filtered[consumer.stream] += [(filter, number) for filter in consumer.filters]
            if not consumer.filters:
                self._unfiltered[consumer.stream].append(number)
        self._filtered = {stream: Interest(filters) for stream, filters in filtered.items()}

    def of(self, stream: str, stored: str) -> set[int]:
        """The numbers of those of whom each `Consumer.wants` what the stream stores."""
        interest = self._filtered.get(stream)
        return {*self._unfiltered.get(stream, ()), *(interest.of(stored) if interest else ())}


def filters_of(config: Mapping[str, Any]) -> list[str]:
    """The filters in the configuration of a consumer. Without filters it gets every message."""
    one = config.get("filter_subject")
    return [one] if one else config.get("filter_subjects") or []


def parse_consumer(data: object) -> Consumer:
    """The consumer in the output of `nats consumer info --json`.

    Raises:
        InvalidStream: this is not a consumer; the error is one line with the field.
    """
    config = data.get("config") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(config, dict):
        raise InvalidStream("consumer-without-config")
    stream = data.get("stream_name")
    name = data.get("name") or config.get("durable_name") or config.get("name")
    if not isinstance(stream, str) or not stream or not isinstance(name, str) or not name:
        raise InvalidStream("consumer-without-names")
    filters = filters_of(config)
    if not isinstance(filters, list) or not all(isinstance(filter, str) for filter in filters):
        raise InvalidStream("consumer-filter", name=name)
    return Consumer(stream, name, tuple(filters))
