"""Finds what nats-server accepts in a configuration but people probably do not want.

`load` and the types raise errors for what the server refuses, so that never gets here. The checks
see only the configuration, so there can be faults that they do not find. The codes are in
`nats_transform.lint.findings`, and `nats-transform explain` explains them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import TypeAlias

from nats_transform.accounts.sharing import SharedStream, SharedSubject
from nats_transform.collector import no_search_for_cycles
from nats_transform.errors import Place, printable
from nats_transform.lint.captured import Captured, stream_faults, streams_overlap
from nats_transform.lint.findings import Finding
from nats_transform.lint.obstacles import obstacles_to
from nats_transform.lint.streams import check_stream
from nats_transform.lint.transforms import Subjects, few_keys, source_faults, transform_faults
from nats_transform.mappings.mapping import AccountMappings, Mapping
from nats_transform.mappings.subject import SEPARATOR, is_subset
from nats_transform.mappings.subject_index import Effort, SubjectIndex
from nats_transform.mappings.symbolic import can_land_in, filter_of_results, is_identity
from nats_transform.mappings.transform import Transform
from nats_transform.streams.consumer import Consumer
from nats_transform.streams.network import Network
from nats_transform.streams.stream import StreamConfig
from nats_transform.words import and_more

Config: TypeAlias = AccountMappings | StreamConfig

MAPPING = "mapping"
"""The place of a finding about an account mapping. One about a stream names the stream."""

# How many steps the searches for subjects that filters share may take: a few seconds. Mappings as
# people write them need about ten each.
_EFFORT, _EFFORT_A_MAPPING = 500_000, 20

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
        beyond: the mappings of each account beyond a leaf node connection, and their file.
    """

    path: str = ""
    account: str = ""
    places: MappingABC[str, Place] = field(default_factory=dict)
    expires: int | None = None
    shared: Sequence[SharedStream] = ()
    imports: Sequence[SharedSubject] = ()
    zeros: Collection[tuple[str, str]] = ()
    has_publishers: bool = True
    beyond: Sequence[tuple[AccountMappings, str]] = ()

    def locate(self, finding: Finding) -> Finding:
        """A finding of the configuration with its file, line and account."""
        place = finding.place
        if self.account and place == MAPPING:
            place = f"{MAPPING} of account {self.account}"
        where = self.places.get(finding.source)
        if where is None:
            return replace(finding, place=place, path=self.path)
        return replace(finding, place=place, path=where.path, line=where.line, column=where.column)


@no_search_for_cycles()
def check(
    config: Config | Iterable[Config],
    *,
    clusters: Collection[str] = (),
    subjects: Iterable[str] | Subjects = (),
    origins: Sequence[Origin] = (),
    consumers: Iterable[Consumer] = (),
    now: float | None = None,
) -> list[Finding]:
    """The findings about one configuration, or about several that belong together, worst first.

    Args:
        config: mappings of accounts and streams; several are also compared with each other.
        clusters: the names of all clusters, if known. The names in mappings are compared with them.
        subjects: literal subjects of real messages, to count the keys of `partition()`.
        origins: the origin of each configuration, in the same order.
        consumers: consumers of the streams, which filter for the sources that read them.
        now: seconds since 1970, to find JWTs that have expired; without it none is reported.
    """
    configs = [config] if isinstance(config, AccountMappings | StreamConfig) else list(config)
    streams = [config for config in configs if isinstance(config, StreamConfig)]
    with_mappings = [c for c in configs if isinstance(c, AccountMappings) and c.mappings]
    many = sum(len(account.mappings) for account in with_mappings)
    effort = Effort(_EFFORT + _EFFORT_A_MAPPING * many)
    # A stream belongs to one account. If there are several, it is not known to which.
    same_account = streams if len(with_mappings) == 1 else []
    captured = Captured((stream for stream in same_account if not stream.sealed), effort)
    network = Network(streams, consumers)
    moved_network = network if same_account else Network(())
    overlapping = {finding.place: finding for finding in streams_overlap(streams, effort)}
    seen = subjects if isinstance(subjects, Subjects) else Subjects(subjects)
    findings: list[Finding] = []
    for part, origin in zip(configs, origins or repeat(Origin()), strict=False):
        if isinstance(part, AccountMappings):
            lints = chain(
                _check_account(part, captured, clusters, seen, effort),
                _sharing(part, origin.shared, effort),
                # What keeps to the old subjects whatever else is changed.
                (
                    Finding(o.code, f"{o.about}: {o.message}", o.source, place=MAPPING)
                    for o in obstacles_to(part, moved_network, origin.imports, effort)
                ),
                _without_effect(part, origin, effort),
                *(
                    _mapped_twice(part, other, path, effort)
                    for other, path in origin.beyond
                    if other.mappings
                ),
            )
        else:
            lints = chain(
                check_stream(part, network, seen, effort),
                filter(None, [overlapping.get(f"stream {part.name}")]),
            )
        findings += [origin.locate(finding) for finding in lints]
        if now is not None and origin.expires is not None and origin.expires < now:
            findings.append(_expired(origin, origin.expires))
    if effort.is_spent:
        cause = "mappings and streams cover each other's subjects too often to compare all of them"
        findings.append(Finding("not-compared", cause, path=origins[0].path if origins else ""))
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
    captured: Captured,
    clusters: Collection[str],
    seen: Subjects,
    effort: Effort,
) -> Iterator[Finding]:
    index = SubjectIndex((mapping.source for mapping in account.mappings), effort)
    renaming = [_renaming(mapping) for mapping in account.mappings]
    for mapping, renames in zip(account.mappings, renaming, strict=True):
        yield from _findings(mapping, source_faults(mapping.source))
        for transform in mapping.transforms:
            faults = [*transform_faults(transform), *few_keys(transform, seen)]
            yield from _findings(mapping, faults, transform)
        yield from _findings(mapping, _weights(mapping))
        yield from _findings(mapping, _clusters(mapping, clusters))
        yield from _destinations(mapping, renames)
        yield from _chained(mapping, renames, index, renaming)
        for code, message, transform in stream_faults(mapping, renames, captured):
            yield _finding(code, message, mapping, transform)
    yield from _overlaps(index)


