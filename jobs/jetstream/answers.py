"""What a nats-server answers, with one model for each kind of answer.

A user of the account who may subscribe to a request can answer in the place of the server, so an
answer counts only if it fits its model. Fields that no model names are kept as they are.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from jobs.errors import ArchiveError
from nats_transform.errors import InvalidValue, first_fault
from nats_transform.streams.state import Count, StreamNumbers
from nats_transform.untrusted import few_values

_NO_TIME = datetime(1, 1, 1, tzinfo=UTC)  # as nats-server writes it
_NAME = re.compile(r"[^\x00-\x20\x7f.*>/\ud800-\udfff]{1,255}")


def can_be_named(name: str) -> bool:
    """Whether a stream or a consumer can have a name."""
    return _NAME.fullmatch(name) is not None


def _named(name: str) -> str:
    if not can_be_named(name):
        raise InvalidValue("not-a-name")
    return name


Name = Annotated[str, AfterValidator(_named)]
Limit = Annotated[int, Field(strict=True)]  # -1, and mostly 0 too, for none
Flag = Annotated[bool, Field(strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Transform(_Part):
    """A transform of subjects."""

    src: str = ""
    dest: str = ""


class Origin(_Part):
    """A stream that another one copies from."""

    name: Name
    external: dict[str, str] | None = None


class Config(_Part):
    """The configuration of a stream."""

    name: Name
    subjects: list[str] | None = None
    retention: str = "limits"
    discard: str = "old"
    discard_new_per_subject: Flag = False
    max_age: Limit = 0
    max_msgs: Limit = -1
    max_bytes: Limit = -1
    max_msg_size: Limit = -1
    max_msgs_per_subject: Limit = -1
    allow_msg_ttl: Flag = False
    subject_transform: Transform | None = None
    mirror: Origin | None = None
    sources: list[Origin] | None = None


class ConsumerConfig(_Part):
    """The configuration of a consumer."""

    durable_name: str = ""
    filter_subject: str | None = None
    filter_subjects: list[str] | None = None


class Fault(_Part):
    """Why a request was refused."""

    description: str = ""
    err_code: Annotated[int, Field(strict=True)] = 0


class Answer(_Part):
    """Any answer. One with an error has nothing else."""

    error: Fault | None = None


class Source(_Part):
    """How far a stream is with its mirror or one of its sources.

    Attributes:
        active: nanoseconds since anything came from there; -1 if nothing has come yet.
    """

    name: Name
    seq: Count | None = None
    lag: Count = 0
    active: Limit = -1
    filter_subject: str | None = None
    subject_transforms: list[Transform] | None = None


class InfoState(StreamNumbers):
    """The state of a stream, perhaps with the number of messages under each subject."""

    num_subjects: Count = 0
    first_ts: AwareDatetime = _NO_TIME
    last_ts: AwareDatetime = _NO_TIME
    subjects: dict[str, Count] | None = None

    @model_validator(mode="after")
    def _fits(self) -> InfoState:
        if self.messages > max(self.last_seq - self.first_seq + 1, 0):
            raise InvalidValue("more-messages-than-sequences")
        return self


class Cluster(_Part):
    """Which servers of a cluster have a stream or a consumer; `leader` is empty in an election."""

    leader: str = ""


class StreamInfo(Answer):
    """The answer to `STREAM.INFO`."""

    created: str
    config: Config
    cluster: Cluster | None = None
    state: InfoState
    mirror: Source | None = None
    sources: list[Source] | None = None
    total: Count = 0
    limit: Count = 0


class Acknowledged(_Part):
    """How far a consumer is."""

    stream_seq: Count = 0


class ConsumerInfo(Answer):
    """The answer to `CONSUMER.INFO` and `CONSUMER.CREATE`."""

    config: ConsumerConfig
    cluster: Cluster | None = None
    num_pending: Count = 0
    num_ack_pending: Count = 0
    ack_floor: Acknowledged = Acknowledged()


class Names(Answer):
    """The answer to `STREAM.NAMES`."""

    streams: list[str] | None = None


class _Page(Answer):
    """A part of a list."""

    total: Count
    missing: list[str] | None = None


class ListedStream(_Part):
    """A stream in a list."""

    config: Config


class Streams(_Page):
    """The answer to `STREAM.LIST`."""

    entries: Annotated[list[ListedStream] | None, Field(alias="streams")]


class ListedConsumer(_Part):
    """A consumer in a list."""

    name: Name
    config: ConsumerConfig


class Consumers(_Page):
    """The answer to `CONSUMER.LIST`."""

    entries: Annotated[list[ListedConsumer] | None, Field(alias="consumers")]


class Stored(_Part):
    """A message as the API has it; its headers are in base64."""

    seq: Count
    subject: str = ""
    hdrs: Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]*={0,2}$")] = ""


class Message(Answer):
    """The answer to `STREAM.MSG.GET`."""

    message: Stored


class Ack(Answer):
    """The answer to a message that a stream stores."""

    stream: str = ""
    seq: Count = 0
    duplicate: Flag = False


class Restore(Answer):
    """The answer to `STREAM.RESTORE`."""

    deliver_subject: str


class Account(_Part):
    """The account of a user: its key and its name."""

    account: str = ""
    account_name: str = ""


class User(Answer):
    """The answer to `$SYS.REQ.USER.INFO`."""

    data: Account = Account()


class Stats(_Part):
    """The statistics of a server."""

    active_servers: Count


class Statsz(_Part):
    """The answer to `$SYS.REQ.SERVER.PING`."""

    statsz: Stats


class Server(_Part):
    """The server that answers; only one that traces says its cluster."""

    name: str
    cluster: str = ""


class ShownDestination(_Part):
    """A destination of a mapping, as a server shows it."""

    subject: str
    weight: Count
    cluster: str = ""


class Mapped(_Part):
    """The mappings of an account: the destinations of each source."""

    mappings: dict[str, list[ShownDestination]] | None = None


class AccountDetail(_Part):
    """What a server knows of an account."""

    account_detail: Mapped | None = None


class Accountz(_Part):
    """The answer to `$SYS.REQ.SERVER.PING.ACCOUNTZ`."""

    server: Server
    data: AccountDetail | None = None


class Varz(_Part):
    """A monitoring page with what a server is."""

    server_name: str


class Route(_Part):
    """A connection to another server of the cluster."""

    remote_name: str


class Routez(_Part):
    """A monitoring page with the cluster of a server."""

    routes: list[Route] | None = None


class Gatewayz(_Part):
    """A monitoring page with the cluster of a server, and those that gateways connect it to."""

    name: str = ""
    outbound_gateways: dict[str, object] | None = None


class TraceStep(_Part):
    """One thing that a server did with a traced message; its type decides which fields it has.

    The types: `in` (how it came), `sm` (a mapping), `se` (an import of a stream), `si` (an import
    of a service), `js` (a stream), `eg` (a client, or another server).
    """

    type: str
    kind: Count = 0
    name: str = ""
    account: Annotated[str, Field(alias="acc")] = ""
    subject: str = ""
    arrived: Annotated[str, Field(alias="subj")] = ""
    asked: Annotated[str, Field(alias="from")] = ""
    to: str = ""
    stream: str = ""
    no_interest: Annotated[Flag, Field(alias="nointerest")] = False
    subscription: Annotated[str, Field(alias="sub")] = ""
    hop: str = ""
    error: str = ""


class TraceRequest(_Part):
    """The traced message as it came to the server."""

    header: dict[str, list[str]] = {}


class TraceEvent(_Part):
    """What one server did with a traced message (ADR-41; nats-server `MsgTraceEvent`)."""

    server: Server
    request: TraceRequest = TraceRequest()
    events: Annotated[list[TraceStep], Field(min_length=1)]

    @property
    def hop(self) -> str:
        """Which of the servers on the way it is; "" for the one that the publisher uses."""
        return "".join(self.request.header.get("Nats-Trace-Hop", ())[:1])

    @property
    def mapped(self) -> str:
        """The subject after the mappings of the account; "" if they lose the message."""
        return next((step.to for step in self.of("sm")), self.events[0].arrived)

    def of(self, kind: str) -> list[TraceStep]:
        """The steps of a type."""
        return [step for step in self.events if step.type == kind]


_A = TypeVar("_A", bound=BaseModel)


NO_JETSTREAM = 10039
"""The `err_code` of an account without JetStream; also ours where nobody answers at all."""
NO_MORE_CONSUMERS, THRESHOLD_TOO_LONG = 10026, 10153
"""The same of a stream that limits consumers: their number, and `inactive_threshold`."""
NO_CLUSTER = 10008
"""The same of a cluster that has no leader for now."""
CONSUMER_NOT_FOUND, MESSAGE_NOT_FOUND, STREAM_NOT_FOUND = 10014, 10037, 10059
"""The same of what is not there."""


class ApiError(ArchiveError):
    """A server answered with an error, or with nothing that counts as an answer.

    Attributes:
        err_code: that of the server, such as `STREAM_NOT_FOUND`; 0 for no answer.
    """

    def __init__(self, code: str, /, *, err_code: int = 0, **fields: object) -> None:
        super().__init__(code, **fields)
        self.err_code = err_code


class NoAnswer(ApiError):
    """No server answered in time."""


def parse_answer(model: type[_A], where: str, what: str, text: bytes) -> _A:
    """The answer in a text; errors say what was asked where.

    Raises:
        ApiError: it is an error, or no such answer.
    """
    try:
        few_values(text)
        document = json.loads(text)
        if issubclass(model, Answer) and (error := Answer.model_validate(document).error):
            reason = error.description or str(error.err_code)
            raise ApiError("api-error", err_code=error.err_code, reason=reason)
        return model.model_validate(document)
    except (ValueError, RecursionError) as error:
        fault = first_fault(error) if isinstance(error, ValidationError) else "it is not JSON"
        raise ApiError("odd-answer", where=where, what=what, fault=fault) from None
