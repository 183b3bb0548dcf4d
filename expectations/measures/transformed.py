"""One look at rows of `transformed_messages`: outcomes, partition numbers, keys and a sample."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from expectations.measures.outcomes import Judged, Outcomes
from expectations.measures.partitions import Numbers, partitioned_ends
from expectations.measures.rows import (
    Measures,
    by_day,
    flags,
    is_misdated,
    is_too_long,
    plain_rows,
    sample_hashes,
)
from nats_transform import AccountMappings, Fate
from nats_transform.audit import End
from nats_transform.digest import Digest
from nats_transform.kernel.counting import combinations, texts
from nats_transform.kernel.digest import digest_batch
from nats_transform.kernel.messages import MESSAGES
from nats_transform.kernel.proof import IS_ILLEGAL
from nats_transform.mappings.mapping import DRAWS

SAMPLED_ROWS = 2_000
"""About how many messages the scalar library replays; all of a small day.

They are chosen by a hash of the sequence and a number of the run, so each run replays others. All
rows are judged by `outcomes`, too.
"""

KEYED_ROWS = 10_000
"""About how many rows the keys have that must each stay in one partition: all rows of some keys."""

_OF_ENDING = ("cluster", "fate", "mapping_source", "mapping_destination")
_SHOWN = (
    *("stream", "seq", "subject", "cluster", "day"),
    *("mapped_subject", "fate", "reason", "mapping_source", "mapping_destination", "draw"),
)


class Ending(NamedTuple):
    """What became of messages of a cluster on a day: their fate, and what made it so."""

    day: date | None
    cluster: str | None
    fate: str | None
    source: str | None
    destination: str | None


@dataclass
class TransformedMeasures(Measures):
    """What was found in rows of `transformed_messages`.

    Attributes:
        digest: all rows, with the digest of all columns.
        endings: rows of each ending.
        numbers: rows by partition number as it is written, of each end where it can be found.
        keys: of some keys, rows by hash of the key and partition number, of each end.
        sample: some rows as they were written.
    """

    digest: Digest = field(default_factory=Digest)
    endings: Counter[Ending] = field(default_factory=Counter)
    numbers: dict[End, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    keys: dict[End, Counter[tuple[int, str]]] = field(default_factory=lambda: defaultdict(Counter))
    sample: list[dict[str, Any]] = field(default_factory=list)

    def fates_of(self, *days: date) -> dict[str, int]:
        """Rows of each fate; of some days, or of all."""
        counted: Counter[str | None] = Counter()
        for ending, rows in self.endings.items():
            if not days or ending.day in days:
                counted[ending.fate] += rows
        return {fate.value: counted[fate.value] for fate in Fate}


class MeasureTransformed:
    """Measures rows of `transformed_messages`; it can be sent to a task.

    Args:
        mappings, seed: what the rows were written with.
        messages: about how many there are, which decides how large a part the samples are.
        version: the mapping version that the rows should name; not looked at if None.
        run_id: decides which rows are in the sample.
    """

    def __init__(
        self,
        mappings: AccountMappings,
        messages: int,
        *,
        seed: int = 0,
        version: str | None = None,
        run_id: str = "",
    ) -> None:
        self._outcomes, self._version = Outcomes(mappings, seed), version
        one_key_in = max(1, messages // KEYED_ROWS)
        states = self._outcomes.proof.states
        self._numbers = Numbers(partitioned_ends(mappings), states, one_key_in)
        self._one_row_in, self._sample = max(1, messages // SAMPLED_ROWS), crc32(run_id.encode())

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> TransformedMeasures:
        """The measures of some rows, with the columns in the order of the table."""
        found = TransformedMeasures()
        for day, rows in by_day(batches):
            judged = self._outcomes.judge(rows)
            mapped = rows.column("mapped_subject")
            found.digest += Digest(*digest_batch(rows))
            found.count(
                day, rows, MESSAGES, _SHOWN,
                misdated=is_misdated(rows),
                misversioned=self._is_misversioned(rows),
                illegal=(judged.opinion.marks & IS_ILLEGAL > 0) | is_too_long(mapped),
                different=~judged.is_right,
                incoherent=_is_incoherent(rows, judged),
            )  # fmt: skip
            names = (texts(rows.column(name)) for name in _OF_ENDING)
            for ending, count in combinations(*names):
                found.endings[Ending(day[1], *ending)] += count
            for end, key, number, count in self._numbers.of(judged, mapped):
                if key is None:
                    found.numbers[end][number] += count
                else:
                    found.keys[end][key, number] += count
            numbers = np.asarray(rows.column("seq").fill_null(0)) ^ self._sample
            sampled = np.flatnonzero(sample_hashes(numbers) % self._one_row_in == 0)
            found.sample += plain_rows(rows.select(_SHOWN).take(pa.array(sampled)))
        return found

    def _is_misversioned(self, rows: pa.RecordBatch) -> np.ndarray:
        versions = texts(rows.column("mapping_version"))
        known = [self._version in (None, version) for version in versions.values]
        found: np.ndarray = ~np.array(known)[versions.numbers]
        return found


def _is_incoherent(rows: pa.RecordBatch, judged: Judged) -> np.ndarray:
    """Whether the columns that tell the outcome contradict one another.

    Those of rows that are right in every column do not.
    """
    wrong = np.flatnonzero(~judged.is_right)
    found = np.zeros(len(rows), np.bool_)
    if not len(wrong):
        return found
    rows = rows.select(_SHOWN).take(pa.array(wrong))
    has_subject, has_mapping, has_reason = (
        flags(rows.column(name).is_valid())
        for name in ("mapped_subject", "mapping_source", "reason")
    )
    fate, draws = rows.column("fate").cast(pa.string()), rows.column("draw")
    is_mapped, is_invalid = (flags(pc.equal(fate, f.value)) for f in (Fate.MAPPED, Fate.INVALID))
    passes = is_mapped | flags(pc.equal(fate, Fate.UNMATCHED.value))
    is_known = flags(pc.is_in(fate, pa.array([f.value for f in Fate])))
    moved = pc.not_equal(
        *(rows.column(name).view(pa.binary()) for name in ("mapped_subject", "subject"))
    )
    broken = ~is_known | (has_subject != passes) | (has_reason != is_invalid)
    broken |= (passes & (has_mapping != is_mapped)) | (flags(moved) & ~has_mapping)
    broken |= flags(pc.or_(pc.less(draws, 0), pc.greater_equal(draws, DRAWS)))
    found[wrong] = broken
    return found
