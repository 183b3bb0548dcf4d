"""Stream configurations, and what a stream does to a subject.

A message passes the account mappings when it is published, then in each stream that takes it: the
transform of the stream source or mirror, the ingress transform, and after it is stored the
republish transform, each once. Sources: ADR-36, ADR-30; nats-server `server/stream.go`
(`processJetStreamMsg`, `processInboundSourceMsg`, `processMirrorMsgs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from nats_transform import stream_rules
from nats_transform.draw import mapping_key, message_entropy
from nats_transform.errors import InvalidStream
from nats_transform.mapping import Fate, Outcome
from nats_transform.subject import (
    ANY_TAIL,
    NO_SUBJECT,
    SEPARATOR,
    Filter,
    is_valid_publish_subject,
    literal_fault,
    subscribes,
)
from nats_transform.transform import Transform

INGRESS = "subject_transform"
"""The place of the ingress transform, for `nats_transform.draw.mapping_key`."""
REPUBLISH = "republish"
"""The place of the republish transform."""
UNPUBLISHABLE = "nobody can publish under the new subject; nats-server republishes nothing"

Int32: TypeAlias = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Int64: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
UInt64: TypeAlias = Annotated[int, Field(ge=0, lt=2**64)]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class Wire(BaseModel):
    """A JSON object of the JetStream API: the types are strict, unknown fields are kept."""

    model_config = ConfigDict(
        extra="allow", frozen=True, strict=True, validate_by_alias=True, validate_by_name=True
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: object) -> object:
        # A null in JSON leaves a Go field at its zero value.
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if value is not None}
        return data


class SubjectTransform(Wire):
    """A source filter and a destination as a stream configuration writes them.

    Attributes:
        source: the filter (`src`); what an empty one means depends on the place.
        destination: the destination (`dest`); empty: nothing is renamed.
    """

    source: str = Field("", alias="src")
    destination: str = Field("", alias="dest")

    @cached_property
    def transform(self) -> Transform | None:
        """The transform, or None without a destination."""
        return Transform(self.source, self.destination) if self.destination else None


class RePublish(SubjectTransform):
    """Messages published again under another subject once they are stored.

    Attributes:
        headers_only: the body is left out; its size is in the header `Nats-Msg-Size`.
    """

    headers_only: bool = False


class ExternalStream(Wire):
    """Where a stream of another account or domain is reached.

    Attributes:
        api: subject prefix of its JetStream API.
        deliver: subject prefix of the deliveries.
    """

    api: str = ""
    deliver: str = ""


class ConsumerReference(Wire):
    """A durable consumer that a mirror or stream source reads from (server 2.12)."""

    name: str = ""
    deliver_subject: str = ""


@dataclass(frozen=True, slots=True)
class StreamFilter:
    """One filter of a mirror or stream source, and the transform that goes with it.

    Attributes:
        source: the filter, never empty.
        destination: as written; empty if it only filters.
        filter: the filter, parsed.
        transform: None if it only filters.
    """

    source: str
    destination: str
    filter: Filter
    transform: Transform | None


class StreamSource(Wire):
    """One of the streams that a stream sources.

    Attributes:
        name: the other stream.
        filter_subject: only subjects under this filter are taken.
        subject_transforms: several filters, each with a destination or an empty one.
    """

    name: str = ""
    opt_start_seq: UInt64 = 0
    opt_start_time: str | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = []
    external: ExternalStream | None = None
    consumer: ConsumerReference | None = None

    @property
    def starts_somewhere(self) -> bool:
        """Whether a first sequence or time is given."""
        return bool(self.opt_start_seq) or self.opt_start_time is not None

    @property
    def api_prefix(self) -> str | None:
        """The API prefix of an external stream."""
        return self.external.api if self.external else None

    @property
    def identity(self) -> tuple[str | None, ...]:
        """What tells the sources of one stream apart (`composeIName`)."""
        pairs = [(t.source or ANY_TAIL, t.destination or ANY_TAIL) for t in self.subject_transforms]
        return (
            self.name,
            self.api_prefix,
            self.consumer.name if self.consumer else None,
            *[
                text
                for pair in pairs or [(self.filter_subject or ANY_TAIL, ANY_TAIL)]
                for text in pair
            ],
        )

    @property
    def place(self) -> str:
        """What tells its draws from those of the stream's other transforms."""
        # A blank stands in no name and no filter.
        return " ".join(["source", *[part or "" for part in self.identity]])

    @cached_property
    def filters(self) -> tuple[StreamFilter, ...]:
        """The filters in their order; none at all: every message is taken as it is."""
        pairs = [(t.source, t.destination) for t in self.subject_transforms]
        if not pairs and self.filter_subject:
            pairs = [(self.filter_subject, "")]
        return tuple(
            StreamFilter(
                source or ANY_TAIL,
                destination,
                Filter(source or ANY_TAIL),
                Transform(source, destination) if destination else None,
            )
            for source, destination in pairs
        )

    def take(self, subject: str, entropy: int | None = 0) -> Outcome:
        """What this source or mirror makes of a message that the other stream stores.

        Fates: `filtered` if no filter covers the subject; `mapped` if one does, even if it renames
        nothing; `unmatched` if there is no filter. The first filter with a destination renames,
        so a filter without one steps back where two cross.

        Args:
            subject: the subject under which the other stream stores the message.
            entropy: 64 bits that decide each `random()`; None leaves it as it is written.
        """
        if fault := literal_fault(subject):
            return Outcome(None, Fate.INVALID, reason=fault)
        if not self.filters:
            return Outcome(subject, Fate.UNMATCHED)
        taken = None
        if not self.takes_nothing:
            taken = next((rule for rule in self.filters if subscribes(rule.source, subject)), None)
        if taken is None:
            return Outcome(None, Fate.FILTERED)
        tokens = subject.split(SEPARATOR)
        for rule in self.filters:
            if rule.transform is not None and rule.filter.covers(tokens):
                return Outcome(
                    rule.transform.evaluate(tokens, entropy),
                    Fate.MAPPED,
                    rule.source,
                    rule.destination,
                )
        return Outcome(subject, Fate.MAPPED, taken.source, taken.destination)

    def replay(
        self, subject: str | None, *, stream: str | None, seq: int | None, seed: int = 0
    ) -> Outcome:
        """What becomes of a message in an archive of the other stream: `take` with its own draw.

        Args:
            subject: of the message; without one it is invalid.
            stream: the stream the message is in.
            seq: its sequence there.
            seed: the seed of the run.
        """
        if subject is None:
            return Outcome(None, Fate.INVALID, reason=NO_SUBJECT)
        return self.take(subject, message_entropy(stream, seq, mapping_key(seed, self.place)))

    @property
    def takes_nothing(self) -> bool:
        """Whether no message is ever taken: the server refuses its consumer for an empty filter."""
        return any(not transform.source for transform in self.subject_transforms)


