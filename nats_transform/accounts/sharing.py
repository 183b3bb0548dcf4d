"""The exports of accounts, and the imports of other accounts from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nats_transform.mappings.functions import is_placeholder
from nats_transform.mappings.subject import ANY_TOKEN, SEPARATOR


@dataclass(frozen=True, slots=True)
class SharedStream:
    """A stream of subjects that leaves an account.

    Attributes:
        subject: the filter, as the exporting account sees it.
        importer: the account that imports it; None for the export itself.
    """

    subject: str
    importer: str | None = None

    def __str__(self) -> str:
        if self.importer is None:
            return f"export {self.subject}"
        return f"import of {self.subject} by account {self.importer}"


PRIVATE, TOKEN = "token_req", "token"
"""In claims: an export that asks for a token, and the token of an import; here only whether."""


@dataclass(frozen=True, slots=True)
class SharedSubject:
    """A subject that an account exports, or imports from another one.

    Attributes:
        kind: `stream` or `service`.
        subject: the filter, as the exporting account sees it.
        account: the exporting account; "" in an export.
        to: the filter as the importing account sees it, as it is written; "" if it is the same.
        rest: the other fields in the form of a server's configuration, such as `accounts`.
    """

    kind: str
    subject: str
    account: str = ""
    to: str = ""
    rest: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def local(self) -> str:
        """The filter, as the importing account sees it."""
        tokens = (self.to or self.subject).split(SEPARATOR)
        return SEPARATOR.join(ANY_TOKEN if is_placeholder(token) else token for token in tokens)

    @property
    def is_public(self) -> bool:
        """Whether every account may import it."""
        return not (self.rest.get("accounts") or self.rest.get(PRIVATE))

    @property
    def is_movable(self) -> bool:
        """Whether an entry for other subjects can be made from it.

        It cannot if somebody must sign for it, or if a token of the subject must name the importing
        account.
        """
        return not (self.rest.get(TOKEN) or self.rest.get("account_token_position"))


@dataclass(frozen=True, slots=True)
class Shares:
    """The exports and imports of one account, in their order."""

    exports: tuple[SharedSubject, ...] = ()
    imports: tuple[SharedSubject, ...] = ()


NO_SHARES = Shares()


def shared_streams(
    names: Collection[str], accounts: Iterable[tuple[str, Shares]]
) -> tuple[SharedStream, ...]:
    """The streams that leave an account: its own exports, and the imports of others.

    Args:
        names: the names of the account: its name and its public key.
        accounts: all known accounts by name, with this one.
    """
    known = list(accounts)
    exports = [
        SharedStream(entry.subject)
        for name, shares in known
        if name in names
        for entry in shares.exports
        if entry.kind == "stream"
    ]
    imports = [
        SharedStream(entry.subject, name)
        for name, shares in known
        for entry in shares.imports
        if entry.kind == "stream" and entry.account in names
    ]
    return tuple(dict.fromkeys([*exports, *imports]))
