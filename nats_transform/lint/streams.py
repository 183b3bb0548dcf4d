"""Finds mistakes in the transforms, sources and republishing of one stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from nats_transform.errors import printable
from nats_transform.lint.findings import Finding
from nats_transform.lint.transforms import Subjects, few_keys, source_faults, transform_faults
from nats_transform.mappings.functions import Literal
from nats_transform.mappings.subject import ANY_TAIL, collide, has_blank, is_subset
from nats_transform.mappings.subject_index import Effort, SubjectIndex
from nats_transform.mappings.symbolic import filter_of_results
from nats_transform.mappings.transform import Transform
from nats_transform.streams.network import Network, received, taken
from nats_transform.streams.stream import StreamConfig
from nats_transform.words import and_more

_BUCKETS = (("KV_", "$KV."), ("OBJ_", "$O."))


def check_stream(
    stream: StreamConfig, network: Network, seen: Subjects, effort: Effort
) -> Iterator[Finding]:
    """The findings about one stream."""
    for place, source, transform, reaching in _stream_transforms(stream):
        where = f"stream {stream.name}, {place}"
        destination = transform.destination if transform else ""
        faults = list(source_faults(source))
        if transform:
            faults += [*transform_faults(transform), *few_keys(transform, seen)]
        if not any(collide(source, filter) for filter in reaching):
            filters = ", ".join(map(printable, reaching)) or "the filters that fill the stream"
            faults.append(("unreachable", f"no subject under {filters} matches"))
        for code, message in faults:
            yield Finding(code, message, source, destination, where)
    yield from _sources(stream, effort)
    yield from _republish(stream, network)
    names = list(dict.fromkeys(source.name for source in stream.sources))
    if len(names) > 1 and stream.duplicate_window:
        yield Finding(
            "same-ids",
            f"of two messages with one ID from {' and '.join(names[:2])} it stores one",
            place=f"stream {stream.name}, duplicate_window",
        )
    for kind, front in _BUCKETS:
        if stream.name.startswith(kind):
            yield from _bucket(stream, kind, front)


def _stream_transforms(
    stream: StreamConfig,
) -> Iterator[tuple[str, str, Transform | None, list[str]]]:
    """Each filter of a stream: its place, source, transform, and what can reach it."""
    for upstream in stream.upstreams:
        place = f"{'mirror' if upstream is stream.mirror else 'source'} {upstream.name}"
        reaching = [] if upstream.takes_nothing else [ANY_TAIL]
        for rule in upstream.filters:
            yield place, rule.source, rule.transform, reaching
    ingress = stream.ingress_transform
    if ingress:
        yield "subject_transform", ingress.source, ingress, received(stream)
    republish = stream.republish_transform
    if republish:
        yield "republish", republish.source, republish, _stored(received(stream), ingress)


def _stored(filters: list[str], ingress: Transform | None) -> list[str]:
    """Filters that cover what a stream stores, given those of what it receives."""
    if ingress is None:
        return filters
    kept = [filter for filter in filters if not is_subset(filter, ingress.source)]
    if any(collide(filter, ingress.source) for filter in filters):
        kept.append(filter_of_results(ingress))
    return kept


def _sources(stream: StreamConfig, effort: Effort) -> Iterator[Finding]:
    origins: dict[tuple[str, str | None], list[tuple[int, str]]] = defaultdict(list)
    for number, source in enumerate(stream.sources):
        if source.consumer is not None:
            continue  # which filters, and is not known here
        filters = [rule.source for rule in source.filters] or [ANY_TAIL]
        origins[source.name, source.api_prefix] += [(number, filter) for filter in filters]
    for (name, _), pairs in origins.items():
        index = SubjectIndex((filter for _, filter in pairs), effort)
        for number, mine in groupby(pairs, itemgetter(0)):
            overlaps: dict[int, tuple[str, str]] = {}
            for _, filter in mine:
                for other, theirs in map(pairs.__getitem__, index.colliding(filter)):
                    if other > number:
                        overlaps.setdefault(other, (filter, theirs))
            if overlaps:
                one, another = overlaps[min(overlaps)]
                yield Finding(
                    "sourced-twice",
                    f"the filters {printable(one)} and {printable(another)}"
                    f"{and_more(len(overlaps) - 1)} cover the same subjects",
                    another,
                    place=f"stream {stream.name}, source {name}",
                )


def _republish(stream: StreamConfig, network: Network) -> Iterator[Finding]:
    transform = stream.republish_transform
    if transform is None:
        return

    def finding(code: str, message: str) -> Finding:
        place = f"stream {stream.name}, republish"
        return Finding(code, message, transform.source, transform.destination, place)

    texts = [token.text for token in transform.tokens if isinstance(token, Literal)]
    if any(map(has_blank, [transform.source, *texts])):
        yield finding(
            "blank", "nats-server does not refuse a blank here, but nobody can subscribe to it"
        )
    if stream.retention == "interest":
        yield finding(
            "republish-interest",
            "a message that no consumer of the stream wants is neither stored nor republished",
        )
    circle = network.circle(stream)
    if circle:
        yield finding("republish-loop", f"the messages loop forever: {' -> '.join(circle)}")
    for other in network.republish_takers(stream):
        if other.name not in circle:
            yield finding(
                "republish-caught", f"stream {other.name} captures the republished messages"
            )


def _bucket(stream: StreamConfig, kind: str, front: str) -> Iterator[Finding]:
    """The sources of other buckets that bring keys to where no client of the bucket looks."""
    own = f"{front}{stream.name.removeprefix(kind)}.{ANY_TAIL}"
    for source in stream.sources:
        filters = [p for p in taken(source) if not (source.consumer and p == ANY_TAIL)]
        if source.name.startswith(kind) and not all(
            is_subset(pattern, of=own) for pattern in filters or (ANY_TAIL,)
        ):
            yield Finding(
                "bucket-source",
                f"clients look for keys under {printable(own)}, where this source puts none",
                place=f"stream {stream.name}, source {source.name}",
            )
