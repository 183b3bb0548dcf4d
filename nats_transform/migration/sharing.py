"""The messages that other accounts get by exports of the account and their imports of these.

If one import no longer brings a message but another import of the same account does, nothing is
missing. The same holds for exports. Exports apply to the mapped subjects: nats-server maps in the
parser, before it looks for subscriptions, and an import is a subscription
(`addShadowSubscriptions`). Services are left out, because their requests are not in an archive of
the account.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from nats_transform.errors import shown
from nats_transform.mapping import Outcome
from nats_transform.migration.analysis import Analysis, Told
from nats_transform.migration.case import Case
from nats_transform.migration.count import Amount, Count, messages, total
from nats_transform.migration.names import Names
from nats_transform.sharing import SharedStream
from nats_transform.subject import subscribes


class Sharing(Analysis):
    """Counts the messages that leave the account."""

    def __init__(self, shared: Iterable[SharedStream]) -> None:
        self._shared = tuple(dict.fromkeys(shared))
        self._alike = {
            importer: [one.subject for one in self._shared if one.importer == importer]
            for importer in {one.importer for one in self._shared}
        }
        self._gone: dict[SharedStream, Count] = defaultdict(Count)
        self._left: dict[SharedStream, int] = defaultdict(int)

    def add(self, cases: list[Case], after: Mapping[str, Amount]) -> None:
        for shared in self._shared:
            itself = [shared.subject]
            for case in cases:
                was = _percent(case.before, itself)
                # An import that brings nothing today cannot lose anything.
                filters = self._alike[shared.importer] if was else itself
                becomes = _percent(case.after, filters)
                self._left[shared] += total(becomes * case.messages)
                if becomes < was:
                    parts = (was - becomes) * case.messages
                    self._gone[shared].add(case, case.becomes, parts)

    def told(self, names: Names) -> Iterator[Told]:
        for shared, count in self._gone.items():
            kind = "export" if shared.importer is None else "import"
            left = self._left[shared]
            code = f"{kind}-fewer" if left else f"{kind}-none"
            told = f"these messages will not leave the account; {messages(left)} still will"
            yield code, shown(str(shared)), told, count


def _percent(outcomes: Iterable[tuple[Outcome, int]], filters: Iterable[str]) -> int:
    """The percentage of messages that get a subject under one of the filters."""
    return sum(
        percent
        for outcome, percent in outcomes
        if outcome.subject is not None and any(subscribes(f, outcome.subject) for f in filters)
    )
