"""Finds what nats-server accepts in a configuration but people probably do not want.

`load` and the types raise errors for what the server refuses, so that never gets here. The checks
see only the configuration, so there can be faults that they do not find. The codes are in
`nats_transform.findings`, and docs/check.md explains them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, combinations, repeat
from typing import TYPE_CHECKING, TypeAlias

from nats_transform import regrets
from nats_transform.check_transform import can_land_in, is_identity, source_faults, transform_faults
from nats_transform.errors import printable
from nats_transform.findings import CODES, Finding, Severity
from nats_transform.functions import Literal, Partition
from nats_transform.mapping import AccountMappings, Mapping
from nats_transform.moves import moves
from nats_transform.network import Network
from nats_transform.obstacles import obstacles
from nats_transform.sharing import Entry, SharedStream
from nats_transform.stream import StreamConfig
from nats_transform.subject import ANY_TAIL, SEPARATOR, collide, is_subset, matches
from nats_transform.subject_index import SubjectIndex
from nats_transform.transform import Transform

if TYPE_CHECKING:
    from nats_transform.config import Place

__all__ = ["CODES", "Finding", "Origin", "Severity", "check"]

Config: TypeAlias = AccountMappings | StreamConfig

MAPPING = "mapping"
"""The place of a finding about an account mapping. One about a stream names the stream."""

# A reply as clients write its subject, a JetStream request and an acknowledgment.
_SYSTEM_SUBJECTS = ("_INBOX.id.1", "$JS.API.INFO", "$JS.ACK.s.c.1.1.1.1.1")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a configuration came from.

    Attributes:
        path: the file.
        account: the account of the mappings, if the file names it.
        places: the place of each mapping in the file, by its source.
        expires: when the JWT of the account expires, in seconds since 1970.
        shared: the streams that the account exports, and that others import from it.
        imports: the imports of the account.
        zeros: sources and destinations with a weight of 0 that means 100.
        has_publishers: whether somebody can publish in the account.
    """

    path: str = ""
    account: str = ""
    places: MappingABC[str, Place] = field(default_factory=dict)
    expires: int | None = None
    shared: Sequence[SharedStream] = ()
    imports: Sequence[Entry] = ()
    zeros: Collection[tuple[str, str]] = ()
    has_publishers: bool = True

    def locate(self, finding: Finding) -> Finding:
        """A finding of the configuration with its file, line and account."""
        place = finding.place
        if self.account and place == MAPPING:
            place = f"{MAPPING} of account {self.account}"
        where = self.places.get(finding.source)
        if where is None:
            return replace(finding, place=place, path=self.path)
        return replace(finding, place=place, path=where.path, line=where.line, column=where.column)


def check(
    config: Config | Iterable[Config],
    *,
    clusters: Collection[str] = (),
    subjects: Iterable[str] = (),
    origins: Sequence[Origin] = (),
    now: float | None = None,
) -> list[Finding]:
    """The findings about one configuration, or about several that belong together, worst first.

    Args:
        config: mappings of accounts and streams; several are also compared with each other.
        clusters: the names of all clusters, if known. The names in mappings are compared with them.
        subjects: literal subjects of real messages, to count the keys of `partition()`.
        origins: the origin of each configuration, in the same order.
        now: seconds since 1970, to find JWTs that have expired; without it none is reported.
    """
    configs = [config] if isinstance(config, AccountMappings | StreamConfig) else list(config)
    streams = [one for one in configs if isinstance(one, StreamConfig)]
    with_mappings = [one for one in configs if isinstance(one, AccountMappings) and one.mappings]
    # A stream belongs to one account. If there are several, it is not known to which.
    around = streams if len(with_mappings) == 1 else []
    network = Network(streams)
    overlapping = list(_streams_overlap(streams))
    seen = [subject.split(SEPARATOR) for subject in subjects]
    findings: list[Finding] = []
    for one, origin in zip(configs, origins or repeat(Origin()), strict=False):
        if isinstance(one, AccountMappings):
            found = chain(
                _check_account(one, around, clusters, seen),
                _sharing(one, origin.shared),
                _moving(one, around, origin.imports),
                regrets.of_account(
                    one,
                    MAPPING,
                    imports=[each.local for each in origin.imports if each.kind == "stream"],
                    zeros=origin.zeros,
                    has_publishers=origin.has_publishers,
                ),
            )
        else:
            found = chain(
                _check_stream(one, network, seen),
                regrets.of_stream(one),
                (f for f in overlapping if f.place == f"stream {one.name}"),
            )
        findings += [origin.locate(finding) for finding in found]
        if now is not None and origin.expires is not None and origin.expires < now:
            findings.append(_expired(origin, origin.expires))
    return sorted(findings, key=lambda finding: finding.severity.rank)


