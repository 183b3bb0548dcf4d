"""The exports and imports of accounts, in server configurations and in JWTs.

Sources: nats-server `parseAccountExports` and `parseAccountImports` in `server/opts.go`, `Export`
and `Import` of nats-io/jwt. Only the fields that decide who gets messages are read and checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nats_transform.accounts.sharing import PRIVATE, TOKEN, SharedSubject, Shares
from nats_transform.config.tree import Section, field, lower, plain, sections_of, text_of
from nats_transform.mappings.subject import SEPARATOR

_POSITION = "account_token_position"
_KINDS = ("stream", "service")


def shares_of_config(fields: Section) -> Shares:
    """The exports and imports of an account in a server configuration."""
    exports, imports = [], []
    for section in sections_of(fields, "exports"):
        for kind in _KINDS:
            if subject := text_of(section, kind):
                exports.append(SharedSubject(kind, subject, rest=_rest(section, kind)))
    for section in sections_of(fields, "imports"):
        for kind in _KINDS:
            entry = field(section, kind)
            if entry is not None and isinstance(entry.node.value, Mapping):
                account = text_of(entry.node.value, "account")
                subject = text_of(entry.node.value, "subject")
                # The server makes nothing of the prefix of a service.
                prefix = text_of(section, "prefix") if kind == "stream" else ""
                dot = "" if prefix.endswith(SEPARATOR) else SEPARATOR
                to = f"{prefix}{dot}{subject}" if prefix else text_of(section, "to")
                if account and subject:
                    rest = _rest(section, kind, "to", "prefix")
                    imports.append(SharedSubject(kind, subject, account, to, rest))
    return Shares(tuple(exports), tuple(imports))


def shares_of_claims(claims: Section) -> Shares:
    """The exports and imports in the claims of an account JWT."""
    exports = [
        SharedSubject(
            text_of(share, "type"),
            text_of(share, "subject"),
            rest=_present(share, PRIVATE, _POSITION),
        )
        for share in _of(claims, "exports")
    ]
    imports = [
        SharedSubject(
            text_of(share, "type"),
            text_of(share, "subject"),
            text_of(share, "account"),
            text_of(share, "local_subject"),
            # A `to` is of the first version of JWTs, in which it was a prefix.
            _present(share, TOKEN) | ({TOKEN: True} if text_of(share, "to") else {}),
        )
        for share in _of(claims, "imports")
    ]
    return Shares(tuple(exports), tuple(imports))


def _present(fields: Section, *names: str) -> dict[str, object]:
    """Which of some fields are there; the token of an import is no text to keep."""
    return {name: True for name in names if name in fields and fields[name].node.value}


def _of(claims: Section, name: str) -> Iterator[Section]:
    return (section for section in sections_of(claims, name) if text_of(section, "type") in _KINDS)


def _rest(fields: Section, *known: str) -> dict[str, object]:
    return {k: plain(entry.node) for k, entry in fields.items() if lower(k) not in known}
