"""Imports that lead messages back to their account, with which nats-server refuses to run.

Sources: `streamImportFormsCycle` and `serviceImportFormsCycle` in `server/accounts.go`; seen on
nats-server 2.15.1. The server looks only at the imports that it has added before, in an order that
is random. So it takes some of these configurations, and refuses them at its next start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nats_transform.accounts.sharing import SharedSubject, Shares
from nats_transform.mappings.subject import is_subset
from nats_transform.mappings.subject_index import SubjectIndex


def import_cycles(accounts: Mapping[str, Shares]) -> Iterator[tuple[str, SharedSubject]]:
    """Every import that leads back to its account, with the account's name."""
    for kind in ("stream", "service"):
        shared = _Shared(accounts, kind)
        for name, entries in shared.imports.items():
            yield from ((name, entry) for entry in entries if shared.leads_back(name, entry))


class _Shared:
    """What accounts share of one kind."""

    def __init__(self, accounts: Mapping[str, Shares], kind: str) -> None:
        self._is_stream = kind == "stream"
        self.imports = {n: [e for e in s.imports if e.kind == kind] for n, s in accounts.items()}
        self._exports = {
            name: SubjectIndex(entry.subject for entry in shares.exports if entry.kind == kind)
            for name, shares in accounts.items()
        }
        # The server compares streams with local subjects, and services with those of the exporter.
        self._places = {
            name: SubjectIndex(e.local if self._is_stream else e.subject for e in entries)
            for name, entries in self.imports.items()
        }

    def leads_back(self, name: str, entry: SharedSubject) -> bool:
        """Whether the server refuses an import that it adds to an account after all others."""
        places = [entry.local, entry.subject] if self._is_stream else [entry.local]
        return any(self._leads_to({name}, entry.account, place) for place in places)

    def _leads_to(self, been: set[str], account: str, place: str) -> bool:
        waiting = [(account, place)]
        while waiting:
            account, place = waiting.pop()
            if self._is_stream and not (
                account in self._exports and self._exports[account].covering(place)
            ):
                continue
            for number in self._places[account].colliding(place) if account in self._places else ():
                entry = self.imports[account][number]
                if entry.account in been:
                    return True
                been.add(account)
                is_part = is_subset(entry.local, of=place)
                waiting.append((entry.account, entry.local if is_part else place))
        return False
