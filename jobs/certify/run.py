"""The job certify: a private nats-server gets archived subjects, and must do as we predict."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import resources
from importlib.metadata import version

from jobs.certify.compare import Evidence, Messages, Prediction
from jobs.certify.result import Certificate, CertifiedStream
from jobs.certify.server import block_of, subject_path, try_messages, try_users
from jobs.dry_run.subjects import archived_days
from jobs.errors import JobError
from jobs.files.selection import Selection
from jobs.jetstream import wire
from jobs.jetstream.tracing import belongs_to_server
from jobs.progress import step
from jobs.settings.certify import CertifySettings
from jobs.warehouse import specs, tables
from nats_transform.config import (
    load_mappings,
    load_streams,
    mapping_version,
    parse_server_config,
)
from nats_transform.config.edit import Unsafe
from nats_transform.config.files import Files
from nats_transform.config.jwt import find_token
from nats_transform.config.permissions import User, users_of
from nats_transform.config.verbatim import NO_CONFIG, mappings_text
from nats_transform.errors import InvalidConfig, printable
from nats_transform.kernel.build import source_digest
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import decode
from nats_transform.mappings.unseen import Unseen
from nats_transform.streams.network import Network
from nats_transform.streams.stream import StreamConfig

_ILLEGAL = "no legal subject"
_RESERVED = "a subject of nats-server itself"


def certify(settings: CertifySettings) -> Certificate:
    """Publish archived subjects to a private nats-server, and compare it with our prediction.

    Raises:
        InvalidConfig: a file that cannot be read or is refused.
        ArchiveError: the stream has no messages on these days.
        JobError: the server does not start or ends, or would never come to rest.
    """
    mappings = load_mappings(settings.candidate, settings.account)
    block, why = _block(settings, mappings)
    given = load_streams(settings.streams) if settings.streams else ()
    streams, left_out = _streams(given)
    users = _users(settings)
    _refuse_crashes(mappings)
    archive, days = archived_days(settings)
    columns = ("seq", "subject", "cluster")
    selection = Selection(archive, settings.stream, days, None, columns, specs.MESSAGES)
    parts, skipped = _sample(selection, settings, mappings)
    evidence, fates, predicted, delivered = Evidence(), Counter[str](), 0, 0
    servers = set()
    tried = sum(len(part.seqs) for part in parts)
    with step("asking a private nats-server", tried):
        for part in parts:
            prediction = Prediction(part, mappings, streams, settings.seed)
            seen = try_messages(part.subjects, block, streams, part.cluster, prediction.stored)
            prediction.compare(seen.delivered, seen.stored, evidence)
            if users:
                numbers = prediction.some_subjects()
                some = [part.subjects[number] for number in numbers]
                with step("asking it as users", 3 * len(some) * len(users)):
                    tried_by = try_users(some, block, users, part.cluster)
                for user, attempt in zip(users, tried_by, strict=True):
                    prediction.compare_user(numbers, user, attempt, evidence)
            servers.add(seen.version)
            fates.update(prediction.fates)
            predicted += sum(subject is not None for subject in prediction.subjects)
            delivered += sum(subject is not None for subject in seen.delivered)
    return Certificate(
        stream=settings.stream,
        days=tuple(days),
        candidate=settings.candidate.name,
        mapping_version=mapping_version(mappings),
        reads_file=not why,
        streams_digest=_digest(
            stream.model_dump_json(by_alias=True).encode() for stream in streams
        ),
        version=version("nats-transform"),
        kernel=source_digest(resources.files("nats_transform.kernel")),
        nats_server=", ".join(sorted(servers)),
        input_snapshot=tables.snapshot_id(archive),
        run_id=settings.run_id or str(uuid.uuid4()),
        seed=settings.seed,
        messages=selection.messages,
        tried=tried,
        subjects=len({subject for part in parts for subject in part.subjects}),
        tried_digest=_digest(
            b"%d %b %b" % (seq, subject, (part.cluster or "").encode("utf-8", "surrogateescape"))
            for part in parts
            for seq, subject in zip(part.seqs, part.subjects, strict=True)
        ),
        skipped=dict(skipped),
        clusters=tuple(part.cluster for part in parts),
        fates=dict(sorted(fates.items())),
        predicted=predicted,
        delivered=delivered,
        streams=tuple(CertifiedStream(name, *counts) for name, counts in evidence.streams.items()),
        draws=tuple(evidence.drawn),
        users=tuple(evidence.users),
        divergences=tuple(evidence.divergences()),
        not_looked_at=(
            Unseen("limits of streams, and what headers and payloads do"),
            Unseen("imports and leaf nodes"),
            *(
                (Unseen(f"how a server reads the file, as it got what we read ({why})"),)
                if why
                else ()
            ),
            *(() if users else (Unseen("permissions of users", "--permissions FILE"),)),
            *(
                Unseen(f"stream {name}, which takes from streams elsewhere or has random()")
                for name in left_out
            ),
            *(() if given else (Unseen("streams", "--streams DIR"),)),
        ),
    )


def _block(settings: CertifySettings, mappings: AccountMappings) -> tuple[str, str]:
    """The mappings of the private server, and why they are not the text of the file itself."""
    try:
        text = Files().text(settings.candidate)
        if settings.candidate.suffix in NO_CONFIG or find_token(text) is not None:
            raise Unsafe("not-a-server-configuration")
        return mappings_text(text, str(settings.candidate), settings.account), ""
    except (Unsafe, InvalidConfig) as error:
        return block_of(mappings), str(error)


def _streams(given: Iterable[StreamConfig]) -> tuple[list[StreamConfig], list[str]]:
    """The streams of the private server, and the names of those that it cannot have.

    Raises:
        JobError: messages would go round in them for ever.
    """
    left = list(given)
    out: list[str] = []
    while True:
        names = frozenset(stream.name for stream in left)
        tried = [(stream, subject_path(stream, names)) for stream in left]
        without = [stream.name for stream, path in tried if path is None]
        if not without:
            break
        out += without
        left = [stream for stream in left if stream.name not in without]
    streams = [path for _, path in tried if path is not None]
    network = Network(streams)
    for stream in streams:
        if stream.republish is not None and (circle := network.circle(stream)):
            raise JobError("republish-circle", streams=" and ".join(dict.fromkeys(circle)))
    return streams, sorted(out)


def _users(settings: CertifySettings) -> list[User]:
    if settings.permissions is None:
        return []
    account = settings.permissions_account or settings.account
    return users_of(parse_server_config(settings.permissions), account)


def _refuse_crashes(mappings: AccountMappings) -> None:
    for mapping in mappings.mappings:
        if any(not destination.subject for destination in mapping.destinations):
            raise JobError("destination-empty", source=printable(mapping.source))


def _sample(
    selection: Selection, settings: CertifySettings, mappings: AccountMappings
) -> tuple[list[Messages], Counter[str]]:
    """Messages at even distances, by cluster; and how many of them cannot be published.

    Only clusters that the mappings name matter: a server of any other does as one without.
    """
    clusters = {name for mapping in mappings.mappings for name in mapping.clusters}
    parts: dict[str | None, Messages] = {}
    skipped: Counter[str] = Counter()
    total = selection.messages
    count = min(total, settings.sample)
    is_reserved = _reaches_services(mappings)
    place = taken = 0
    for batch in selection.in_order():
        # Of n messages, the last one up to each of `count` even distances.
        wanted = range(place, place + len(batch))
        rows = [n - place for n in wanted if (n + 1) * count // total > n * count // total]
        place += len(batch)
        chosen = batch.take(rows)
        taken += len(rows)
        for seq, subject, cluster in zip(
            chosen.column("seq").to_pylist(),
            chosen.column("subject").view("binary").to_pylist(),
            chosen.column("cluster").view("binary").to_pylist(),
            strict=True,
        ):
            if subject is None or not wire.is_literal(subject):
                skipped[_ILLEGAL] += 1
                continue
            name = decode(cluster) if cluster else None
            name = name if name in clusters else None
            if is_reserved(decode(subject), name):
                skipped[_RESERVED] += 1
                continue
            part = parts.setdefault(name, Messages(settings.stream, name))
            part.seqs.append(seq)
            part.subjects.append(subject)
    return list(parts.values()), skipped


def _reaches_services(mappings: AccountMappings) -> Callable[[str, str | None], bool]:
    """Whether a message can reach a service of nats-server itself, which may do anything."""
    # Few mappings can do it; the others need no look at every subject.
    starts = ("$", "_", "{{", "*")
    is_possible = any(
        destination.subject.startswith(starts)
        for mapping in mappings.mappings
        for destination in mapping.destinations
    )

    @lru_cache(2**16)
    def reaches(subject: str, cluster: str | None) -> bool:
        if belongs_to_server(subject):
            return True
        outcomes = mappings.outcomes(subject, cluster) if is_possible else ()
        return any(belongs_to_server(outcome.subject or "") for outcome, _ in outcomes)

    return reaches


def _digest(lines: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line + b"\n")
    return digest.hexdigest()
