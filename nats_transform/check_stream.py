"""Finds mistakes in the transforms, sources and republishing of one stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from nats_transform.check_transform import few_keys, source_faults, transform_faults
from nats_transform.errors import printable
from nats_transform.findings import Finding
from nats_transform.functions import Literal
from nats_transform.network import Network
from nats_transform.stream import StreamConfig
from nats_transform.subject import ANY_TAIL, collide, is_subset
from nats_transform.symbolic import filter_of_results
from nats_transform.transform import Transform


def check_stream(
    stream: StreamConfig, network: Network, seen: Sequence[Sequence[str]]
) -> Iterator[Finding]:
    """The findings about one stream.

    Args:
        stream: the stream.
        network: all streams of the account.
        seen: subjects of real messages, as tokens.
    """
    for place, source, transform, reaching in _stream_transforms(stream):
        where = f"stream {stream.name}, {place}"
        destination = transform.destination if transform else ""
        faults = list(source_faults(source))
        if transform:
            faults += [*transform_faults(transform), *few_keys(transform, seen)]
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
            received.append(filter_of_results(rule.transform) if rule.transform else rule.source)
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
        kept.append(filter_of_results(ingress))
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
