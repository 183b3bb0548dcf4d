"""Counts the messages of a stream by subject, as `STREAM.INFO` shows them; no consumer is made.

An answer has at most 100,000 subjects, and for each one the server visits and sorts all that match
the filter of the request. So we ask for a large stream in parts of about an answer, such as
`orders.eu.>`. A sample of its messages says which parts there are. The number of subjects of the
stream says whether some are in no part. A few pages of the whole stream show those.

What does not fit into one answer has pages in the order of the subjects' bytes. The server counts
anew for each, so a page starts within the page before: if none of its subjects is known, subjects
were removed meanwhile and others were passed over.

Source: nats-server `jsStreamInfoRequest`, `SubjectsTotals`, `JSMaxSubjectDetails`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.errors import ArchiveError
from jobs.jetstream.answers import ApiError, Message, StreamInfo
from jobs.jetstream.connection import RawClient, api
from nats_transform.mappings.subject import ANY_TAIL, ANY_TOKEN, SEPARATOR, has_wildcard, is_subset

PAGE = 100_000  # subjects
SHARED = 1_000  # subjects of two pages
FEW = 2 * PAGE  # subjects that are not worth reading messages
_MOST_VISITED = 45_000_000
"""subjects: 2 million in pages, which take a server some 3 CPU minutes."""
_LEAST_VISITED = 1_000  # subjects; what any request costs
SAMPLES, _AT_ONCE, ROUNDS = 2_000, 50, 4  # messages to read, and how often more
_MOST_SAMPLED = 2**26  # bytes of a round


async def pages_of_subjects(client: RawClient, info: StreamInfo) -> AsyncIterator[pa.Table]:
    """Tables of `subject` and `messages`; no subject is in two of them.

    Bytes that are no UTF-8 stand as U+FFFD. Subjects that come while we count may be missing.

    Raises:
        ApiError: there is no such stream, or nobody answers.
        ArchiveError: counting would keep the server busy for minutes; or the stream removes
            subjects faster than it shows them.
    """
    counting = _Counting(client, info)
    total, pages = info.state.num_subjects, []
    async for page in counting.matching(ANY_TAIL, total):
        pages.append(page["subject"])
        yield page
    if sum(map(len, pages)) < total:
        async for page in counting.missing(pages):
            yield page


class _Counting:
    def __init__(self, client: RawClient, info: StreamInfo) -> None:
        self._client, self._state = client, info.state
        self._stream = info.config.name
        self._where = f"stream {self._stream} on {client.where}"
        self._visited = 0

    async def matching(self, pattern: str, total: int) -> AsyncIterator[pa.Table]:
        """Pages of the subjects that match a pattern, about so many."""
        parts = await self._parts(pattern, total) if total > FEW else []
        for part in parts:
            async for size, page in self._in_turn(part):
                if size <= FEW:
                    yield page
                    continue
                async for page in self.matching(part, size):
                    yield page
                break
        if not parts:
            # What the server visits for all pages.
            if total * (total // PAGE + 1) > _MOST_VISITED - self._visited:
                raise self._refusal(f"has {total:,} subjects under {pattern}")
            async for _, page in self._in_turn(pattern):
                yield page

    async def missing(self, pages: list[pa.ChunkedArray]) -> AsyncIterator[pa.Table]:
        """The subjects of the stream that no page has.

        An offset is the number of subjects before it. If fewer of them are known, look there.
        """
        low, high = 0, self._state.num_subjects
        total = (await self._ask({})).state.num_subjects
        while (counted := sum(map(len, pages))) < total:
            high = total if low >= high else min(high, total)
            if low >= high or self._visited + total > _MOST_VISITED:
                raise self._refusal(f"lists only {counted:,} of {total:,} subjects")
            offset = low + (high - low) // PAGE // 2 * PAGE
            info = await self._ask({"subjects_filter": ANY_TAIL, "offset": offset})
            total, page = info.total, _table(info)
            first = pc.min(page["subject"])
            known_before = 0
            for known in pages:
                known_before += pc.sum(pc.less(known, first)).as_py() or 0
                page = page.filter(pc.invert(pc.is_in(page["subject"], known)))
            pages.append(page["subject"])
            yield page
            if known_before < offset:
                high = offset
            else:
                low = offset + max(info.limit, 1)

    async def _in_turn(self, pattern: str) -> AsyncIterator[tuple[int, pa.Table]]:
        """How many subjects match a pattern, and pages of them."""
        before = pa.array([], pa.string())
        start = 0
        while True:
            info = await self._ask({"subjects_filter": pattern, "offset": start})
            page = _table(info)
            new = page.filter(pc.invert(pc.is_in(page["subject"], before)))
            if len(before) and len(page) and len(new) == len(page):
                raise ArchiveError("subjects-removed-faster", where=self._where)
            if len(new):
                yield info.total, new
            end = start + info.limit
            if not len(new) or end >= info.total:
                return
            before, start = page["subject"], max(end - SHARED, start + 1)

    async def _parts(self, pattern: str, total: int) -> Sequence[str]:
        """Patterns for all subjects that match a pattern, about a page for each; () if unknown."""
        samples: list[list[str]] = []
        parts: Sequence[str] = ()
        for turn in range(ROUNDS):
            samples += await self._sampled(pattern, Random(turn))  # noqa: S311 - no secret
            before, parts = parts, _split(pattern, samples, len(samples) * PAGE / total)
            if len(parts) <= max(len(before), 1):
                break
        # One part would be as large as the whole; `*` shows subjects that are shorter.
        return parts if sum(part.endswith(ANY_TAIL) for part in parts) > 1 else ()

    async def _sampled(self, pattern: str, random: Random) -> list[list[str]]:
        """The tokens of the subjects of messages from all over the stream."""
        state, samples = self._state, []
        count = min(SAMPLES, _MOST_SAMPLED * state.messages // max(state.bytes, 1) + 1)
        distance = (state.last_seq - state.first_seq + 1) / count
        # Not at even distances: publishers often take turns.
        starts = [state.first_seq + int(distance * (n + random.random())) for n in range(count)]
        if not await self._subject_from(starts[0], pattern):
            return []  # the user may not read messages
        for n in range(0, count, _AT_ONCE):
            wanted = (self._subject_from(start, pattern) for start in starts[n : n + _AT_ONCE])
            subjects = await asyncio.gather(*wanted)
            samples += [subject.split(SEPARATOR) for subject in subjects if subject]
        return samples

    async def _subject_from(self, sequence: int, pattern: str) -> str:
        """The subject of the first message from a sequence on; "" if the server shows none."""
        asked = {"seq": max(sequence, 1), "next_by_subj": pattern, "no_hdr": True}
        try:
            subject = f"STREAM.MSG.GET.{self._stream}"
            answer = await api(self._client, Message, subject, asked)
        except ApiError:
            return ""
        subject = answer.message.subject
        return subject if not has_wildcard(subject) and is_subset(subject, pattern) else ""

    async def _ask(self, asked: Mapping[str, Any]) -> StreamInfo:
        # With millions of subjects the server needs longer than for any other request.
        subject = f"STREAM.INFO.{self._stream}"
        patience = self._client.settings.patience
        info = await api(self._client, StreamInfo, subject, asked, timeout=patience)
        self._visited += max(info.total, _LEAST_VISITED)
        if self._visited > _MOST_VISITED:
            raise self._refusal("has too many subjects")
        return info

    def _refusal(self, why: str) -> ArchiveError:
        return ArchiveError("subjects-too-many", where=self._where, why=why)


def _split(pattern: str, samples: Sequence[Sequence[str]], most: float) -> list[str]:
    """Patterns for all that a pattern matches, each with at most so many samples if possible."""
    branches: dict[str, list[Sequence[str]]] = defaultdict(list)
    place = pattern.count(SEPARATOR)
    for tokens in samples:
        if len(tokens) > place + 1:
            branches[tokens[place]].append(tokens)
    once = sum(len(branch) == 1 for branch in branches.values())
    # Where many tokens are seen once, there are many more.
    if len(samples) <= most or not branches or once > len(samples) / 10:
        return [pattern]
    start = pattern.removesuffix(ANY_TAIL)
    parts = [start + ANY_TOKEN]
    for token, branch in branches.items():
        parts += _split(f"{start}{token}.{ANY_TAIL}", branch, most)
    return parts


def _table(info: StreamInfo) -> pa.Table:
    counts = info.state.subjects or {}
    columns = [pa.array(counts, pa.string()), pa.array(counts.values(), pa.int64())]
    return pa.table(columns, names=["subject", "messages"])