def _expired(origin: Origin, expires: int) -> Finding:
    try:
        end = datetime.fromtimestamp(expires, UTC).strftime("on %Y-%m-%d at %H:%M:%S UTC")
    except (OverflowError, ValueError):  # years beyond 9999 never pass
        end = f"{expires} seconds after 1970"
    about = f"account {origin.account}" if origin.account else "account"
    return Finding("expired", f"the JWT expired {end}", place=about, path=origin.path)


def _check_account(
    account: AccountMappings,
    streams: Sequence[StreamConfig],
    clusters: Collection[str],
    seen: Sequence[Sequence[str]],
) -> Iterator[Finding]:
    index = SubjectIndex([mapping.source for mapping in account.mappings])
    for mapping in account.mappings:
        yield from _about(mapping, source_faults(mapping.source))
        for transform in mapping.transforms:
            faults = [*transform_faults(transform), *_few_keys(transform, seen)]
            yield from _about(mapping, faults, transform)
        yield from _about(mapping, _weights(mapping))
        yield from _about(mapping, _clusters(mapping, clusters))
        yield from _destinations(mapping)
        yield from _chained(mapping, index, account)
        yield from _streams_around(mapping, streams)
    yield from _overlaps(account, index)


def _about(
    mapping: Mapping, faults: Iterable[tuple[str, str]], transform: Transform | None = None
) -> Iterator[Finding]:
    for code, message in faults:
        yield _found(code, message, mapping, transform)


def _found(
    code: str, message: str, mapping: Mapping, transform: Transform | None = None
) -> Finding:
    destination = "" if transform is None else transform.destination
    return Finding(code, message, mapping.source, destination, MAPPING)


def _renaming(mapping: Mapping) -> list[Transform]:
    return [transform for transform in mapping.transforms if not is_identity(transform)]


def _weights(mapping: Mapping) -> Iterator[tuple[str, str]]:
    has_general = any(not d.cluster for d in mapping.destinations)
    for cluster in mapping.scopes:
        listed = [d for d in mapping.destinations if (d.cluster or None) == cluster]
        rest = 100 - sum(d.weight for d in listed)
        scope = _scope(cluster, mapping)
        if not rest or not mapping.destinations:
            continue
        if any(d.subject == mapping.source for d in listed):
            yield "loss", f"{scope} lose{_s(cluster)} {rest} % of the messages"
        elif mapping.lists_source:
            yield "lost-elsewhere", f"{scope} lose{_s(cluster)} {rest} % of the messages"
        elif cluster or has_general:
            yield (
                "remainder-kept",
                f"{rest} % of the messages in {scope} keep their subject",
            )
    for destination in mapping.destinations:
        # A source that is listed with weight 0 is the way to lose the remainder on purpose.
        if not destination.weight and destination.subject != mapping.source:
            yield "zero-weight", f"no message goes to {printable(destination.subject)}"
    for cluster in mapping.scopes:
        chosen = [share for share in mapping.shares(cluster) if share.weight]
        if len(chosen) > 1 and any(one.transform and one.transform.partition for one in chosen):
            yield (
                "weighted-partition",
                f"in {_scope(cluster, mapping)} the messages of one key go to {len(chosen)} "
                "destinations",
            )


def _s(cluster: str | None) -> str:
    """The ending of a verb whose subject is `_scope`."""
    return "s" if cluster else ""


def _scope(cluster: str | None, mapping: Mapping) -> str:
    if cluster:
        return f"cluster {printable(cluster)}"
    return "all other clusters" if mapping.clusters else "all clusters"


def _clusters(mapping: Mapping, known: Collection[str]) -> Iterator[tuple[str, str]]:
    if not known:
        return
    names = ", ".join(sorted(known))
    for cluster in mapping.clusters:
        if cluster not in known:
            yield "unknown-cluster", f"no cluster has the name {printable(cluster)}; known: {names}"
    if mapping.clusters and not any(not d.cluster for d in mapping.destinations):
        left_out = sorted(set(known) - set(mapping.clusters))
        if left_out:
            yield (
                "cluster-without-entry",
                f"there is no entry for {', '.join(map(printable, left_out))}",
            )


