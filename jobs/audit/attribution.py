"""Which destinations made the messages of an archive, read back from their subjects.

A message says nothing about the mapping it went through, but its subject fits the shapes of few
destinations: mostly one. Spark finds for every message which shapes its subject fits and counts by
that, cluster and hour; what fits several destinations stays ambiguous.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import combinations
from operator import add, and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from jobs.audit.counts import cluster_names, hour_number, hour_of
from nats_transform import Mapping
from nats_transform.audit import End, Hours, Period, Scope, Tally, is_audited
from nats_transform.shape import Shape, shape_of, shape_of_filter
from nats_transform.subject import SEPARATOR, collide

_BITS = 62  # of a long that stay clear of its sign


@dataclass(frozen=True)
class Candidate:
    """An end of a mapping and the shape of its subjects.

    Attributes:
        period: index of the mapping version.
        mapping: whose end it is.
        end: the end.
        shape: the shape of the subjects that the end makes.
    """

    period: int
    mapping: Mapping
    end: End
    shape: Shape


@dataclass(frozen=True)
class Group:
    """Messages of one cluster and hour whose subjects fit the same shapes."""

    period: int
    cluster: str | None
    start: datetime
    fits: frozenset[str]
    count: int


@dataclass(frozen=True)
class Attribution:
    """Where the messages of an observed archive came from.

    Attributes:
        tallies: the counts of messages that mappings made.
        attributed: messages of one destination alone.
        ambiguous: messages of several, or of a destination and another publisher.
        other: messages that no mapping with weights made.
        mixed: the ends, as text, that ambiguous messages fit, with how many.
        hidden: ends whose messages the archive cannot contain.
        published: messages of the source archive by rule and hour; None without one.
        unlabelled: messages of mappings with clusters that do not say theirs, by source.
        alike: pairs of ends of one mapping and cluster that make the same subjects.
    """

    tallies: list[Tally]
    attributed: int
    ambiguous: int
    other: int
    mixed: dict[tuple[str, ...], int]
    hidden: frozenset[End]
    published: dict[Scope, Hours] | None
    unlabelled: dict[str, int]
    alike: list[tuple[End, End]]


def candidates(periods: Sequence[Period]) -> list[Candidate]:
    """Every end that makes subjects, of all mappings: those without weights can make them too."""
    found: dict[tuple[int, End], Candidate] = {}
    for index, period in enumerate(periods):
        for mapping in period.mappings.mappings:
            for _, share in mapping.ends():
                if share.destination is not None and share.transform is not None:
                    end = End(mapping.source, share.destination)
                    found[index, end] = Candidate(index, mapping, end, shape_of(share.transform))
    return list(found.values())


def attribute(
    messages: DataFrame,
    periods: Sequence[Period],
    *,
    source: DataFrame | None = None,
    captured: Sequence[str] = (),
    publishers: Sequence[str] = (),
) -> Attribution:
    """Where the messages of an archive came from.

    Args:
        messages: rows of `messages` that were stored after the mapping.
        periods: the mapping versions in force.
        source: rows of `messages` as they were published, of the same time.
        captured: filters of what the archive holds; empty if that is not known.
        publishers: filters of subjects that something else publishes to, too.
    """
    known = candidates(periods)
    others = [shape_of_filter(filter) for filter in publishers]
    shapes = [candidate.shape for candidate in known] + others
    groups = list(count_by_shape(messages, shapes, periods))
    hidden = _hidden(periods, known, groups, captured)

    direct: Counter[tuple[int, str | None, datetime, frozenset[str]]] = Counter()
    published: dict[Scope, dict[datetime, int]] = {}
    if source is not None:
        filters = [
            (index, mapping, shape_of_filter(mapping.source))
            for index, period in enumerate(periods)
            for mapping in period.mappings.mappings
        ]
        for group in count_by_shape(source, [*shapes, *(f for _, _, f in filters)], periods):
            applied = next(
                (m for i, m, f in filters if i == group.period and f.pattern in group.fits), None
            )
            if applied is not None:
                hours = published.setdefault((group.period, applied.source, group.cluster), {})
                hours[group.start] = hours.get(group.start, 0) + group.count
            else:  # published to the subject itself, where no mapping applies
                fits = group.fits & {shape.pattern for shape in shapes}
                direct[group.period, group.cluster, group.start, fits] += group.count

    other_patterns = {shape.pattern for shape in others}
    tallies: list[Tally] = []
    mixed: Counter[tuple[str, ...]] = Counter()
    sums: Counter[str] = Counter()
    unlabelled: Counter[str] = Counter()
    for group in groups:
        ends = _ends(known, group)
        if not any(is_audited(candidate.mapping) for candidate in ends):
            sums["other"] += group.count
            continue
        scoped = {candidate.end.source for candidate in ends if candidate.mapping.clusters}
        if group.cluster is None and scoped:
            # Which weights applied to it is not known.
            unlabelled.update(dict.fromkeys(scoped, group.count))
            sums["other"] += group.count
            continue
        names = tuple(candidate.end for candidate in ends)
        foreign = (End("", "another publisher"),)
        known_direct = direct[group.period, group.cluster, group.start, group.fits]
        unsure = group.count if group.fits & other_patterns else min(group.count, known_direct)
        for count, made_by in ((unsure, names + foreign), (group.count - unsure, names)):
            if not count:
                continue
            tallies.append(Tally(group.cluster, group.start, made_by, count, group.period))
            if len(made_by) > 1:
                mixed[tuple(sorted({_named(end) for end in made_by}))] += count
            sums["ambiguous" if len(made_by) > 1 else "attributed"] += count
    return Attribution(
        tallies,
        sums["attributed"],
        sums["ambiguous"],
        sums["other"],
        dict(mixed),
        hidden,
        dict(published) if source is not None else None,
        dict(unlabelled),
        _alike(known),
    )


def _alike(known: Sequence[Candidate]) -> list[tuple[End, End]]:
    return [
        (one.end, other.end)
        for one, other in combinations(known, 2)
        if (one.period, one.mapping) == (other.period, other.mapping)
        and one.shape.pattern == other.shape.pattern
        and any(
            {one.end.destination, other.end.destination}
            <= {share.destination for share in one.mapping.shares(cluster) if share.weight}
            for cluster in one.mapping.scopes
        )
    ]


def _named(end: End) -> str:
    return f"{end.source} -> {end.destination}" if end.source else end.destination


def _ends(known: Sequence[Candidate], group: Group) -> list[Candidate]:
    """The ends that can have made the messages of a group.

    In a cluster a mapping makes what is listed for it. Where nothing that is listed fits, what is
    listed for another cluster does: the message shows that the configuration is not in force.
    """
    fitting = [c for c in known if c.period == group.period and c.shape.pattern in group.fits]
    listed = [
        candidate
        for candidate in fitting
        if candidate.end.destination
        in {share.destination for share in candidate.mapping.shares(group.cluster)}
    ]
    return listed or fitting


def _hidden(
    periods: Sequence[Period],
    known: Sequence[Candidate],
    groups: Sequence[Group],
    captured: Sequence[str],
) -> frozenset[End]:
    """The ends that the archive cannot hold: what is lost, and what it does not capture.

    Where the captured subjects are not known, the part that keeps its subject counts as not
    captured if no message of it is there at all.
    """
    hidden = {End(mapping.source, "") for period in periods for mapping in period.mappings.mappings}
    seen = set().union(*(group.fits for group in groups)) if groups else set()
    for candidate in known:
        listed = {destination.subject for destination in candidate.mapping.destinations}
        if captured:
            is_hidden = not any(collide(candidate.shape.filter, filter) for filter in captured)
        else:
            is_hidden = (
                candidate.end.destination not in listed and candidate.shape.pattern not in seen
            )
        if is_hidden:
            hidden.add(candidate.end)
    return frozenset(hidden)


def count_by_shape(
    messages: DataFrame, shapes: Sequence[Shape], periods: Sequence[Period]
) -> Iterator[Group]:
    """How many messages of each period, cluster and hour fit the same shapes; one pass."""
    distinct = _distinct(shapes)
    rows = with_shapes(messages, distinct, periods)
    masks = [name for name in rows.columns if name.startswith("fits_")]
    # Spark is far quicker at grouping by numbers than by text.
    groups = rows.groupBy("period", "hour", F.xxhash64("cluster").alias("cluster"), *masks)
    counts = groups.count().collect()
    clusters = cluster_names(messages, {row["cluster"] for row in counts}, periods)
    for row in counts:
        fits = frozenset(
            shape.pattern
            for n, shape in enumerate(distinct)
            if row[f"fits_{n // _BITS}"] >> (n % _BITS) & 1
        )
        start = hour_of(row["hour"])
        since = periods[row["period"]].since
        if since is not None:
            start = max(start, since)
        yield Group(row["period"], clusters[row["cluster"]], start, fits, row["count"])


def _distinct(shapes: Sequence[Shape]) -> list[Shape]:
    """The shapes without repeats."""
    return list({shape.pattern: shape for shape in shapes}.values())


def with_shapes(
    messages: DataFrame, shapes: Sequence[Shape], periods: Sequence[Period]
) -> DataFrame:
    """The messages with `period`, `hour` and the bits of the shapes that their subject fits.

    Args:
        messages: rows of `messages`.
        shapes: without repeats.
        periods: the mapping versions in force.
    """
    subject = F.col("subject")
    if not all(map(_is_plain, shapes)):
        subject = F.decode(subject.cast("binary"), "ISO-8859-1")
    rows = messages.select(
        subject.alias("subject"),
        "cluster",
        hour_number(),
        _period(periods).alias("period"),
    )
    columns = []
    for first in range(0, max(1, len(shapes)), _BITS):
        column = _bits(shapes[first : first + _BITS])
        columns.append(column.cast("long").alias(f"fits_{first // _BITS}"))
    return rows.select("*", *columns)


def _bits(shapes: Sequence[Shape]) -> Column:
    """A number with the bit of every shape that a subject fits."""
    alone = [
        not any(collide(shape.filter, other.filter) for other in shapes if other is not shape)
        for shape in shapes
    ]
    shared = [n for n, is_alone in enumerate(alone) if not is_alone]
    bits = reduce(
        add,
        (F.when(_fits(shapes[n]), F.lit(1 << n)).otherwise(F.lit(0)) for n in shared),
        F.lit(0),
    )
    # What fits a shape that no other overlaps fits nothing else: the first that fits will do.
    for n, is_alone in enumerate(alone):
        if is_alone:
            bits = F.when(_fits(shapes[n]), F.lit(1 << n)).otherwise(bits)
    return bits


def _is_plain(shape: Shape) -> bool:
    """Whether a shape reads the same over UTF-8 text as over bytes: ASCII, and no counting."""
    counts = "{" in shape.pattern or r"\x" in shape.pattern
    return shape.pattern.isascii() and (shape.rest is not None or not counts)


def _fits(shape: Shape) -> Column:
    """Whether the subject, which has no empty token, fits a shape."""
    subject, prefix = F.col("subject"), shape.prefix
    if shape.rest == 0:
        return subject == F.lit(prefix)
    if shape.rest is None or not prefix:
        # The prefix is cheap to compare and keeps most rows from the expression.
        whole = subject.rlike(rf"(?s)\A{shape.pattern}\z")
        return subject.startswith(prefix) & whole if prefix else whole
    size = F.octet_length(subject) - F.lit(len(prefix.encode()))
    if shape.rest < 0:
        return subject.startswith(prefix) & (size > 0)
    # As many tokens from the end on as follow the prefix: they must be all that follows it.
    last = F.substring_index(subject, SEPARATOR, -shape.rest)
    return subject.startswith(prefix) & (F.octet_length(last) == size)


def _period(periods: Sequence[Period]) -> Column:
    """The index of the mapping version in force when a message was stored."""
    index = F.lit(0)
    for n, period in enumerate(periods):
        if period.since is not None:
            index = F.when(F.col("ts") >= F.lit(period.since), n).otherwise(index)
    return index


def with_keys(messages: DataFrame, periods: Sequence[Period], wildcard: int) -> DataFrame:
    """Mapping, key and end of every message that one destination alone can have made.

    The columns are `mapping_source`, `key` (null where the destination does not carry the wildcard
    of the source as it is) and `end`, a number.
    """
    known = [c for c in candidates(periods) if is_audited(c.mapping)]
    shapes = _distinct([candidate.shape for candidate in candidates(periods)])
    patterns = [shape.pattern for shape in shapes]
    rows = with_shapes(messages, shapes, periods)
    masks = [name for name in rows.columns if name.startswith("fits_")]
    tokens = F.split("subject", r"\.")
    source, key, end = (F.lit(None).cast(kind) for kind in ("string", "string", "int"))
    for number, candidate in enumerate(known):
        n = patterns.index(candidate.shape.pattern)
        alone = [
            F.col(name) == F.lit(1 << n % _BITS if place == n // _BITS else 0)
            for place, name in enumerate(masks)
        ]
        is_end = reduce(and_, alone) & (F.col("period") == candidate.period)
        place = candidate.shape.places.get(wildcard)
        source = F.when(is_end, F.lit(candidate.end.source)).otherwise(source)
        end = F.when(is_end, F.lit(number)).otherwise(end)
        if place is not None:
            key = F.when(is_end, F.try_element_at(tokens, F.lit(place + 1))).otherwise(key)
    return rows.select(source.alias("mapping_source"), key.alias("key"), end.alias("end"))
