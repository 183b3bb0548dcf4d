"""The settings of an ingest."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, model_validator

from jobs.settings.base import Address, Folder, Name, Option, Settings, setting, utc
from jobs.settings.connection import NatsSettings
from jobs.settings.days import RunId, Stream
from jobs.settings.warehouse import Gated, Warehouse
from nats_transform.errors import InvalidValue

LARGEST_SEQUENCE = 2**63 - 1
"""The largest number that the column `seq` can hold."""
_Pattern = Annotated[Address, Option(metavar="PATH", is_path=True)]


class DumpColumns(Settings):
    """The names of a dump's columns; None is the table's own name, if the dump has that column."""

    subject: Name | None = setting(
        None, "The column of a dump with the subject.", key="subject_column"
    )
    seq: Name | None = setting(
        None,
        "The column of a dump with the sequence. Without one, messages are numbered in "
        "the order of the files.",
        key="seq_column",
    )
    time: Name | None = setting(
        None,
        "The column of a dump with the time: a timestamp, ISO 8601 text or an epoch.",
        key="time_column",
    )
    cluster: Name | None = setting(
        None, "The column of a dump with the cluster.", key="cluster_column"
    )
    headers: Name | None = setting(
        None, "The column of a dump with the headers.", key="headers_column"
    )
    data: Name | None = setting(None, "The column of a dump with the payload.", key="data_column")
    data_encoding: Literal["text", "base64"] = setting(
        "text", "How a dump of JSON lines writes payloads."
    )
    first_seq: int = setting(
        1,
        "The first number, where messages are numbered in the order of the files.",
        ge=1,
        le=LARGEST_SEQUENCE,
        metavar="N",
    )

    @property
    def optional(self) -> tuple[str, ...]:
        """The declared columns that a message can do without."""
        return tuple(filter(None, (self.cluster, self.headers, self.data)))

    def find(self, have: Sequence[str], *, lacks: Collection[str] = ()) -> dict[str, str]:
        """The dump's column for each of subject, seq, ts, ts_ns, cluster, headers and data.

        In a dump of our own table three of them have the exact bytes beside them (`subject_raw`).

        Args:
            lacks: declared columns that may be missing.

        Raises:
            ValueError: a declared column, or the subject, is not among those the dump has.
        """
        declared = {
            "subject": self.subject,
            "seq": self.seq,
            "ts": self.time,
            "cluster": self.cluster,
            "headers": self.headers,
            "data": self.data,
        }
        columns = {}
        for column, name in declared.items():
            if name is not None and name not in have:
                if name in lacks:
                    continue
                raise InvalidValue("dump-without-column", name=name, have=", ".join(have))
            if name is not None or column in have:
                columns[column] = name or column
        if "subject" not in columns:
            raise InvalidValue("dump-without-subject", have=", ".join(have))
        if "ts_ns" in have and self.time is None:
            columns["ts_ns"] = "ts_ns"
        if not columns.keys() & {"ts", "ts_ns"} and "time" in have:
            columns["ts"] = "time"  # as JetStream calls it
        named = {"subject_raw": self.subject, "cluster_raw": self.cluster}
        for raw, name in (named | {"headers_raw": self.headers}).items():
            if raw in have and name is None:
                columns[raw] = raw
        return columns


def _number_or_time(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.isascii() and value.isdecimal():
        return int(value[:30])
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise InvalidValue("not-a-sequence-or-time", value=value) from None


def _within_bounds(bound: int | datetime) -> int | datetime:
    if isinstance(bound, datetime):
        return utc(bound)
    if not -(2**63) <= bound <= LARGEST_SEQUENCE:
        raise InvalidValue("sequence-too-large", largest=LARGEST_SEQUENCE)
    return bound


# A sequence if it is a whole number, else a time (ISO 8601, UTC if it names no zone).
Bound = Annotated[
    int | datetime,
    BeforeValidator(_number_or_time),
    AfterValidator(_within_bounds),
    Option(metavar="WHEN"),
]


class IngestSettings(Gated):
    """The settings of an ingest; exactly one of server, backup, parquet and jsonl is given."""

    alternatives = (("backup", "parquet", "jsonl"),)

    stream: Stream = setting(
        ...,
        "The name that the stream has in the table, and on the server. From a server it may be "
        "several names with commas, in which * stands for any text (ORDERS,EU_*).",
        min_length=1,
    )
    from_stream: Name | None = setting(
        None, "The name of the stream on the server.", otherwise="the name that --stream gives"
    )
    server: Annotated[NatsSettings | None, Option(unless=("backup", "parquet", "jsonl"))] = None
    backup: Folder | None = setting(None, "A folder that `nats stream backup` wrote.")
    parquet: _Pattern | None = setting(None, "A Parquet file, folder or pattern.")
    jsonl: _Pattern | None = setting(None, "A JSON lines file, folder or pattern.")
    since: Bound | None = setting(
        None, "Archive messages from this sequence on, or from this time on (ISO 8601, UTC)."
    )
    until: Bound | None = setting(
        None, "Archive messages up to this sequence, or before this time (ISO 8601, UTC)."
    )
    subject: str | None = setting(
        None, "Archive only messages whose subject matches. Not for a dump.", metavar="FILTER"
    )
    cluster: Name | None = setting(None, "The cluster that the messages were published in.")
    cluster_header: Name | None = setting(
        None, "The header of a message that names the cluster it was published in."
    )
    columns: DumpColumns = DumpColumns()
    may_be_empty: bool = setting(
        False, "Whether a stream without messages is no mistake.", is_option=False
    )
    publish_messages: int = setting(
        5_000_000,
        "A commit ends at the first midnight after this number of messages.",
        ge=1,
        is_option=False,
    )
    readers: int = setting(
        4, "How many ranges of a stream to read side by side.", ge=1, is_option=False
    )
    run_id: RunId = setting(
        ..., "A name for this run, kept in the result.", default_factory=lambda: uuid.uuid4().hex
    )
    warehouse: Warehouse = Warehouse()

    @property
    def names_several(self) -> bool:
        """Whether the stream is a list or a pattern of names."""
        is_server = self.server is not None and self.from_stream is None
        return is_server and not {*"*,"}.isdisjoint(self.stream)

    @model_validator(mode="after")
    def _sources(self) -> IngestSettings:
        given = [self.server, self.backup, self.parquet, self.jsonl]
        if sum(source is not None for source in given) != 1:
            raise InvalidValue("not-one-source")
        if self.cluster is not None and self.cluster_header is not None:
            raise InvalidValue("cluster-and-header")
        if self.subject is not None and not (self.server or self.backup):
            raise InvalidValue("filter-of-dump")
        since, until = self.since, self.until
        if isinstance(since, int) and isinstance(until, int) and since > until:
            raise InvalidValue("range-ends-early", since=since, until=until)
        if isinstance(since, datetime) and isinstance(until, datetime) and since >= until:
            raise InvalidValue("range-ends-early", since=since, until=until)
        return self
