"""What an account exports as a stream, and what other accounts import from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedStream:
    """A stream of subjects that leaves an account.

    Attributes:
        subject: the filter, as the exporting account sees it.
        importer: the account that imports it; None: the export itself.
    """

    subject: str
    importer: str | None = None

    def __str__(self) -> str:
        if self.importer is None:
            return f"export {self.subject}"
        return f"import of {self.subject} by account {self.importer}"


@dataclass(frozen=True, slots=True)
class Shares:
    """The exports and imports of one account, streams only.

    Attributes:
        exports: filters.
        imports: pairs of the exporting account and a filter as that account sees it.
    """

    exports: tuple[str, ...] = ()
    imports: tuple[tuple[str, str], ...] = ()


NO_SHARES = Shares()


def shared_streams(
    names: Collection[str], accounts: Iterable[tuple[str, Shares]]
) -> tuple[SharedStream, ...]:
    """What leaves an account, by its own exports and by the imports of others.

    Args:
        names: of the account: its name, its public key.
        accounts: all that are known, by name, itself too.
    """
    known = list(accounts)
    exports = [
        SharedStream(one) for name, shares in known if name in names for one in shares.exports
    ]
    imports = [
        SharedStream(subject, name)
        for name, shares in known
        for exporter, subject in shares.imports
        if exporter in names
    ]
    return tuple(dict.fromkeys([*exports, *imports]))
