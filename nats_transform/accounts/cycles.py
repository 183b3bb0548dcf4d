"""Imports that lead messages back to their account, with which nats-server refuses to run.

Sources: `streamImportFormsCycle` and `serviceImportFormsCycle` in `server/accounts.go`; seen on
nats-server 2.15.1. The server looks only at the imports that it has added before, in an order that
is random. So it takes some of these configurations, and refuses them at its next start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from nats_transform.accounts.sharing import SharedSubject, Shares
from nats_transform.mappings.subject import is_subset
from nats_transform.mappings.subject_index import SubjectIndex


def import_cycles(
    accounts: Sequence[tuple[Collection[str], Shares]],
) -> Iterator[tuple[int, SharedSubject]]:
    """Every import that leads back to its account, with the place of the account.

    Args:
        accounts: all names of each account, by which others import from it, and what it shares.
    """
    for kind in ("stream", "service"):
        shared = _Shared(accounts, kind)
        for account, entries in enumerate(shared.imports):
            yield from ((account, e) for e in entries if shared.leads_back(account, e))


class _Shared:
    """What accounts share of one kind."""

    def __init__(self, accounts: Sequence[tuple[Collection[str], Shares]], kind: str) -> None:
        self._is_stream = kind == "stream"
        self._places: dict[str, int] = {}
        for place, (names, _) in enumerate(accounts):
            for name in names:
                self._places.setdefault(name, place)
        self.imports = [[e for e in shares.imports if e.kind == kind] for _, shares in accounts]
        self._exports = [
            SubjectIndex(entry.subject for entry in shares.exports if entry.kind == kind)
            for _, shares in accounts
        ]
        # The server compares streams with local subjects, and services with those of the exporter.
        self._arriving = [
            SubjectIndex(e.local if self._is_stream else e.subject for e in entries)
            for entries in self.imports
        ]

    def leads_back(self, account: int, entry: SharedSubject) -> bool:
        """Whether the server refuses an import that it adds to an account after all others."""
        subjects = [entry.local, entry.subject] if self._is_stream else [entry.local]
        return any(self._leads_to({account}, entry.account, subject) for subject in subjects)

    def _leads_to(self, been: set[int], name: str, subject: str) -> bool:
        waiting = [(name, subject)]
        while waiting:
            name, subject = waiting.pop()
            account = self._places.get(name)
            if account is None or (
                self._is_stream and not self._exports[account].covering(subject)
            ):
                continue
            for number in self._arriving[account].colliding(subject):
                entry = self.imports[account][number]
                if self._places.get(entry.account) in been:
                    return True
                been.add(account)
                is_part = is_subset(entry.local, of=subject)
                waiting.append((entry.account, entry.local if is_part else subject))
        return False
