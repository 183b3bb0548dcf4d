"""Counts the messages of a stream by subject, as `STREAM.INFO` shows them; no message is read.

Each answer has a page of 100,000 subjects in the order of their bytes. The server counts anew for
each, so a page starts within the page before: if none of its subjects is known, subjects were
removed meanwhile and others were passed over.

Source: nats-server `jsStreamInfoRequest`, `JSMaxSubjectDetails`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from jobs.errors import ArchiveError
from jobs.jetstream.answers import StreamInfo
from jobs.jetstream.connection import RawClient, api
from jobs.settings.connection import NatsSettings
from nats_transform.subject import ANY_TAIL

_SHARED = 1_000  # subjects of two pages


async def pages_of_subjects(
    client: RawClient, nats: NatsSettings, stream: str
) -> AsyncIterator[Mapping[str, int]]:
    """Pages with the number of messages under each subject; no subject is in two of them.

    Bytes that are no UTF-8 stand as U+FFFD.

    Raises:
        ApiError: there is no such stream, or nobody answers.
        ArchiveError: the stream removes subjects faster than it shows them.
    """
    before: Mapping[str, int] = {}
    start = 0
    while True:
        asked = {"subjects_filter": ANY_TAIL, "offset": start}
        # With millions of subjects the server needs longer than for any other request.
        info = await api(
            client, nats, StreamInfo, f"STREAM.INFO.{stream}", asked, timeout=nats.patience
        )
        page = info.state.subjects or {}
        new = {subject: count for subject, count in page.items() if subject not in before}
        if before and page and len(new) == len(page):
            raise ArchiveError(
                f"stream {stream} on {nats.where} removes subjects faster than it shows them: "
                "ingest it, and try the mappings on the archive"
            )
        if new:
            yield new
        end = start + info.limit
        if not new or end >= info.total:
            return
        before, start = page, max(end - _SHARED, start + 1)
