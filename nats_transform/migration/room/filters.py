"""Filters, permissions, exports and imports for both names, and then without the old ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from nats_transform.accounts.service_imports import is_import
from nats_transform.accounts.sharing import SharedSubject
from nats_transform.config.permissions import Allowance, User
from nats_transform.mappings.moves import Move, Moves, kept
from nats_transform.mappings.subject import is_subset
from nats_transform.mappings.subject_index import SubjectIndex
from nats_transform.mappings.symbolic import each_number
from nats_transform.mappings.transform import Transform, number_wildcards

IsGone: TypeAlias = Callable[[str], bool]
"""Whether no message has a subject under a filter any more, see `room.gone`."""


def widened(filters: Sequence[str], moves: Moves) -> tuple[str, ...]:
    """The filters, with filters of the new names of all subjects that they cover, each once.

    No filter is left that another one covers: nats-server refuses these in a stream or consumer.
    """
    listed = SubjectIndex(filters)
    new = dict.fromkeys(
        names[1]
        for place in filters
        for move in moves.under([place])
        if (names := move.names(place)) and not _has_each_number(listed, move)
    )
    known = [*filters, *new]
    index = SubjectIndex(known)
    kept = dict.fromkeys(range(len(filters)))
    for number in range(len(filters), len(known)):
        around = kept.keys() & index.colliding(known[number])
        if not any(is_subset(known[number], of=known[other]) for other in around):
            for other in around:
                if is_subset(known[other], of=known[number]):
                    del kept[other]
            kept[number] = None
    return tuple(known[number] for number in kept)


def _has_each_number(listed: SubjectIndex, move: Move) -> bool:
    """Whether filters list the new names number by number, so that `*` would overlap with them."""
    each = [] if move.new is None else each_number(move.new, move.part)
    return len(each) > 1 and all(
        any(is_subset(one, of=listed.filters[number]) for number in listed.colliding(one))
        for one in each
    )


def narrowed(filters: Sequence[str], wide: Sequence[str], is_gone: IsGone) -> tuple[str, ...]:
    """The widened filters, without those under which nothing comes any more."""
    gone = set(filter(is_gone, filters))
    return tuple(place for place in wide if place not in gone)


def user_with(user: User, moves: Moves, is_gone: IsGone | None = None) -> User:
    """The user with permissions for both names, or without those for which `is_gone` is true.

    nats-server checks a publish after the mapping, so publishers need the new names as well.
    """
    return replace(
        user,
        publish=_allowance(user.publish, moves, is_gone),
        subscribe=_allowance(user.subscribe, moves, is_gone),
    )


def _allowance(allowance: Allowance, moves: Moves, is_gone: IsGone | None) -> Allowance:
    def change(filters: tuple[str, ...]) -> tuple[str, ...]:
        wide = widened(filters, moves)
        return narrowed(filters, wide, is_gone) if is_gone else wide

    def groups(filters: tuple[str, ...]) -> tuple[str, ...]:
        """The same change for filters that have a queue group after a space."""
        pairs = [parts.split() for parts in filters]
        return tuple(dict.fromkeys(f"{s} {group}" for f, group in pairs for s in change((f,))))

    return Allowance(
        None if allowance.allow is None else change(allowance.allow),
        change(allowance.deny),
        groups(allowance.allow_groups),
        groups(allowance.deny_groups),
    )


def exports_with(exports: Sequence[SharedSubject], moves: Moves) -> tuple[SharedSubject, ...]:
    """Exports with the new names too, for the same accounts. Exports of services stay as they are.

    A request comes in under the exported subject and is mapped after that (`processServiceImport`
    in `server/client.go`).
    """
    kept = list(exports)
    for entry in exports:
        is_moved = entry.kind == "stream" and entry.is_movable
        for new in widened((entry.subject,), moves) if is_moved else ():
            if new != entry.subject and not any(
                other.kind == "stream"
                and is_subset(new, of=other.subject)
                and (other.is_public or other.rest == entry.rest)
                for other in kept
            ):
                kept.append(replace(entry, subject=new))
    return tuple(kept)


def imports_with(
    imports: Sequence[SharedSubject], names: Iterable[str], moves: Moves
) -> tuple[SharedSubject, ...]:
    """Imports of another account with the new names too. Its local subjects stay as they were."""
    known = set(names)
    entries = list(imports)
    for entry in imports:
        if entry.kind != "stream" or entry.account not in known or not entry.is_movable:
            continue
        for move in moves.under([entry.subject]):
            both = move.names(entry.subject)
            if both is None or any(
                is_subset(both[1], of=other.subject)
                for other in imports
                if other is entry
                or (other.kind, other.account, other.to, entry.to)
                == (entry.kind, entry.account, "", "")
            ):
                continue
            to = entry.to or entry.subject
            renames = (
                Transform(entry.subject, number_wildcards(to)) if to != entry.subject else None
            )
            pair = kept(move, entry.subject, renames)
            if pair is not None and is_import("stream", *pair):
                new = replace(entry, subject=pair[0], to=pair[1])
                entries += [new] if new not in entries else []
    return tuple(entries)
