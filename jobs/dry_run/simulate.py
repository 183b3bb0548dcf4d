"""Simulates what streams would hold under a candidate mapping, into `simulated_streams`.

Each message of an archive is published again with its own draw. It passes the account mappings, the
streams that capture it, their ingress transforms, republish, mirrors and sources, and their limits,
at the time that the archive has for it. Streams are empty at first. Mirrors and sources are taken
to keep up, so they get a message before a limit discards it upstream; the result says where this
matters. If a setting of a stream is not followed, the result names it and has no number for the
stream, and the table no rows.

The table holds one simulation for each archive; earlier ones are in its older snapshots.

One process does this, in the order of the archive and a batch at a time. It first computes what
each stream stores and then, for all messages of some subjects together, what the limits leave.
Limits that depend on the order of messages are applied one message after the other (`limits`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from jobs.dry_run.caveats import Caveats
from jobs.dry_run.limits import (
    NO_LIMIT,
    Answer,
    Limits,
    depend_on_order,
    drops,
    limit,
    look_at_sizes,
    offered,
    times,
    window_of,
)
from jobs.dry_run.result import SimulatedStream
from jobs.dry_run.scattered import parts_for, scattered
from jobs.errors import JobError
from jobs.files.commit import arrow_schema, staged
from jobs.files.ingest import IngestTask
from jobs.files.selection import Selection
from jobs.files.storage import Storage
from jobs.progress import advance, step
from jobs.scratch import temporary_folder
from jobs.settings.dry_run import DryRunSettings
from jobs.warehouse import specs, staging, tables
from nats_transform.config import mapping_version
from nats_transform.kernel import Program, compile_mappings
from nats_transform.mappings.draw import mapping_key, message_entropy
from nats_transform.mappings.subject import decode, encode
from nats_transform.migration import Question
from nats_transform.streams.network import Entropy, Network, Via
from nats_transform.streams.stream import StreamConfig

SIMULATED = specs.table_spec(
    "simulated_streams",
    {
        "archive": pa.string(),
        "day": pa.date32(),
        "stream": pa.string(),
        "seq": pa.int64(),
        "stored_subject": pa.string(),
        "via": pa.string(),
        "origin_stream": pa.string(),
        "origin_seq": pa.int64(),
        "archive_seq": pa.int64(),
        "subject": pa.string(),
        "mapped_subject": pa.string(),
        "ts": pa.timestamp("us", "UTC"),
        "republished_subject": pa.string(),
    },
    raw=("subject", "mapped_subject", "stored_subject", "republished_subject"),
    about={
        "archive": "The stream whose messages were published again.",
        "stream": "The stream that would hold the message.",
        "seq": "The sequence of the message there.",
        "stored_subject": "The subject that it is stored under.",
        "via": "How it got there: `capture`, `republish`, `mirror` or `source`.",
        "origin_stream": "The stream that it came from; null if it was captured.",
        "origin_seq": "Its sequence in that stream; null if it was captured.",
        "archive_seq": "The sequence of the message in the archive.",
        "mapped_subject": "The subject that the mappings gave it.",
        "republished_subject": "The subject that it is republished under; null if it is not.",
    },
    partitions=("archive", "day"),
)


class SimulationError(JobError):
    """The configuration of the streams does not decide which messages they hold."""


PUBLISHED = ("stream", "seq", "day", "ts", "subject", "cluster", "headers", "headers_raw", "data")
"""The columns of archived messages that a simulation needs; `data` only for limits of sizes."""

_WORDS = frozenset({"stream", "via", "origin_stream"})
_STEPS = pa.schema(
    [
        ("stream", pa.int32()),
        ("stored_subject", pa.binary()),
        ("via", pa.string()),
        ("position", pa.int32()),
        # Numbers of steps: where it came from, and whose sequence it has.
        ("origin", pa.int32()),
        ("numbered", pa.int32()),
        ("republished_subject", pa.binary()),
    ]
)
"""A message on its way through streams, which are numbers here; -1 is none."""


def simulate(
    settings: DryRunSettings,
    messages: Table,
    days: Sequence[date],
    question: Question,
    run_id: str,
) -> tuple[tuple[SimulatedStream, ...], int]:
    """Simulate the streams; return the counts of each and the snapshot with their messages.

    Raises:
        SimulationError: streams that refuse messages and feed each other, or mirror.
        WarehouseError: the table cannot be written.
    """
    table = tables.open_table(settings.warehouse, SIMULATED, create=True)
    archive, streams = settings.stream, question.streams
    simulation = Simulation(streams, compile_mappings(question.candidate, settings.seed))
    published = Selection(messages, archive, days, None, simulation.columns, specs.MESSAGES)
    held, discarded = (np.zeros(len(streams), np.int64) for _ in range(2))

    def followed() -> Iterator[pa.RecordBatch]:
        for batch in published.in_order():
            yield simulation.stored(batch)
            advance(len(batch))

    def kept(paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
        for path in paths:
            with pa.OSFile(str(path)) as file:
                part = pa.ipc.open_stream(file).read_all().combine_chunks()
            for batch in part.to_batches():  # one, or none
                is_held = simulation.is_held(batch)
                of = batch.column("number").to_numpy()
                for counts, chosen in ((held, is_held), (discarded, ~is_held)):
                    counts += np.bincount(of[chosen], minlength=len(counts))
                yield batch.filter(pa.array(is_held & simulation.is_followed[of]))

    stored = arrow_schema(table.schema(), _WORDS)
    with staging.new_files(table) as folder, temporary_folder() as temporary:
        with step(f"simulating {archive}", published.messages):
            parts = parts_for(published.messages)
            paths = scattered(followed(), "stored_subject", parts, temporary)
        with step("writing what the streams hold"):
            files = IngestTask(Storage.of(table), folder, stored, kept)(paths)
        new = staged(table, folder, (file.written for file in files))
    properties = {
        "job": "simulate",
        "stream": archive,
        "days": f"{days[0]}..{days[-1]}",
        "mapping-version": mapping_version(question.candidate),
        "seed": str(settings.seed),
        "input-snapshot": str(tables.snapshot_id(messages)),
        "run-id": run_id,
    }
    snapshot = staging.publish(table, new, archive, replace=True, properties=properties)
    return tuple(simulation.results(held.tolist(), discarded.tolist())), snapshot


class Simulation:
    """The streams of an account, which get the messages of an archive in order.

    Args:
        streams: the streams.
        program: the mappings of the account.

    Attributes:
        columns: the columns of the archive that it needs.
        answers: for each `Answer` how often each stream gave it.
    """

    def __init__(self, streams: Sequence[StreamConfig], program: Program) -> None:
        self._streams, self._program, self._network = streams, program, Network(streams)
        self._names = pa.array([stream.name for stream in streams], pa.string())
        self._numbers = {stream.name: number for number, stream in enumerate(streams)}
        self._last = np.array([max(stream.first_seq, 1) - 1 for stream in streams], np.int64)
        self._start = self._last.copy()
        self._now = -NO_LIMIT  # the time of the last message, in microseconds
        self.answers = np.zeros((len(Answer), len(streams)), np.int64)
        self._sized = [n for n, stream in enumerate(streams) if look_at_sizes(stream)]
        self.columns = PUBLISHED if self._sized else PUBLISHED[:-1]
        self._ordered = [n for n, stream in enumerate(streams) if depend_on_order(stream)]
        self._limits = {
            n: Limits(stream)
            for n, stream in enumerate(streams)
            if n in self._ordered or window_of(stream)
        }
        # Of the streams that refuse: which of them get messages of which, and sources that wait.
        refusing = [n for n in self._ordered if streams[n].discard == "new"]
        self._feeds: dict[int, set[int]] = {n: set() for n in refusing}
        self._waits: set[tuple[int, int]] = set()
        self._caveats = Caveats(streams)
        self._of_one = np.array(
            [
                NO_LIMIT if stream.discard_new_per_subject else limit(stream.max_msgs_per_subject)
                for stream in streams
            ],
            np.int64,
        )
        self._most = np.array([limit(stream.max_msgs) for stream in streams], np.int64)
        self._age = np.array([limit(stream.max_age // 1000) for stream in streams], np.int64)
        self._known = lru_cache(2**16)(self._way)

    def stored(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """What streams store of the next messages, in order: rows of `SIMULATED` and `number`.

        Args:
            messages: the messages, with the columns `PUBLISHED`.

        Raises:
            SimulationError: for the same reasons as `simulate`.
        """
        given = {name: messages.column(name) for name in self.columns}
        mapped = self._program.run(
            given["subject"], cluster=given["cluster"], stream=given["stream"], seq=given["seq"]
        ).subjects
        ways, way_of = self._ways(given, mapped)
        sizes = np.array([len(way) for way in ways], np.int64)
        counts = sizes[way_of]
        message = np.repeat(np.arange(len(messages)), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)  # the row of a message's first step
        chosen = (np.cumsum(sizes) - sizes)[way_of][message] + np.arange(len(first)) - first
        every = pa.Table.from_pylist([step for way in ways for step in way], _STEPS)
        steps = every.take(pa.array(chosen)).combine_chunks()
        stream, origin, numbered = (
            steps[name].to_numpy().astype(np.int64) for name in ("stream", "origin", "numbered")
        )
        self._caveats.note_acting(given["headers"], stream, message)
        answers = self._answers(steps, np.where(origin < 0, -1, first + origin), given, message)
        for answer in Answer:
            of = stream[answers == answer]
            self.answers[answer] += np.bincount(of, minlength=self.answers.shape[1])
        is_stored = answers <= Answer.DROPPED
        number = self._numbered(stream, is_stored)
        is_published, before = origin < 0, first + np.maximum(origin, 0)
        rows = {
            "archive": given["stream"],
            "day": given["day"],
            "archive_seq": given["seq"],
            "ts": given["ts"],
            "subject": given["subject"],
            "mapped_subject": mapped.view(pa.string()),
        }
        rows = {name: column.take(pa.array(message)) for name, column in rows.items()}
        rows |= {
            "number": pa.array(stream),
            "place": pa.array(number),
            "stream": self._named(stream),
            "seq": pa.array(number[first + numbered]),
            "via": steps["via"].combine_chunks().dictionary_encode(),
            "origin_stream": self._named(stream[before], is_published),
            "origin_seq": pa.array(number[first + numbered[before]], mask=is_published),
        }
        for name in ("stored_subject", "republished_subject"):
            rows[name] = steps[name].combine_chunks().view(pa.string())
        return pa.RecordBatch.from_pydict(rows).filter(pa.array(is_stored))

    def is_held(self, rows: pa.RecordBatch) -> np.ndarray:
        """Which rows of `stored` no limit discards, of all rows of some subjects, in order."""
        stream = rows.column("number").to_numpy()
        subjects = rows.column("stored_subject").view(pa.binary()).dictionary_encode()
        group = stream * len(subjects.dictionary) + subjects.indices.to_numpy()
        order = np.argsort(group, kind="stable")
        later = np.empty(len(rows), np.int64)
        ends = np.searchsorted(group[order], group[order], side="right")
        later[order] = ends - np.arange(len(rows)) - 1
        first = np.maximum(self._last - self._most, self._start) + 1
        for number in self._ordered:
            first[number] = self._start[number] + self._limits[number].first
        is_young = times(rows.column("ts")) > self._now - self._age[stream]
        held: np.ndarray = (
            (later < self._of_one[stream])
            & (rows.column("place").to_numpy() >= first[stream])
            & is_young
        )
        return held

    @property
    def is_followed(self) -> np.ndarray:
        """Whether the simulation follows all settings of each stream and of what fills it."""
        count = len(self._streams)
        return np.array([not self._caveats.not_followed(n) for n in range(count)])

    def results(self, held: Sequence[int], discarded: Sequence[int]) -> Iterator[SimulatedStream]:
        """The result of each stream.

        Args:
            held, discarded: the messages of each stream that `is_held` keeps and does not keep.
        """
        for number, stream in enumerate(self._streams):
            if not_followed := self._caveats.not_followed(number):
                yield SimulatedStream(stream.name, None, None, None, None, not_followed)
                continue
            behind = {
                self._streams[n].name
                for n in self._caveats.reads_from(number)
                if discarded[n] or self._caveats.not_followed(n)
            }
            yield SimulatedStream(
                stream.name,
                held[number],
                discarded[number],
                int(self.answers[Answer.REFUSED][number]),
                int(self.answers[Answer.DUPLICATE][number]),
                keeps_up_with=tuple(sorted(behind)),
            )

    def _named(self, streams: np.ndarray, mask: np.ndarray | None = None) -> pa.Array:
        numbers = pa.array(streams.astype(np.int32), mask=mask)
        return pa.DictionaryArray.from_arrays(numbers, self._names)

    def _ways(
        self, given: Mapping[str, pa.Array], mapped: pa.Array
    ) -> tuple[Sequence[Sequence[dict[str, Any]]], np.ndarray]:
        """Steps of messages, and for each message which of them are its own."""
        if not self._network.draws:  # the same for all messages of a subject
            subjects = mapped.dictionary_encode()
            ways = [self._known(subject) for subject in subjects.dictionary.to_pylist()]
            return [*ways, ()], subjects.indices.fill_null(len(ways)).to_numpy()
        columns = (mapped, given["stream"], given["seq"])
        return [
            () if subject is None else self._way(subject, self._entropy(archive, seq))
            for subject, archive, seq in zip(*(c.to_pylist() for c in columns), strict=True)
        ], np.arange(len(mapped))

    def _entropy(self, archive: str, seq: int) -> Entropy:
        return lambda place: message_entropy(archive, seq, mapping_key(self._program.seed, place))

    def _way(self, subject: bytes, entropy: Entropy = lambda _: None) -> Sequence[dict[str, Any]]:
        """The steps of a message; without those that go round without end."""
        steps: list[dict[str, Any]] = []
        through: list[set[int]] = []
        is_plain: list[bool] = []
        step_of: dict[int, int] = {}
        for node, arrival in enumerate(self._network.arrivals(decode(subject), entropy)):
            if arrival.repeats or arrival.subject is None:
                continue
            number = self._numbers[arrival.stream]
            step_of[node] = step = len(steps)
            origin = -1 if arrival.origin is None else step_of[arrival.origin]
            through.append({number} if origin < 0 else {*through[origin], number})
            self._note_feeds(number, through[-1])
            is_plain.append(origin < 0 or (arrival.via is Via.MIRROR and is_plain[origin]))
            if origin >= 0:
                by_consumer = arrival.via is not Via.REPUBLISH
                self._caveats.note_upstream(number, steps[origin]["stream"], by_consumer)
            if number in self._sized and not is_plain[-1]:
                stream = self._streams[number]
                stays = stream.max_msg_size <= 0 and stream.discard == "old"
                why = "max_bytes and max_msg_size of messages that nats-server adds headers to"
                self._caveats.note(number, why, stays=stays)
            republished = arrival.republished
            steps.append(
                {
                    "stream": number,
                    "stored_subject": encode(arrival.subject),
                    "via": arrival.via.value,
                    "position": -1 if arrival.position is None else arrival.position,
                    "origin": origin,
                    # A mirror keeps the sequences of what it mirrors.
                    "numbered": steps[origin]["numbered"] if arrival.via is Via.MIRROR else step,
                    "republished_subject": republished and encode(republished.subject),
                }
            )
        return steps

    def _note_feeds(self, stream: int, through: set[int]) -> None:
        """Refuses streams that refuse messages and feed each other."""
        new = {n for n in through & self._feeds.keys() if n != stream}
        if stream not in self._feeds or new <= self._feeds[stream]:
            return
        self._feeds[stream] |= new
        try:
            TopologicalSorter(self._feeds).prepare()
        except CycleError as error:
            circle = " and ".join(sorted({self._streams[n].name for n in error.args[1]}))
            raise SimulationError("streams-feed-each-other", circle=circle) from error

    def _answers(
        self,
        steps: pa.Table,
        origins: np.ndarray,
        given: Mapping[str, pa.Array],
        message: np.ndarray,
    ) -> np.ndarray:
        """What becomes of each step: its stream takes it or not, or it never came there.

        Args:
            origins: for each step the row of the one that it comes from, or -1.
            message: the message of each step.
        """
        self._now = int(times(given["ts"]).max(initial=self._now))
        known = offered(given, bool(self._sized), bool(self._ordered)) if self._limits else None
        if known is None:
            return np.full(len(steps), Answer.TAKEN)
        answers: list[Answer] = []
        columns = (steps[n].to_pylist() for n in ("stream", "via", "position", "stored_subject"))
        for origin, of, number, via, position, subject in zip(
            origins.tolist(), message.tolist(), *columns, strict=True
        ):
            came = origin < 0 or answers[origin] is Answer.TAKEN
            if not (came or (answers[origin] is Answer.DROPPED and via == Via.REPUBLISH)):
                answers.append(Answer.NEVER_CAME)
                continue
            limits = self._limits.get(number)
            # nats-server tries a refused message of a source again and again, and takes nothing
            # after it: `processInboundSourceMsg`.
            if (number, position) in self._waits:
                answer = Answer.REFUSED
            else:
                answer = Answer.TAKEN if limits is None else limits.offer(subject, known[of])
                if answer is Answer.REFUSED and via != Via.CAPTURE:
                    self._note_refused(number, via, position)
            answers.append(answer)
        return np.array(answers, np.int8)

    def _note_refused(self, number: int, via: str, position: int) -> None:
        """Notes that a stream refuses what it takes from another stream.

        Raises:
            SimulationError: it is a mirror.
        """
        stream = self._streams[number]
        if via == Via.SOURCE:
            self._waits.add((number, position))
            upstream = stream.sources[position].name
            # It goes on once there is room, or once the message is gone: at some time.
            if stream.max_age or drops(self._streams[self._numbers[upstream]]):
                why = f"its source {upstream} that waits for room"
                self._caveats.note(number, why)
        elif via == Via.MIRROR and stream.mirror is not None:
            # It comes past what it refuses by reconnecting, every ten seconds or so.
            raise SimulationError("mirror-refuses", name=stream.name, origin=stream.mirror.name)

    def _numbered(self, stream: np.ndarray, is_stored: np.ndarray) -> np.ndarray:
        """The sequence of each step that is stored, in its stream; what comes later goes on."""
        of = stream[is_stored]
        counts = np.bincount(of, minlength=len(self._last))
        rank = np.empty(len(of), np.int64)
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        rank[np.argsort(of, kind="stable")] = np.arange(len(of)) - starts
        numbers = np.zeros(len(stream), np.int64)
        numbers[is_stored] = self._last[of] + 1 + rank
        self._last += counts
        return numbers
