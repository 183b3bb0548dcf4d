"""Stream sources and mirrors, and what they take from another stream.

Sources: ADR-36; nats-server `processInboundSourceMsg` and `processMirrorMsgs` in
`server/stream.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nats_transform.mappings.draw import mapping_key, message_entropy
from nats_transform.mappings.mapping import Fate, Outcome
from nats_transform.mappings.subject import ANY_TAIL, SEPARATOR, Filter, literal_fault, subscribes
from nats_transform.mappings.transform import Transform

UInt64: TypeAlias = Annotated[int, Field(ge=0, lt=2**64)]


class Wire(BaseModel):
    """A JSON object of the JetStream API: the types are strict, unknown fields are kept."""

    model_config = ConfigDict(
        extra="allow", frozen=True, strict=True, validate_by_alias=True, validate_by_name=True
    )

    @model_validator(mode="before")
    @classmethod
    def _read_as_go_does(cls, data: object) -> object:
        # A null leaves a field at its zero value, and the case of names makes no difference.
        if isinstance(data, Mapping):
            known = {field.alias or name for name, field in cls.model_fields.items()}
            return {
                key.lower() if key.lower() in known else key: value
                for key, value in data.items()
                if value is not None
            }
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


class ExternalStream(Wire):
    """Where a stream of another account or domain is reached.

    Attributes:
        api: subject prefix of its JetStream API.
        deliver: subject prefix of the deliveries.
    """

    api: str = ""
    deliver: str = ""


class ConsumerReference(Wire):
    """A durable consumer that a mirror or stream source reads from (ADR-60)."""

    name: str = ""
    deliver_subject: str = ""


@dataclass(frozen=True, slots=True)
class StreamFilter:
    """One filter of a mirror or stream source, and the transform that goes with it.

    Attributes:
        source: the filter, never empty.
        destination: the destination as it is written; empty if this only filters.
        filter: the filter, parsed.
        transform: the transform; None if this only filters.
    """

    source: str
    destination: str
    filter: Filter
    transform: Transform | None


class StreamSource(Wire):
    """One of the streams that a stream sources.

    Attributes:
        name: the name of the other stream.
        filter_subject: a filter; only subjects under it are taken.
        subject_transforms: several filters, each with a destination, which may be empty.
        consumer: a consumer of the other stream that filters instead of these.
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
        """A text that differs between the sources of one stream (`composeIName`)."""
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
        """A text that makes its draws differ from those of the stream's other transforms."""
        # A blank stands in no name and no filter.
        return " ".join(["source", *[part or "" for part in self.identity]])

    @cached_property
    def filters(self) -> tuple[StreamFilter, ...]:
        """The filters in their order. Without filters every message is taken as it is."""
        lone = [SubjectTransform(src=self.filter_subject, dest="")] if self.filter_subject else []
        return tuple(
            StreamFilter(source, rule.destination, Filter(source), rule.transform)
            for rule in self.subject_transforms or lone
            for source in [rule.source or ANY_TAIL]
        )

    def take(self, subject: str | None, entropy: int | None = 0) -> Outcome:
        """The outcome of this source or mirror for a message that the other stream stores.

        Fates: `filtered` if no filter covers the subject; `mapped` if one does, even if it renames
        nothing; `unmatched` if there is no filter. If several filters cover the subject, the first
        one with a destination renames it. If a consumer filters, `Network` asks it, and what no
        transform covers here is `unmatched`.

        Args:
            subject: the subject under which the other stream stores the message; a message
                without one is invalid.
            entropy: 64 bits that decide each `random()`; None leaves it as it is written.
        """
        if (fault := literal_fault(subject)) or subject is None:
            return Outcome(None, Fate.INVALID, reason=fault)
        if not self.filters:
            return Outcome(subject, Fate.UNMATCHED)
        taken = None
        if not self.takes_nothing:
            taken = next((rule for rule in self.filters if subscribes(rule.source, subject)), None)
        if taken is None and self.consumer is None:
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
        if taken is None or self.consumer is not None:
            return Outcome(subject, Fate.UNMATCHED)
        return Outcome(subject, Fate.MAPPED, taken.source, taken.destination)

    def replay(
        self, subject: str | None, *, stream: str | None, seq: int | None, seed: int = 0
    ) -> Outcome:
        """The outcome for a message in an archive of the other stream: `take` with its own draw.

        Args:
            subject: the subject of the message; without one it is invalid.
            stream: the stream the message is in.
            seq: its sequence there.
            seed: the seed of the run.
        """
        return self.take(subject, message_entropy(stream, seq, mapping_key(seed, self.place)))

    @property
    def takes_nothing(self) -> bool:
        """Whether no message is ever taken: the server refuses a consumer with an empty filter."""
        has_empty = any(not transform.source for transform in self.subject_transforms)
        return has_empty and self.consumer is None


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


def bucket_source(bucket: str, into: str) -> StreamSource:
    """The stream source with which KV bucket `into` takes in all keys of another bucket.

    ADR-36 "KV bucket sourcing": the keys move from `$KV.bucket.>` to `$KV.into.>`.
    """
    return StreamSource(
        name=f"KV_{bucket}",
        subject_transforms=[SubjectTransform(src=f"$KV.{bucket}.>", dest=f"$KV.{into}.>")],
    )