def _destinations(mapping: Mapping) -> Iterator[Finding]:
    for destination in mapping.destinations:
        if not destination.subject:
            yield _found(
                "empty-destination",
                "nats-server crashes on the first message that gets this empty destination",
                mapping,
            )
    if not _renaming(mapping) and all(d.subject for d in mapping.destinations):
        loses = any(share.destination is None for _, share in mapping.ends())
        if not loses:
            yield _found("changes-nothing", "this mapping changes no subject", mapping)
        return
    if not mapping.source.startswith(("$", "_")):
        for subject in _SYSTEM_SUBJECTS:
            if matches(subject, mapping.source):
                yield _found(
                    "system-subjects", f"this mapping also maps subjects such as {subject}", mapping
                )
                break
    for transform in _renaming(mapping):
        if can_land_in(transform, mapping.source):
            yield _found("maps-into-itself", "the source covers the result too", mapping, transform)


def _chained(mapping: Mapping, index: SubjectIndex, account: AccountMappings) -> Iterator[Finding]:
    for transform in _renaming(mapping):
        for number in index.colliding(transform.filter_of_results):
            other = account.mappings[number]
            if other is mapping or not _renaming(other):
                continue
            if can_land_in(transform, other.source):
                yield _found(
                    "not-chained",
                    f"the mapping of {printable(other.source)} covers the result, but "
                    "nats-server does not apply it",
                    mapping,
                    transform,
                )


def _overlaps(account: AccountMappings, index: SubjectIndex) -> Iterator[Finding]:
    for number, one in enumerate(account.mappings):
        for later in index.colliding(one.source):
            if later > number:
                yield _overlap(one, account.mappings[later])


def _overlap(one: Mapping, other: Mapping) -> Finding:
    narrow, wide = (other, one) if is_subset(other.source, one.source) else (one, other)
    is_covered = is_subset(narrow.source, wide.source)
    return Finding(
        "shadowed" if is_covered else "overlap",
        f"the mapping of {printable(wide.source)} covers {'all' if is_covered else 'some'} of its "
        "subjects; which of the two nats-server tries first is random after each reload",
        narrow.source,
        place=MAPPING,
    )


def _sharing(account: AccountMappings, shared: Sequence[SharedStream]) -> Iterator[Finding]:
    """The mappings that take subjects away from other accounts."""
    for mapping in account.mappings:
        for transform in _renaming(mapping):
            for one in shared:
                still = [other.subject for other in shared if other.importer == one.importer]
                if collide(mapping.source, one.subject) and not any(
                    can_land_in(transform, filter) for filter in still
                ):
                    yield _found(
                        "escapes-export",
                        f"the {one} covers the source, and does not cover the result",
                        mapping,
                        transform,
                    )


def _moving(
    account: AccountMappings, streams: Sequence[StreamConfig], imports: Sequence[Entry]
) -> Iterator[Finding]:
    """What keeps to the old subjects whatever else is changed."""
    for found in obstacles(moves(AccountMappings(()), account), streams, imports):
        yield Finding(found.code, f"{found.about}: {found.message}", found.source, place=MAPPING)


def _streams_overlap(streams: Sequence[StreamConfig]) -> Iterator[Finding]:
    """The streams that one account cannot have together (`subjectsOverlap` in the server)."""
    for one, other in combinations(streams, 2):
        both = [(a, b) for a in one.captured for b in other.captured if collide(a, b)]
        if both and one.name != other.name:
            (mine, theirs), *_ = both
            yield Finding(
                "streams-overlap",
                f"its subject {printable(mine)} and the subject {printable(theirs)} of stream "
                f"{other.name} cover the same subjects",
                mine,
                place=f"stream {one.name}",
            )


def _streams_around(mapping: Mapping, streams: Sequence[StreamConfig]) -> Iterator[Finding]:
    for transform in _renaming(mapping):
        takes = [s for s in streams if any(can_land_in(transform, f) for f in s.captured)]
        for stream in streams:
            before = any(collide(mapping.source, filter) for filter in stream.captured)
            if before and not takes:
                yield _found(
                    "escapes-stream",
                    f"stream {stream.name} captures the source, and no stream captures the result",
                    mapping,
                    transform,
                )
            if not before and stream in takes:
                yield _found(
                    "caught-by-stream",
                    f"stream {stream.name} captures the result, and does not capture the source",
                    mapping,
                    transform,
                )


