"""The question of a dry run, and its census if it is given, read as the settings name them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs.dry_run.portable import PortableCensus, check_redaction, read_census
from jobs.settings.dry_run import DryRunSettings
from nats_transform.accounts.leaf_nodes import NO_LEAF_NODES
from nats_transform.accounts.sharing import NO_SHARES, Shares
from nats_transform.config import (
    load_all,
    load_consumers,
    load_streams,
    parse_server_config,
    shared_by,
)
from nats_transform.config.load import mappings_in
from nats_transform.config.permissions import User, users_of
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.symbolic import can_land_in, is_identity
from nats_transform.mappings.unseen import Unseen, unseen_of_archive
from nats_transform.migration import Question
from nats_transform.streams.features import SCHEDULE_HEADERS


def looked_at(
    settings: DryRunSettings, question: Question, clusters: Sequence[str], *, knows_headers: bool
) -> dict[str, Any]:
    """What a result of these settings looked at and what it did not, by its attributes."""
    is_shown = settings.nats is not None
    shown_by = settings.nats.where if settings.nats is not None else settings.streams
    unseen = unseen_of_archive(
        (question.current, question.candidate),
        stream=settings.stream if settings.is_live else question.archived[0],
        is_live=settings.is_live,
        has_streams=is_shown or settings.streams is not None,
        has_consumers=is_shown or settings.consumers is not None,
        has_permissions=settings.permissions is not None,
        clusters=(*settings.clusters, *clusters),
        unknown=question.network.unknown,
        knows_headers=knows_headers,
        headers=() if settings.is_counted else (*SCHEDULE_HEADERS, *settings.subject_headers),
        has_other_side=settings.leaf_node is not None or not question.has_leaf_nodes,
    )
    return {
        "streams": len(question.streams),
        "consumers": len(question.consumers),
        "streams_from": None if shown_by is None else str(shown_by),
        "not_looked_at": (*unseen, *_unseen(question, clusters)),
    }


def _unseen(question: Question, clusters: Sequence[str]) -> Iterator[Unseen]:
    """What subjects cannot show that are stored, and that come from some clusters."""
    accounts = (question.current, question.candidate)
    named = {name for account in accounts for m in account.mappings for name in m.clusters}
    for name in sorted(named & {*question.clusters} - {*clusters}):
        yield Unseen(f"messages of cluster {name}", "an archive that names clusters")
    renaming = [t for m in question.current.mappings for t in m.transforms if not is_identity(t)]
    for stream in question.streams:
        if stream.name in question.archived and (
            stream.ingress_transform is not None
            or any(can_land_in(t, subject) for t in renaming for subject in stream.captured)
        ):
            renamed = "that a mapping or a subject_transform renamed before it was stored"
            yield Unseen(
                f"how publishers wrote the subject of a message in {stream.name} {renamed}"
            )
    yield Unseen("mirrors and sources in other accounts and domains")
    if question.has_leaf_nodes or question.leaf_node is not None:
        yield Unseen("permissions of leaf node connections")


def read_question(settings: DryRunSettings) -> Question:
    """Read the files that the settings name; this is quick and needs no Spark.

    Raises:
        InvalidConfig: a file that cannot be read or is refused, with its line and column.
    """
    streams = load_streams(settings.streams) if settings.streams else ()
    users: tuple[User, ...] = ()
    # What accounts have today: in the configuration of the servers if it is given, else in the file
    # of the mappings in force, else in that of the candidate.
    order = (settings.permissions, settings.mapping, settings.candidate)
    files = {file: load_all(file) for file in order if file is not None}
    located = [one for some in files.values() for one in some if one.accounts]
    ours = [one for one in located if settings.account in one.accounts]
    shares: dict[str, Shares] = {}
    known_as: dict[str, tuple[str, ...]] = {}
    for one in located:
        known_as.setdefault(one.accounts[0], one.accounts)
        if one.shares != NO_SHARES:
            shares.setdefault(one.accounts[0], one.shares)
    if settings.permissions:
        account = settings.permissions_account or settings.account
        users = tuple(users_of(parse_server_config(settings.permissions), account))

    def mappings(file: Path) -> AccountMappings:
        return mappings_in(files[file], file, settings.account)

    return Question(
        candidate=mappings(settings.candidate),
        current=mappings(settings.mapping) if settings.mapping else AccountMappings(()),
        streams=streams,
        consumers=load_consumers(settings.consumers, streams) if settings.consumers else (),
        users=users,
        clusters=settings.clusters,
        shared=shared_by(settings.account, located),
        archived=(settings.stream,),
        names=tuple(dict.fromkeys([settings.account, *(n for one in ours for n in one.accounts)])),
        shares=shares,
        known_as=known_as,
        leaf_node=settings.other_side(),
        has_leaf_nodes=any(one.leaf_nodes != NO_LEAF_NODES for one in ours),
    )


def given_census(settings: DryRunSettings, question: Question) -> PortableCensus | None:
    """The census in a file or of a server; None if an archive is to be counted.

    Raises:
        InvalidConfig: the file cannot be read, or is of another stream; or the question looks into
            a token that the file has as a hash.
        ArchiveError: the server cannot be asked, or has no message.
    """
    if settings.census is not None:
        census = read_census(settings.census, settings.stream)
        check_redaction(census, question, settings.census)
        return census
    if not settings.is_live or settings.nats is None:
        return None
    from jobs.dry_run.live import live_census  # a client of NATS, which files do not need

    return live_census(settings.nats, settings.stream, question.streams)