class StreamMirror(StreamSource):
    """The stream that a mirror mirrors."""

    @property
    def place(self) -> str:
        """A stream has one mirror."""
        return "mirror"

    @property
    def takes_nothing(self) -> bool:
        """As for a source, but a lone transform hands over its filter where empty means all."""
        return len(self.subject_transforms) > 1 and super().takes_nothing


@dataclass(frozen=True, slots=True)
class Republished:
    """A message that a stream publishes again.

    Attributes:
        subject: the subject it gets.
        stream: the stream that stored it.
        stored: the subject it is stored under.
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
            sequence: of the message in the stream.
            last_sequence: of the message before it under the same subject, or 0.
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


class StreamConfig(Wire):
    """What `nats stream info --json` prints under `config`, refused as nats-server refuses it.

    >>> config = StreamConfig.model_validate(
    ...     {"name": "ORDERS", "subjects": ["orders.*"],
    ...      "subject_transform": {"src": "orders.*", "dest": "orders.{{partition(3,1)}}.$1"}}
    ... )
    >>> config.ingress("orders.42").subject
    'orders.1.42'

    Field names and units are the server's: durations are nanoseconds, sizes bytes. `parse_stream`
    gives the same with a one-line error.
    """

    name: str = ""
    description: str = ""
    subjects: list[str] = []
    retention: Literal["limits", "interest", "workqueue"] = "limits"
    max_consumers: Int64 = -1
    max_msgs: Int64 = -1
    max_bytes: Int64 = -1
    max_age: Int64 = 0
    max_msgs_per_subject: Int64 = -1
    max_msg_size: Int32 = -1
    discard: Annotated[Literal["old", "new"], BeforeValidator(_lower)] = "old"
    storage: Literal["file", "memory"] = "file"
    num_replicas: Int64 = 1
    no_ack: bool = False
    duplicate_window: Int64 = 0
    placement: dict[str, Any] | None = None
    mirror: StreamMirror | None = None
    sources: list[StreamSource] = []
    compression: Literal["none", "s2"] = "none"
    first_seq: UInt64 = 0
    subject_transform: SubjectTransform | None = None
    republish: RePublish | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: dict[str, Any] = {}
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: Int64 = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: Literal["", "default", "async"] = ""
    allow_batched: bool = False
    metadata: dict[str, str] = {}

    @model_validator(mode="after")
    def _refuse(self) -> StreamConfig:
        stream_rules.check(self)
        return self

    @property
    def upstreams(self) -> Iterator[StreamSource]:
        """The mirrored stream and the stream sources."""
        if self.mirror is not None:
            yield self.mirror
        yield from self.sources

    @property
    def captured(self) -> list[str]:
        """The filters the stream listens to: its name if nothing else fills it."""
        if self.subjects or self.mirror is not None or self.sources:
            return self.subjects
        return [self.name]

    @property
    def ingress_transform(self) -> Transform | None:
        """What every stored message passes, or None."""
        return self.subject_transform.transform if self.subject_transform else None

    @property
    def republish_pair(self) -> tuple[str, str]:
        """The source and destination of the republish; both empty where there is none.

        `>` to `>` follows an ingress transform that covers the stream's only subject.
        """
        if self.republish is None:
            return "", ""
        pair = self.republish.source or ANY_TAIL, self.republish.destination
        ingress = self.subject_transform
        if pair == (ANY_TAIL, ANY_TAIL) and ingress and self.captured == [ingress.source]:
            return ingress.destination, ingress.destination
        return pair

    @cached_property
    def republish_transform(self) -> Transform | None:
        """What makes the subject of a republished message, or None."""
        source, destination = self.republish_pair
        return Transform(source, destination) if destination else None

    def captures(self, subject: str) -> bool:
        """Whether a message published under a subject is stored here."""
        return any(subscribes(filter, subject) for filter in self.captured)

    def ingress(self, subject: str, entropy: int | None = 0) -> Outcome:
        """What a message that reaches this stream is stored under.

        The ingress transform does not filter: the fate is `unmatched` where it does not apply. An
        illegal result, with an empty token, is stored as it is.

        Args:
            subject: as published or mapped, or as the source or mirror renamed it.
            entropy: 64 bits that decide each `random()`; None leaves it as it is written.
        """
        if fault := literal_fault(subject):
            return Outcome(None, Fate.INVALID, reason=fault)
        transform = self.ingress_transform
        stored = transform.apply(subject, entropy) if transform else None
        if transform is None or stored is None:
            return Outcome(subject, Fate.UNMATCHED)
        return Outcome(stored, Fate.MAPPED, transform.source, transform.destination)

    def replay(
        self, subject: str | None, *, stream: str | None, seq: int | None, seed: int = 0
    ) -> Outcome:
        """What a message of an archive is stored under: `ingress` with the message's own draw.

        Args:
            subject: of the message; without one it is invalid.
            stream: the stream the message is in.
            seq: its sequence there.
            seed: the seed of the run.
        """
        if subject is None:
            return Outcome(None, Fate.INVALID, reason=NO_SUBJECT)
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

    def republish_outcome(self, stored: str, entropy: int | None = 0) -> Outcome:
        """What `republished` does, as an outcome.

        Fates: `filtered` if nothing is to be republished under the stored subject, `invalid` if
        the server suppresses the new one, else `mapped`.

        Args:
            stored: the subject it is stored under.
            entropy: 64 bits that decide each `random()`; None leaves it as it is written.
        """
        if fault := literal_fault(stored):
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
        if stored is None:
            return Outcome(None, Fate.INVALID, reason=NO_SUBJECT)
        key = mapping_key(seed, REPUBLISH)
        return self.republish_outcome(stored, message_entropy(stream, seq, key))


def parse_stream(data: object) -> StreamConfig:
    """The stream configuration in parsed JSON.

    Raises:
        InvalidStream: one line with the field and the server's reason.
    """
    try:
        return StreamConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, InvalidStream):
            raise cause from None
        where = SEPARATOR.join(str(part) for part in first["loc"])
        raise InvalidStream(f"{where or 'stream configuration'}: {first['msg']}") from None


def bucket_source(bucket: str, into: str) -> StreamSource:
    """The stream source with which KV bucket `into` takes in all keys of another bucket.

    ADR-36 "KV bucket sourcing": the keys move from `$KV.bucket.>` to `$KV.into.>`.
    """
    return StreamSource(
        name=f"KV_{bucket}",
        subject_transforms=[SubjectTransform(src=f"$KV.{bucket}.>", dest=f"$KV.{into}.>")],
    )