def _few_keys(transform: Transform, seen: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    for token in transform.tokens:
        if not isinstance(token, Partition) or token.count < 2 or transform.filter.is_literal:
            continue
        keys = {token.key(tokens) for tokens in seen if transform.filter.covers(tokens)}
        if 0 < len(keys) < token.count:
            yield (
                "few-keys",
                f"the given subjects have {len(keys)} different keys for {token.count} partitions",
            )


def _check_stream(
    stream: StreamConfig, network: Network, seen: Sequence[Sequence[str]]
) -> Iterator[Finding]:
    for place, source, transform, reaching in _stream_transforms(stream):
        where = f"stream {stream.name}, {place}"
        destination = transform.destination if transform else ""
        faults = list(source_faults(source))
        if transform:
            faults += [*transform_faults(transform), *_few_keys(transform, seen)]
        if not any(collide(source, filter) for filter in reaching):
            faults.append(("unreachable", f"no subject under {_list(reaching)} matches"))
        for code, message in faults:
            yield Finding(code, message, source, destination, where)
    yield from _sources(stream)
    yield from _republish(stream, network)


def _stream_transforms(
    stream: StreamConfig,
) -> Iterator[tuple[str, str, Transform | None, list[str]]]:
    """Each filter of a stream: its place, source, transform, and what can reach it."""
    received = list(stream.captured)
    for upstream in stream.upstreams:
        place = f"{'mirror' if upstream is stream.mirror else 'source'} {upstream.name}"
        for rule in upstream.filters:
            yield place, rule.source, rule.transform, [] if upstream.takes_nothing else [ANY_TAIL]
            received.append(rule.transform.filter_of_results if rule.transform else rule.source)
        if not upstream.filters:
            received.append(ANY_TAIL)
    ingress = stream.ingress_transform
    if ingress:
        yield "subject_transform", ingress.source, ingress, received
    republish = stream.republish_transform
    if republish:
        yield "republish", republish.source, republish, _stored(received, ingress)


def _stored(received: Sequence[str], ingress: Transform | None) -> list[str]:
    """Filters that cover what a stream stores, given what it receives."""
    if ingress is None:
        return list(received)
    kept = [filter for filter in received if not is_subset(filter, ingress.source)]
    if any(collide(filter, ingress.source) for filter in received):
        kept.append(ingress.filter_of_results)
    return kept


def _sources(stream: StreamConfig) -> Iterator[Finding]:
    for one, other in combinations(stream.sources, 2):
        if one.name != other.name or one.api_prefix != other.api_prefix:
            continue
        filters = [rule.source for rule in one.filters] or [ANY_TAIL]
        others = [rule.source for rule in other.filters] or [ANY_TAIL]
        both = [(a, b) for a in filters for b in others if collide(a, b)]
        if both:
            yield Finding(
                "sourced-twice",
                f"the filters {printable(both[0][0])} and {printable(both[0][1])} cover the same "
                "subjects",
                both[0][1],
                place=f"stream {stream.name}, source {one.name}",
            )


def _republish(stream: StreamConfig, network: Network) -> Iterator[Finding]:
    transform = stream.republish_transform
    if transform is None:
        return

    def found(code: str, message: str) -> Finding:
        place = f"stream {stream.name}, republish"
        return Finding(code, message, transform.source, transform.destination, place)

    texts = [token.text for token in transform.tokens if isinstance(token, Literal)]
    if any(blank in text for text in [transform.source, *texts] for blank in "\t\n\f\r "):
        yield found(
            "blank", "nats-server does not refuse a blank here, but nobody can subscribe to it"
        )
    circle = network.circle(stream)
    if circle:
        yield found("republish-loop", f"the messages go round without end: {' -> '.join(circle)}")
    for other in network.republish_takers(stream):
        if other.name not in circle:
            yield found(
                "republish-caught", f"stream {other.name} captures the republished messages"
            )


def _list(filters: Sequence[str]) -> str:
    return ", ".join(map(printable, filters)) or "the filters that fill the stream"
