"""Reads the streams and consumers of an account from files or a server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

from jobs.settings.connection import ShownSettings

_S = TypeVar("_S", bound=ShownSettings)


@contextlib.contextmanager
def with_files(settings: _S, account: str) -> Iterator[_S]:
    """The same settings with the files that a server shows, for as long as they are needed.

    Raises:
        ArchiveError: the server cannot be reached, or shows another account.
    """
    if settings.nats is None:
        yield settings
        return
    from jobs.jetstream.account import account_files  # a client of NATS, which files do not need

    with account_files(settings.nats, account) as (streams, consumers):
        yield settings.model_copy(update={"streams": streams, "consumers": consumers})
