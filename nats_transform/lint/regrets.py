"""Finds configurations that nats-server accepts but that have cost people messages or days.

Each code has a link to a report in `findings`, and was seen on nats-server 2.15.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from nats_transform.errors import printable
from nats_transform.lint.findings import Finding
from nats_transform.mappings.mapping import AccountMappings
from nats_transform.mappings.subject import ANY_TAIL, is_subset
from nats_transform.mappings.subject_index import Effort, SubjectIndex
from nats_transform.streams.network import taken
from nats_transform.streams.stream import StreamConfig

_BUCKETS = (("KV_", "$KV."), ("OBJ_", "$O."))


def of_account(
    account: AccountMappings,
    place: str,
    effort: Effort,
    *,
    imports: Sequence[str] = (),
    zeros: Collection[tuple[str, str]] = (),
    has_publishers: bool = True,
) -> Iterator[Finding]:
    """The findings about the mappings of an account.

    Args:
        account: the mappings.
        place: the place of the findings.
        effort: the steps that the search may take.
        imports: the subjects under which streams of other accounts come in.
        zeros: sources and destinations that a file gives the weight 0 where it means 100.
        has_publishers: whether somebody can publish in the account.
    """
    imported = SubjectIndex(imports, effort)
    for mapping in account.mappings:
        if covered := imported.colliding(mapping.source):
            message = f"what the account imports under {printable(imports[covered[0]])} "
            message += f"(and {len(covered) - 1:,} more) " if len(covered) > 1 else ""
            message += "keeps its subjects"
            yield Finding("import-not-mapped", message, mapping.source, place=place)
        for destination in mapping.destinations:
            if (mapping.source, destination.subject) in zeros:
                message = "all messages go here, although the file says 0"
                yield Finding("zero-is-all", message, mapping.source, destination.subject, place)
        if not has_publishers:
            message = "no user belongs to the account $G, so nobody publishes what it maps"
            yield Finding("nobody-publishes", message, mapping.source, place=place)


def of_stream(stream: StreamConfig) -> Iterator[Finding]:
    """The findings about a stream."""
    names = dict.fromkeys(source.name for source in stream.sources)
    if len(names) > 1 and stream.duplicate_window:
        yield Finding(
            "same-ids",
            f"of two messages with one ID from {' and '.join(list(names)[:2])} it stores one",
            place=f"stream {stream.name}, duplicate_window",
        )
    for kind, front in _BUCKETS:
        if not stream.name.startswith(kind):
            continue
        own = f"{front}{stream.name.removeprefix(kind)}.{ANY_TAIL}"
        for source in stream.sources:
            brought = [p for p in taken(source) if not (source.consumer and p == ANY_TAIL)]
            if source.name.startswith(kind) and not all(
                is_subset(pattern, of=own) for pattern in brought or (ANY_TAIL,)
            ):
                yield Finding(
                    "bucket-source",
                    f"clients look for keys under {printable(own)}, where this source puts none",
                    place=f"stream {stream.name}, source {source.name}",
                )
    if stream.retention == "interest" and stream.republish is not None:
        yield Finding(
            "republish-interest",
            "a message that no consumer of the stream wants is neither stored nor republished",
            stream.republish_pair[0],
            stream.republish_pair[1],
            f"stream {stream.name}, republish",
        )