def _findings(
    mapping: Mapping, faults: Iterable[tuple[str, str]], transform: Transform | None = None
) -> Iterator[Finding]:
    for code, message in faults:
        yield _finding(code, message, mapping, transform)


def _finding(
    code: str, message: str, mapping: Mapping, transform: Transform | None = None
) -> Finding:
    destination = "" if transform is None else transform.destination
    return Finding(code, message, mapping.source, destination, MAPPING)


def _renaming(mapping: Mapping) -> list[Transform]:
    return [transform for transform in mapping.transforms if not is_identity(transform)]


def _weights(mapping: Mapping) -> Iterator[tuple[str, str]]:
    if [(d.weight, d.cluster) for d in mapping.destinations] == [(100, None)]:
        return
    has_general = any(not d.cluster for d in mapping.destinations)
    lists_source = mapping.lists_source
    for cluster, listed in mapping.by_cluster().items():
        rest = 100 - sum(d.weight for d in listed)
        scope = _scope(cluster, mapping)
        if not rest or not mapping.destinations:
            continue
        if any(d.subject == mapping.source for d in listed):
            yield "loss", f"{scope} lose{_s(cluster)} {rest} % of the messages"
        elif lists_source:
            yield "lost-elsewhere", f"{scope} lose{_s(cluster)} {rest} % of the messages"
        elif cluster or has_general:
            yield "remainder-kept", f"{rest} % of the messages in {scope} keep their subject"
    for destination in mapping.destinations:
        # A source that is listed with weight 0 is the way to lose the remainder on purpose.
        if not destination.weight and destination.subject != mapping.source:
            yield "zero-weight", f"no message goes to {printable(destination.subject)}"
    for cluster in mapping.scopes:
        chosen = [share for share in mapping.shares(cluster) if share.weight]
        if len(chosen) > 1 and any(d.transform and d.transform.partition for d in chosen):
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
            yield (
                "unknown-cluster",
                f"no cluster has the name {printable(cluster)} (known: {names})",
            )
    left_out = sorted(set(known) - set(mapping.clusters))
    if left_out and mapping.clusters and all(d.cluster for d in mapping.destinations):
        missing = ", ".join(map(printable, left_out))
        yield "cluster-without-entry", f"there is no entry for {missing}"


def _destinations(mapping: Mapping, renaming: Sequence[Transform]) -> Iterator[Finding]:
    for destination in mapping.destinations:
        if not destination.subject:
            yield _finding(
                "empty-destination",
                "nats-server crashes on the first message that gets this empty destination",
                mapping,
            )
    if not renaming and all(d.subject for d in mapping.destinations):
        if all(share.destination is not None for share in mapping.ends()):
            yield _finding("changes-nothing", "this mapping changes no subject", mapping)
        return
    if not mapping.source.startswith(("$", "_")):
        for subject in _SYSTEM_SUBJECTS:
            if mapping.filter.covers(subject.split(SEPARATOR)):
                yield _finding(
                    "system-subjects", f"this mapping also maps subjects such as {subject}", mapping
                )
                break
    for transform in renaming:
        if can_land_in(transform, mapping.source):
            yield _finding(
                "maps-into-itself", "the source covers the result too", mapping, transform
            )


