"""Imports between accounts, and what a subscription sees through one.

Sources: ADR-30 "Using all the wildcard-tokens in the transform's Source"; nats-server
`addMappedStreamImportWithClaim` and `addServiceImport` in `server/accounts.go`,
`addShadowSubscriptions` in `server/client.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest

from nats_transform.errors import InvalidSubject, InvalidTransform
from nats_transform.mappings.functions import is_placeholder
from nats_transform.mappings.subject import (
    ANY_TAIL,
    ANY_TOKEN,
    SEPARATOR,
    has_wildcard,
    is_subset,
    is_valid_filter,
    literal_fault,
    subscribes,
    tokens_match,
)
from nats_transform.mappings.transform import Transform, number_wildcards


class ImportKind(StrEnum):
    """What is imported."""

    STREAM = "stream"
    """Messages of the exporting account come in under another subject."""
    SERVICE = "service"
    """Requests of the importing account go out under another subject."""


@dataclass(frozen=True, slots=True)
class AccountImport:
    """An import of another account's subject, validated as nats-server does.

    A stream's messages come from `subject` and arrive under `to`; a service's requests are
    published under `to` and go out under `subject`.

    Examples:
        >>> AccountImport("stream", "sales.*.*", "from.$2.$1").apply("sales.eu.42")
        'from.42.eu'

    Args:
        kind: stream or service.
        subject: the exporter's subject.
        to: the importer's subject; if empty, it is the same. A stream import with the prefix `p`
            has the `to` `p.subject`.

    Raises:
        InvalidTransform: the strict rules are broken: only `wildcard` is allowed, and every `*` of
            `subject` must be used. If the subject of a stream import is literal, its `to` is not
            checked at all, as in the server.
    """

    kind: ImportKind
    subject: str
    to: str = ""
    transform: Transform | None = field(init=False, repr=False, compare=False)
    _listens: str = field(init=False, repr=False, compare=False)
    _arrives: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", ImportKind(self.kind))
        object.__setattr__(self, "to", self.to or self.subject)
        transform, listens, arrives = (
            self._as_stream() if self.kind is ImportKind.STREAM else self._as_service()
        )
        object.__setattr__(self, "transform", transform)
        object.__setattr__(self, "_listens", listens)
        object.__setattr__(self, "_arrives", arrives)

    @property
    def keeps_subject(self) -> bool:
        """Whether subjects pass unchanged, because `subject` has a wildcard and no other `to`."""
        return self.subject == self.to and has_wildcard(self.subject)

    def apply(self, subject: str) -> str | None:
        """The subject on the other side, or None if the import does not cover it.

        Args:
            subject: the published subject: for a stream in the exporting account, for a service in
                the importing account.
        """
        if literal_fault(subject) or not subscribes(self._listens, subject):
            return None
        if self.transform is not None:
            return self.transform.evaluate(subject.split(SEPARATOR))
        return subject if self.keeps_subject else self._arrives

    def shadow(self, subscription: str) -> str | None:
        """The filter that a subscription of the importing account opens in the exporting one.

        Only stream imports have one (`addShadowSubscriptions`).

        Args:
            subscription: the filter that a client subscribes to.

        Returns:
            The filter of the shadow subscription, or None if it does not touch the import.

        Raises:
            InvalidTransform: `to` cannot be reversed; nats-server crashes here.
        """
        if self.kind is not ImportKind.STREAM:
            return None
        if subscription == self._arrives:
            return self.subject
        if is_subset(subscription, self._arrives):
            wanted = subscription
        elif not has_wildcard(subscription):
            return None
        elif is_subset(self._arrives, subscription):
            return self.subject
        else:
            overlap = _narrow(subscription.split(SEPARATOR), self._arrives.split(SEPARATOR))
            if overlap is None:
                return None
            wanted = overlap
        if self.keeps_subject:
            return wanted
        if self.transform is None:
            return wanted if wanted != subscription else self.subject
        backward = reverse_by_position(self.transform)
        if backward is None:
            raise InvalidTransform(self.subject, self.to, detail="irreversible")
        return backward.evaluate(wanted.split(SEPARATOR))

    def _as_stream(self) -> tuple[Transform | None, str, str]:
        if not is_valid_filter(self.subject):
            raise InvalidSubject(self.subject, self.to, self.subject)
        if not has_wildcard(self.subject) or self.to == self.subject:
            return None, self.subject, self.to
        transform = Transform(self.subject, number_wildcards(self.to), strict=True)
        return transform, self.subject, _placeholders_out(self.to)[0]

    def _as_service(self) -> tuple[Transform | None, str, str]:
        for subject in (self.subject, self.to):
            if not is_valid_filter(subject):
                raise InvalidSubject(self.subject, self.to, subject)
        if not has_wildcard(self.subject) or self.to == self.subject:
            return None, self.to, self.subject
        exported = _placeholders_out(self.subject)[0]
        backward = Transform(exported, number_wildcards(self.to), strict=True)
        return reverse_by_position(backward), _placeholders_out(self.to)[0], exported


def reverse_by_position(transform: Transform) -> Transform | None:
    """The transform that nats-server uses in reverse (`subjectTransform.reverse`).

    It assigns the wildcards by their order and not by their numbers. So it undoes only transforms
    that keep the order: `a.*.b.* -> x.$2.$1` comes back with the two tokens exchanged.

    Returns:
        The transform, or None where the server ends up without one.
    """
    source, placeholders = _placeholders_out(transform.destination)
    tokens = []
    for token in transform.filter.tokens:
        if token != ANY_TOKEN:
            tokens.append(token)
        elif placeholders:
            tokens.append(placeholders.pop(0))
        else:
            return None
    try:
        return Transform(source, SEPARATOR.join(tokens), strict=True)
    except InvalidTransform:
        return None


def _placeholders_out(destination: str) -> tuple[str, list[str]]:
    """A destination with `*` for its placeholders, and those (`transformUntokenize`)."""
    tokens = destination.split(SEPARATOR)
    source = [ANY_TOKEN if is_placeholder(token) else token for token in tokens]
    return SEPARATOR.join(source), [token for token in tokens if is_placeholder(token)]


def _narrow(subscription: list[str], imported: list[str]) -> str | None:
    """The part of a subscription that lies inside an import, or None if they do not meet."""
    tokens = [
        theirs if mine == ANY_TOKEN and theirs not in ("", ANY_TAIL) else mine
        for mine, theirs in zip_longest(subscription, imported[: len(subscription)], fillvalue="")
    ]
    if tokens[-1] == ANY_TAIL and len(imported) >= len(tokens):
        tokens[-1:] = imported[len(tokens) - 1 :]
    return SEPARATOR.join(tokens) if tokens_match(tokens, imported) else None
