"""One look at rows of `transformed_messages`: outcomes, partition numbers, keys and a sample."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa

from expectations.measures.outcomes import Outcomes
from expectations.measures.partitions import PartitionedEnd, Partitions, partitioned_ends
from expectations.measures.rows import (
    Flag,
    Measures,
    StreamDay,
    by_day,
    counts_of,
    is_incoherent,
    is_misdated,
    is_too_long,
    numbers_of,
    plain_rows,
    sample_hashes,
    words,
)
from nats_transform import AccountMappings, Fate
from nats_transform.audit import End
from nats_transform.digest import Digest
from nats_transform.kernel.digest import digest_batch
from nats_transform.kernel.messages import MESSAGES
from nats_transform.kernel.proof import IS_ILLEGAL
from nats_transform.mappings.subject import decode

SAMPLED_ROWS = 2_000
"""About how many messages the scalar library replays; all of a small day.

They are chosen by a hash of the sequence and a number of the run, so each run replays others. All
rows are judged by `outcomes`, too.
"""

KEYED_ROWS = 10_000
"""About how many rows the keys have that must each stay in one partition: all rows of some keys."""

_OF_ENDING = ("cluster", "fate", "mapping_source", "mapping_destination")
_OUTCOME = ("mapped_subject", "fate", "reason", *_OF_ENDING[2:], "draw")
_OF_MESSAGE = ("stream", "seq", "subject", "cluster")


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of messages of a cluster on a day: their fate, and what made it so."""

    day: date | None
    cluster: str | None
    fate: str | None
    source: str | None
    destination: str | None


@dataclass(frozen=True)
class TransformedMeasures(Measures):
    """What was found in rows of `transformed_messages`.

    Attributes:
        digest: all rows, with the digest of all columns.
        endings: rows of each ending.
        numbers: rows by partition number as it is written, of each end where it could be found.
        keys: of some keys, rows by partition number, by end and the hash of the key.
        key_share: one key in so many is in `keys`.
        sample: some rows as they were written.
    """

    digest: Digest
    endings: Counter[Ending]
    numbers: Mapping[End, Counter[str]]
    keys: Mapping[tuple[End, int], Counter[str]]
    key_share: int
    sample: tuple[dict[str, Any], ...]

    def fates_of(self, *days: date) -> dict[str, int]:
        """Rows of each fate; of some days, or of all."""
        counted: Counter[str | None] = Counter()
        for ending, rows in self.endings.items():
            if not days or ending.day in days:
                counted[ending.fate] += rows
        return {fate.value: counted[fate.value] for fate in Fate}


@dataclass(frozen=True)
class MeasureTransformed:
    """Measures rows of `transformed_messages`; it can be sent to a task.

    Attributes:
        outcomes: what the mappings make that the rows were written with.
        ends: the partition functions of the mappings.
        version: the mapping version that the rows should name; not looked at if None.
        one_row_in, one_key_in: how large a part the samples are.
        sample: a number that decides which rows are replayed.
    """

    outcomes: Outcomes
    ends: Sequence[PartitionedEnd]
    version: str | None
    one_row_in: int
    one_key_in: int
    sample: int = 0

    @classmethod
    def of(
        cls,
        mappings: AccountMappings,
        messages: int,
        *,
        seed: int = 0,
        version: str | None = None,
        run_id: str = "",
    ) -> MeasureTransformed:
        """For about so many messages under these mappings and this seed."""
        outcomes, ends = Outcomes(mappings, seed), partitioned_ends(mappings)
        rows, keys = max(1, messages // SAMPLED_ROWS), max(1, messages // KEYED_ROWS)
        return cls(outcomes, ends, version, rows, keys, crc32(run_id.encode()))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> TransformedMeasures:
        """The measures of some rows, with the columns in the order of the table."""
        days: dict[StreamDay, Digest] = defaultdict(Digest)
        digest, endings = Digest(), Counter[Ending]()
        flags: dict[tuple[StreamDay, str], Flag] = defaultdict(Flag)
        partitions = Partitions(self.outcomes.proof, self.ends, self.one_key_in)
        sample: list[dict[str, Any]] = []
        for day, rows in by_day(batches):
            days[day] += Digest(*digest_batch(rows, tuple(MESSAGES)))
            digest += Digest(*digest_batch(rows))
            judged = self.outcomes.judge(rows)
            right, wrong = np.flatnonzero(judged.is_right), np.flatnonzero(~judged.is_right)
            outcome = rows.select([*_OF_MESSAGE, "day", *_OUTCOME])
            others = outcome.take(pa.array(wrong))
            for ending, count in self._endings(rows, judged.opinion.states, right):
                endings[Ending(day[1], *ending)] += count
            for ending, count in _endings(others) if len(wrong) else ():
                endings[Ending(day[1], *ending)] += count
            mapped = rows.column("mapped_subject")
            partitions.add(
                judged.opinion,
                mapped,
                right,
                np.flatnonzero(~judged.is_right & judged.is_of_end),
            )
            for rule, broken in {
                "misdated": is_misdated(rows),
                "misversioned": self._is_misversioned(rows),
                "illegal": (judged.opinion.marks & IS_ILLEGAL > 0) | is_too_long(mapped),
                "different": ~judged.is_right,
            }.items():
                if broken.any():
                    flags[day, rule] += Flag.of(outcome, broken, outcome.schema.names)
            # Rows that are right in every column do not contradict themselves.
            if (broken := is_incoherent(others)).any():
                flags[day, "incoherent"] += Flag.of(others, broken, others.schema.names)
            sample += plain_rows(self._sampled(outcome))
        return TransformedMeasures(
            days=dict(days),
            flags=dict(flags),
            digest=digest,
            endings=endings,
            numbers=dict(partitions.numbers),
            keys=dict(partitions.keys),
            key_share=self.one_key_in,
            sample=tuple(sample),
        )

    def _endings(
        self, rows: pa.RecordBatch, states: np.ndarray, places: np.ndarray
    ) -> Iterable[tuple[tuple[Any, ...], int]]:
        """What became of rows that are right: cluster, fate, source and destination."""
        clusters = words(rows.column("cluster"))
        names = [*clusters.dictionary.view(pa.binary()).to_pylist(), None]
        both = states[places].astype(np.int64) * len(names) + numbers_of(clusters)[places]
        for number, count in counts_of(both):
            name = names[number % len(names)]
            state = self.outcomes.proof.states[number // len(names)]
            cluster = None if name is None else decode(name)
            yield (cluster, state.fate.value, state.source, state.destination), count

    def _is_misversioned(self, rows: pa.RecordBatch) -> np.ndarray:
        versions = words(rows.column("mapping_version"))
        known = [*versions.dictionary.to_pylist(), None]
        differs = np.array([self.version not in (None, version) for version in known])
        found: np.ndarray = differs[numbers_of(versions)]
        return found

    def _sampled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        numbers = rows.column("seq").fill_null(0).to_numpy() ^ self.sample
        chosen = np.flatnonzero(sample_hashes(numbers) % self.one_row_in == 0)
        return rows.take(pa.array(chosen))


def _endings(rows: pa.RecordBatch) -> Iterable[tuple[tuple[Any, ...], int]]:
    """What became of the rows, and of how many."""
    columns = pa.table({name: words(rows.column(name)) for name in _OF_ENDING})
    counts = columns.group_by(_OF_ENDING, use_threads=False).aggregate([([], "count_all")])
    for batch in counts.to_batches():
        for row in plain_rows(batch):
            yield tuple(row[name] for name in _OF_ENDING), row["count_all"]
