"""Filters, permissions, exports and imports for both names, and then without the old ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nats_transform.errors import InvalidSubject, InvalidTransform
from nats_transform.imports import AccountImport, ImportKind
from nats_transform.migration.permissions import Allowance, User
from nats_transform.plan.moves import Move, kept
from nats_transform.sharing import Entry
from nats_transform.subject import ANY_TOKEN, is_subset
from nats_transform.transform import Transform, number_wildcards


def widened(filters: Sequence[str], moves: Iterable[Move]) -> tuple[str, ...]:
    """The filters, with filters of the new names of all subjects that they cover, each once."""
    found = list(filters)
    for place in filters:
        for move in moves:
            names = move.names(place)
            if names is not None and not any(is_subset(names[1], of=one) for one in found):
                found.append(names[1])
    return tuple(found)


def is_gone(place: str, moves: Iterable[Move]) -> bool:
    """Whether every subject under a filter gets a name outside the filter."""
    return any(
        move.old is None
        and is_subset(place, of=move.part)
        and not any(is_subset(place, of=names[1]) for names in [move.names(place)] if names)
        for move in moves
    )


def narrowed(filters: Sequence[str], wide: Sequence[str], moves: Sequence[Move]) -> tuple[str, ...]:
    """The widened filters, without those from which every subject has moved away.

    Args:
        filters: the filters before the migration.
        wide: the result of `widened` for them.
        moves: the moves that were given to `widened`.
    """
    gone = {place for place in filters if is_gone(place, moves)}
    return tuple(place for place in wide if place not in gone)


def user_with(user: User, moves: Sequence[Move], *, narrow: bool = False) -> User:
    """The user with permissions for both names, or for the new names alone.

    nats-server checks a publish after the mapping, so publishers need the new names as well.
    """
    return replace(
        user,
        publish=_allowance(user.publish, moves, narrow),
        subscribe=_allowance(user.subscribe, moves, narrow),
    )


def _allowance(allowance: Allowance, moves: Sequence[Move], narrow: bool) -> Allowance:
    def change(filters: tuple[str, ...]) -> tuple[str, ...]:
        wide = widened(filters, moves)
        return narrowed(filters, wide, moves) if narrow else wide

    def groups(filters: tuple[str, ...]) -> tuple[str, ...]:
        """The same change for filters that have a queue group after a space."""
        pairs = [one.split() for one in filters]
        return tuple(dict.fromkeys(f"{s} {group}" for f, group in pairs for s in change((f,))))

    return Allowance(
        None if allowance.allow is None else change(allowance.allow),
        change(allowance.deny),
        groups(allowance.allow_groups),
        groups(allowance.deny_groups),
    )


def exports_with(exports: Sequence[Entry], moves: Sequence[Move]) -> tuple[Entry, ...]:
    """Exports with the new names too, for the same accounts. Exports of services stay as they are.

    A request comes in under the exported subject and is mapped after that (`processServiceImport`
    in `server/client.go`).
    """
    found = list(exports)
    for one in exports:
        is_moved = one.kind == "stream" and one.is_movable
        for new in widened((one.subject,), moves)[1:] if is_moved else ():
            if not any(
                other.kind == "stream"
                and is_subset(new, of=other.subject)
                and (other.is_public or other.rest == one.rest)
                for other in found
            ):
                found.append(replace(one, subject=new))
    return tuple(found)


def imports_with(
    imports: Sequence[Entry], names: Iterable[str], moves: Sequence[Move]
) -> tuple[Entry, ...]:
    """Imports of another account with the new names too. Its local subjects stay as they were.

    Args:
        imports: the imports of an account.
        names: the names of the account whose subjects move.
        moves: the subjects that move.
    """
    known = set(names)
    found = list(imports)
    for one in imports:
        if one.kind != "stream" or one.account not in known or not one.is_movable:
            continue
        for move in moves:
            both = move.names(one.subject)
            if both is None or any(
                is_subset(both[1], of=other.subject)
                for other in imports
                if other is one
                or (other.kind, other.account, other.to, one.to) == (one.kind, one.account, "", "")
            ):
                continue
            to = one.to or one.subject
            renames = Transform(one.subject, number_wildcards(to)) if to != one.subject else None
            pair = kept(move, one.subject, renames)
            if pair is not None and _is_import("stream", *pair):
                new = replace(one, subject=pair[0], to=pair[1])
                found += [new] if new not in found else []
    return tuple(found)


def services_with(imports: Sequence[Entry], moves: Sequence[Move]) -> tuple[Entry, ...]:
    """Imports of services by the account itself that take requests under the new names too.

    nats-server maps a request before it looks for an import.
    """
    found = list(imports)
    for one, move in _requests(imports, moves):
        new = _moved_service(one, move)
        if new is not None and new not in found:
            found.append(new)
    return tuple(found)


def stuck_services(imports: Sequence[Entry], moves: Sequence[Move]) -> Iterator[Entry]:
    """Imports of services that some requests would no longer reach."""
    wide = services_with(imports, moves)
    for one, move in _requests(imports, moves):
        names = move.names(one.to or one.subject)
        if names is not None and not any(
            other.kind == one.kind and is_subset(names[1], of=other.local) for other in wide
        ):
            yield one


def _requests(imports: Sequence[Entry], moves: Sequence[Move]) -> Iterator[tuple[Entry, Move]]:
    for one in imports:
        for move in moves:
            if one.kind == "service" and move.names(one.local) is not None:
                yield one, move


def _moved_service(one: Entry, move: Move) -> Entry | None:
    local = one.to or one.subject
    pair = kept(move, local, None) if local == one.local and one.is_movable else None
    # The server fills in the wildcards of a service in their order.
    if (
        pair is None
        or pair[1] != number_wildcards(local)
        or one.subject.count(ANY_TOKEN) != (pair[0].count(ANY_TOKEN))
    ):
        return None
    return replace(one, to=pair[0]) if _is_import("service", one.subject, pair[0]) else None


def _is_import(kind: str, subject: str, to: str) -> bool:
    """Whether nats-server accepts an import."""
    try:
        AccountImport(ImportKind(kind), subject, to)
    except (InvalidTransform, InvalidSubject):
        return False
    return True


def shares_without(
    entries: Sequence[Entry], names: Iterable[str], moves: Sequence[Move]
) -> tuple[Entry, ...]:
    """The exports or imports for both names, without those from which every subject moved away.

    Args:
        entries: the exports or imports for both names.
        names: the names of the account whose subjects move; "" stands for its own exports.
        moves: the subjects that move.
    """
    known = set(names)
    return tuple(
        one
        for one in entries
        if not (one.kind == "stream" and one.account in known and is_gone(one.subject, moves))
    )


def services_without(imports: Sequence[Entry], moves: Sequence[Move]) -> tuple[Entry, ...]:
    """Imports of services, without those that no request of the account reaches any more."""
    return tuple(
        one for one in imports if not (one.kind == "service" and is_gone(one.local, moves))
    )