def _chained(
    mapping: Mapping,
    renaming: Sequence[Transform],
    index: SubjectIndex,
    all_renaming: Sequence[Sequence[Transform]],
) -> Iterator[Finding]:
    for transform in renaming:
        covering = [
            source
            for number in index.colliding(filter_of_results(transform))
            if (source := index.filters[number]) != mapping.source
            and all_renaming[number]
            and can_land_in(transform, source)
        ]
        if covering:
            yield _finding(
                "not-chained",
                f"the mapping of {_first(covering)} covers the result, but nats-server does not "
                "apply it",
                mapping,
                transform,
            )


def _first(names: Sequence[str]) -> str:
    """The first of some subjects or the like, and how many others there are."""
    return printable(names[0]) + and_more(len(names) - 1)


def _overlaps(index: SubjectIndex) -> Iterator[Finding]:
    for number, source in enumerate(index.filters):
        wider: list[str] = []
        crossing: list[str] = []
        for place in index.colliding(source):
            other = index.filters[place]
            if place != number and is_subset(source, of=other):
                wider.append(other)
            elif place > number and not is_subset(other, of=source):
                crossing.append(other)
        for code, others, part in (("shadowed", wider, "all"), ("overlap", crossing, "some")):
            if others:
                yield Finding(
                    code,
                    f"the mapping of {_first(others)} covers {part} of its subjects, and which of "
                    "them nats-server tries first is random after each reload",
                    source,
                    place=MAPPING,
                )


def _sharing(
    account: AccountMappings, shared: Sequence[SharedStream], effort: Effort
) -> Iterator[Finding]:
    """The mappings that take subjects away from other accounts."""
    if not shared:
        return
    index = SubjectIndex((share.subject for share in shared), effort)
    for mapping in account.mappings:
        before = [shared[number] for number in index.colliding(mapping.source)]
        for transform in _renaming(mapping) if before else ():
            after = [shared[number] for number in index.colliding(filter_of_results(transform))]
            still = {share.importer for share in after if can_land_in(transform, share.subject)}
            if lost := [share for share in before if share.importer not in still]:
                yield _finding(
                    "escapes-export",
                    f"the {lost[0]}{and_more(len(lost) - 1)} covers the source, but doesn't "
                    "cover the result",
                    mapping,
                    transform,
                )


def _without_effect(account: AccountMappings, origin: Origin, effort: Effort) -> Iterator[Finding]:
    """The mappings that miss messages, or get all of them, by where they or their messages are."""
    imports = [each.local for each in origin.imports if each.kind == "stream"]
    imported = SubjectIndex(imports, effort)
    for mapping in account.mappings:
        if covered := imported.colliding(mapping.source):
            message = f"what the account imports under {printable(imports[covered[0]])} "
            message += f"(and {len(covered) - 1:,} more) " if len(covered) > 1 else ""
            yield _finding("import-not-mapped", message + "keeps its subjects", mapping)
        for destination in mapping.destinations:
            if (mapping.source, destination.subject) in origin.zeros:
                message = "all messages go here, although the file says 0"
                source, subject = mapping.source, destination.subject
                yield Finding("zero-is-all", message, source, subject, MAPPING)
        if not origin.has_publishers:
            message = "no user belongs to the account $G, so nobody publishes what it maps"
            yield _finding("nobody-publishes", message, mapping)


def _mapped_twice(
    account: AccountMappings, other: AccountMappings, path: str, effort: Effort
) -> Iterator[Finding]:
    """The mappings whose results are mapped again on the other side of a leaf node connection."""
    changing = [mapping for mapping in other.mappings if _renaming(mapping) or mapping.is_drawn()]
    index = SubjectIndex((mapping.source for mapping in changing), effort)
    for mapping in account.mappings:
        # A remainder keeps its subject, and is drawn again.
        ends = (share.transform for share in mapping.ends() if share.weight)
        for transform in dict.fromkeys(filter(None, ends)):
            again = [
                source
                for number in index.colliding(filter_of_results(transform))
                if can_land_in(transform, source := changing[number].source)
            ]
            if again and (_renaming(mapping) or mapping.is_drawn()):
                yield _finding(
                    "mapped-twice",
                    f"in {printable(path)}, beyond a leaf node connection, the mapping of "
                    f"{_first(again)} maps the result once more",
                    mapping,
                    transform,
                )
