"""The fields of a stream configuration, before anything is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from nats_transform.mappings.subject import ANY_TAIL
from nats_transform.mappings.transform import Transform
from nats_transform.streams.source import StreamMirror, StreamSource, SubjectTransform, UInt64, Wire

Int32: TypeAlias = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Int64: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class RePublish(SubjectTransform):
    """Messages published again under another subject once they are stored.

    Attributes:
        headers_only: whether the body is left out; its size is in the header `Nats-Msg-Size`.
    """

    headers_only: bool = False


class StreamFields(Wire):
    """What `nats stream info --json` prints under `config`, and what follows from it directly.

    Field names and units are the server's: durations are nanoseconds, sizes bytes.
    """

    name: str = ""
    description: str = ""
    subjects: list[str] = []  # noqa: RUF012 - pydantic copies defaults
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
    sources: list[StreamSource] = []  # noqa: RUF012
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
    consumer_limits: dict[str, Any] = {}  # noqa: RUF012
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: Int64 = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: Literal["", "default", "async"] = ""
    allow_batched: bool = False
    metadata: dict[str, str] = {}  # noqa: RUF012

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
        """The transform that every stored message passes, or None."""
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
