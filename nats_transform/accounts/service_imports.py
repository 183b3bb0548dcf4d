"""Imports of services by an account whose mappings move the requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from nats_transform.accounts.imports import AccountImport, ImportKind
from nats_transform.accounts.sharing import SharedSubject
from nats_transform.errors import InvalidTransform
from nats_transform.mappings.moves import Move, Moves, kept
from nats_transform.mappings.subject import ANY_TOKEN
from nats_transform.mappings.subject_index import SubjectIndex
from nats_transform.mappings.transform import number_wildcards


def services_with(imports: Sequence[SharedSubject], moves: Moves) -> tuple[SharedSubject, ...]:
    """Imports of services by the account itself that take requests under the new names too.

    nats-server maps a request before it looks for an import.
    """
    services = dict.fromkeys(imports)
    for entry, move in _requests(imports, moves):
        if (new := _moved_service(entry, move)) is not None:
            services.setdefault(new)
    return tuple(services)


def left_services(
    imports: Sequence[SharedSubject], moves: Moves, new: Sequence[SharedSubject]
) -> Iterator[tuple[SharedSubject, Move]]:
    """Imports of services that requests leave which no import of others takes, with their move."""
    index = SubjectIndex(entry.local for entry in new if entry.kind == "service")
    is_taken = cache(lambda names: bool(index.covering(names)))
    for entry, move in _requests(imports, moves):
        names = move.names(entry.local)
        if names is not None and not is_taken(names[1]):
            yield entry, move


def _requests(
    imports: Sequence[SharedSubject], moves: Moves
) -> Iterator[tuple[SharedSubject, Move]]:
    for entry in imports:
        for move in moves.under([entry.local]) if entry.kind == "service" else ():
            if move.names(entry.local) is not None:
                yield entry, move


def _moved_service(entry: SharedSubject, move: Move) -> SharedSubject | None:
    local = entry.to or entry.subject
    pair = kept(move, local, None) if local == entry.local and entry.is_movable else None
    # The server fills in the wildcards of a service in their order.
    if (
        pair is None
        or pair[1] != number_wildcards(local)
        or entry.subject.count(ANY_TOKEN) != (pair[0].count(ANY_TOKEN))
    ):
        return None
    return replace(entry, to=pair[0]) if is_import("service", entry.subject, pair[0]) else None


def is_import(kind: str, subject: str, to: str) -> bool:
    """Whether nats-server accepts an import."""
    try:
        AccountImport(ImportKind(kind), subject, to)
    except InvalidTransform:
        return False
    return True
