"""Stream configurations, and what a stream does to a subject.

A message passes the account mappings when it is published. In each stream that takes it, it then
passes the transform of the stream source or mirror, the ingress transform, and, after it is stored,
the republish transform, each once. Sources: ADR-36, ADR-30; nats-server `server/stream.go`
(`processJetStreamMsg`, `processInboundSourceMsg`, `processMirrorMsgs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError, model_validator

from nats_transform.errors import InvalidStream, Refusals
from nats_transform.mappings.draw import mapping_key, message_entropy
from nats_transform.mappings.mapping import Fate, Outcome
from nats_transform.mappings.subject import (
    SEPARATOR,
    is_valid_publish_subject,
    literal_fault,
    subscribes,
)
from nats_transform.mappings.transform import Transform
from nats_transform.streams.fields import StreamFields
from nats_transform.streams.rules import refuse_invalid

INGRESS = "subject_transform"
"""The place of the ingress transform, for `nats_transform.mappings.draw.mapping_key`."""
REPUBLISH = "republish"
"""The place of the republish transform."""
UNPUBLISHABLE = "nobody can publish under the new subject; nats-server republishes nothing"


@dataclass(frozen=True, slots=True)
class Republished:
    """A message that a stream publishes again.

    Attributes:
        subject: the subject that it gets.
        stream: the stream that stored it.
        stored: the subject that it is stored under.
        headers_only: whether the body is left out.
    """

    subject: str
    stream: str
    stored: str
    headers_only: bool

    def headers(
        self, sequence: int, last_sequence: int, timestamp: str, size: int
    ) -> dict[str, str]:
        """The headers that nats-server adds.

        Args:
            sequence: the sequence of the message in the stream.
            last_sequence: the sequence of the last message before it with this subject, or 0.
            timestamp: when it was stored, as RFC 3339 in UTC with nanoseconds.
            size: bytes of the body.
        """
        added = {
            "Nats-Stream": self.stream,
            "Nats-Subject": self.stored,
            "Nats-Sequence": str(sequence),
            "Nats-Time-Stamp": timestamp,
            "Nats-Last-Sequence": str(last_sequence),
        }
        return added | {"Nats-Msg-Size": str(size)} if self.headers_only else added


class StreamConfig(StreamFields):
    """What `nats stream info --json` prints under `config`, refused as nats-server refuses it.

    Examples:
        >>> config = StreamConfig.model_validate(
        ...     {"name": "ORDERS", "subjects": ["orders.*"],
        ...      "subject_transform": {"src": "orders.*", "dest": "orders.{{partition(3,1)}}.$1"}}
        ... )
        >>> config.ingress("orders.42").subject
        'orders.1.42'

    `parse_stream` gives the same with a one-line error.
    """

    @model_validator(mode="after")
    def _refuse(self) -> StreamConfig:
        refuse_invalid(self)
        return self

    @cached_property
    def republish_transform(self) -> Transform | None:
        """The transform to the subject of a republished message, or None."""
        source, destination = self.republish_pair
        return Transform(source, destination) if destination else None

    def captures(self, subject: str) -> bool:
        """Whether a message published under a subject is stored here."""
        return any(subscribes(filter, subject) for filter in self.captured)

    def ingress(self, subject: str | None, entropy: int | None = 0) -> Outcome:
        """The subject under which a message that reaches this stream is stored.

        The ingress transform does not filter: the fate is `unmatched` where it does not apply. An
        illegal result, with an empty token, is stored as it is.

        Args:
            subject: the subject as it was published or mapped, or as the source or mirror renamed
                it; a message without one is invalid.
            entropy: 64 bits that decide each `random()`; None leaves it as it is written.
        """
        if (fault := literal_fault(subject)) or subject is None:
            return Outcome(None, Fate.INVALID, reason=fault)
        transform = self.ingress_transform
        stored = transform.apply(subject, entropy) if transform else None
        if transform is None or stored is None:
            return Outcome(subject, Fate.UNMATCHED)
        return Outcome(stored, Fate.MAPPED, transform.source, transform.destination)

    def replay(
        self, subject: str | None, *, stream: str | None, seq: int | None, seed: int = 0
    ) -> Outcome:
        """The subject that a message of an archive is stored under: `ingress` with its own draw.

        Args:
            subject: the subject of the message; without one it is invalid.
            stream: the stream the message is in.
            seq: its sequence there.
            seed: the seed of the run.
        """
        return self.ingress(subject, message_entropy(stream, seq, mapping_key(seed, INGRESS)))

    def republished(self, stored: str, entropy: int | None = 0) -> Republished | None:
        """The message that the stream publishes again for one it stores, or None.

        Args:
            stored: the subject it is stored under.
            entropy: 64 bits that decide each `random()`; None leaves it as it is written.
        """
        subject = self.republish_outcome(stored, entropy).subject
        if self.republish is None or subject is None:
            return None
        return Republished(subject, self.name, stored, self.republish.headers_only)

    def republish_outcome(self, stored: str | None, entropy: int | None = 0) -> Outcome:
        """The result of `republished` as an outcome.

        Fates: `filtered` if nothing is to be republished under the stored subject, `invalid` if
        the server suppresses the new one, else `mapped`.

        Args:
            stored: the subject it is stored under; a message without one is invalid.
            entropy: 64 bits that decide each `random()`; None leaves it as it is written.
        """
        if (fault := literal_fault(stored)) or stored is None:
            return Outcome(None, Fate.INVALID, reason=fault)
        transform = self.republish_transform
        subject = transform.apply(stored, entropy) if transform else None
        if transform is None or subject is None:
            return Outcome(None, Fate.FILTERED)
        pair = transform.source, transform.destination
        if not is_valid_publish_subject(subject):
            return Outcome(None, Fate.INVALID, *pair, reason=UNPUBLISHABLE)
        return Outcome(subject, Fate.MAPPED, *pair)

    def replay_republish(
        self, stored: str | None, *, stream: str | None, seq: int | None, seed: int = 0
    ) -> Outcome:
        """`republish_outcome` of a message in an archive of this stream, with its own draw.

        Args:
            stored: the subject it is stored under; without one it is invalid.
            stream: the stream the message is in.
            seq: its sequence there.
            seed: the seed of the run.
        """
        key = mapping_key(seed, REPUBLISH)
        return self.republish_outcome(stored, message_entropy(stream, seq, key))


def parse_stream(data: object) -> StreamConfig:
    """The stream configuration in parsed JSON.

    Raises:
        InvalidStream: one line with the field and the server's reason, and its `others`.
    """
    try:
        return StreamConfig.model_validate(data)
    except ValidationError as error:
        refusals = Refusals(InvalidStream)
        for detail in error.errors(include_url=False):
            with refusals:
                cause = detail.get("ctx", {}).get("error")
                if isinstance(cause, InvalidStream):
                    raise cause from None
                where = SEPARATOR.join(str(part) for part in detail["loc"])
                raise InvalidStream(
                    "stream-invalid", where=where or "stream configuration", detail=detail["msg"]
                ) from None
        refusals.tell()
        raise
