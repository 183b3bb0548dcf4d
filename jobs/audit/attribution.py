"""Finds out from the subjects of an archive which destinations made its messages.

A message does not name the mapping that made it, but its subject fits the shapes of few
destinations, usually of one. Messages are counted by cluster, hour and the shapes that their
subjects fit. Messages that fit several destinations stay ambiguous.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as AnyMapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import combinations as pairs_of
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.audit.candidates import ByPattern, Candidate, candidates, unmapped
from jobs.audit.counts import start_of
from jobs.audit.draws import Measure, Measuring
from jobs.audit.fits import Fits
from jobs.audit.repeats import COLUMNS, Repeats, repeats_of
from jobs.audit.result import AuditError, KeyStickiness
from jobs.audit.rows import Parts, Rows
from jobs.audit.spread import Keyed, sticky
from nats_transform.audit import Doubled, End, Hours, Period, Scope, Tally, is_audited
from nats_transform.audit.chance import Draws
from nats_transform.kernel.counting import Coded, combinations, hours, texts
from nats_transform.mappings.shape import Shape, shape_of_filter
from nats_transform.mappings.subject import collide, is_subset


@dataclass(frozen=True)
class Group:
    """Messages of one cluster and hour whose subjects fit the same shapes.

    Those that repeat an earlier message, by their id, are a group of their own.
    """

    period: int
    cluster: str | None
    start: datetime
    fits: frozenset[str]
    is_repeat: bool
    count: int


@dataclass(frozen=True)
class Attribution:
    """Where the messages of an observed archive came from.

    Attributes:
        tallies: the counts of messages that mappings made.
        fates: how many messages fit one destination only (`attributed`); fit several, or one and
            another publisher (`ambiguous`); are stored under the source of a mapping, which no
            destination of it keeps (`unmapped`); repeat the id of an earlier one of a mapping with
            weights (`doubled`); or were made by no mapping with weights (`other`).
        mixed: the number of ambiguous messages for each set of ends, as text.
        hidden: the ends whose messages the archive cannot contain.
        published: the messages of the source archive by rule and hour, repeats left out; None
            without a source.
        doubled: the repeats of each mapping and cluster; None if no message has an id.
        ids_are_names: whether ids can tell repeats from other messages.
        unlabelled: the number of messages without a cluster name for each source of a mapping with
            cluster scopes.
        draws: the order and the keys of the messages of each mapping with weights.
        alike: pairs of ends of one mapping and cluster that make the same subjects.
    """

    tallies: list[Tally]
    fates: dict[str, int]
    mixed: dict[tuple[str, ...], int]
    hidden: frozenset[End]
    published: dict[Scope, Hours] | None
    doubled: dict[Scope, Doubled] | None
    ids_are_names: bool
    unlabelled: dict[str, int]
    alike: list[tuple[End, End]]
    draws: dict[Scope, Draws]


def attribute(
    messages: Rows,
    periods: Sequence[Period],
    *,
    source: Rows | None,
    captured: Sequence[str],
    publishers: Sequence[str],
) -> Attribution:
    """Where the messages of an archive came from.

    Args:
        messages: the messages that were stored after the mapping.
        source: the messages of the same time as they were published.
        captured: filters of the subjects that the archive holds; empty if they are not known.
        publishers: filters of subjects that something else publishes to, too.
    """
    known = candidates(periods)
    kept = unmapped(periods, known)
    others = [shape_of_filter(filter) for filter in publishers]
    shapes = [candidate.shape for candidate in (*known, *kept)] + others
    repeats = repeats_of(messages)
    by_pattern, kept_by_pattern = ByPattern(known), ByPattern(kept)
    measure, keys = _measure(known, by_pattern)
    groups, draws = count_by_shape(messages, shapes, periods, repeats, measure, keys)
    hidden = _hidden(periods, known, groups, captured)
    made = {(candidate.period, candidate.end) for candidate in known}
    if captured:
        filters = defaultdict[tuple[int, str], list[str]](list)
        for candidate in known:
            filters[candidate.period, candidate.end.source].append(candidate.shape.filter)
        apart = [candidate for candidate in kept if (candidate.period, candidate.end) not in made]
        for candidate in apart:
            own = filters[candidate.period, candidate.end.source]
            besides = [f for f in captured if not any(is_subset(f, filter) for filter in own)]
            if not _is_captured(candidate, besides):
                hidden.add(candidate.end)

    direct: Counter[tuple[int, str | None, datetime, frozenset[str]]] = Counter()
    published: dict[Scope, Counter[datetime]] = defaultdict(Counter)
    retried: Counter[Scope] | None = None
    if source is not None:
        applying = unmapped(periods, ())
        of_source, patterns = ByPattern(applying), {shape.pattern for shape in shapes}
        wanted = [*shapes, *(candidate.shape for candidate in applying)]
        retried = Counter()
        for group in count_by_shape(source, wanted, periods, repeats_of(source))[0]:
            applied = next((c.mapping for c in of_source.of(group.period, group.fits)), None)
            if applied is not None and group.is_repeat:
                retried[group.period, applied.source, group.cluster] += group.count
            elif applied is not None and not group.cluster and applied.clusters:
                continue  # as below: which weights applied to it is not known
            elif applied is not None:
                scope = (group.period, applied.source, group.cluster)
                published[scope][group.start] += group.count
            elif not group.is_repeat:  # published to the subject itself, where no mapping applies
                fits = group.fits & patterns
                direct[group.period, group.cluster, group.start, fits] += group.count

    other_patterns = {shape.pattern for shape in others}
    tallies: list[Tally] = []
    mixed: Counter[tuple[str, ...]] = Counter()
    fates = dict.fromkeys(("attributed", "ambiguous", "unmapped", "doubled", "other"), 0)
    unlabelled: Counter[str] = Counter()
    again: Counter[Scope] = Counter()
    for group in groups:
        ends = _ends(by_pattern, kept_by_pattern, group)
        if not any(is_audited(candidate.mapping) for candidate in ends):
            fates["other"] += group.count
            continue
        scoped = {candidate.end.source for candidate in ends if candidate.mapping.clusters}
        if group.cluster is None and scoped:
            # Which weights applied to it is not known.
            unlabelled.update(dict.fromkeys(scoped, group.count))
            fates["other"] += group.count
            continue
        if group.is_repeat:
            sources = {candidate.end.source for candidate in ends}
            again.update({(group.period, of, group.cluster): group.count for of in sources})
            fates["doubled"] += group.count
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
            is_made = (group.period, ends[0].end) in made
            fate = "attributed" if is_made else "unmapped"
            fates["ambiguous" if len(made_by) > 1 else fate] += count
    doubled = None
    if repeats is not None:
        doubled = {
            of: Doubled(count, None if retried is None else retried[of])
            for of, count in again.items()
        }
    return Attribution(
        tallies,
        fates,
        dict(mixed),
        frozenset(hidden),
        dict(published) if source is not None else None,
        doubled,
        repeats is None or repeats.are_names,
        dict(unlabelled),
        _alike(known),
        draws,
    )


def _measure(
    known: Sequence[Candidate], by_pattern: ByPattern
) -> tuple[Measure, dict[str, tuple[int, ...]]]:
    """Which ends make which subjects, and the tokens that are the key in subjects of a pattern.

    The key is made of the wildcards that all ends of a mapping carry as they are.
    """
    ends: dict[tuple[int, str], tuple[End, ...]] = {}
    carried: dict[tuple[int, str], set[int]] = {}
    for candidate in known:
        of = candidate.period, candidate.end.source
        if is_audited(candidate.mapping):
            ends[of] = (*ends.get(of, ()), candidate.end)
            places = candidate.shape.places
            carried[of] = carried.get(of, set(places)) & places.keys()
    keys: dict[str, tuple[int, ...]] = {}
    keyed = {of for of, wildcards in carried.items() if wildcards}
    for candidate in known:
        of = candidate.period, candidate.end.source
        if of in keyed:
            key = tuple(candidate.shape.places[number] for number in sorted(carried[of]))
            if keys.setdefault(candidate.shape.pattern, key) != key:
                keyed.discard(of)  # another mapping takes other tokens of the same subjects
    return Measure(ends, by_pattern, keyed), keys


def in_clusters(
    published: AnyMapping[Scope, Hours], tallies: Sequence[Tally]
) -> dict[Scope, Hours]:
    """What was published to each mapping, in the clusters that the archive has.

    If no message of a mapping names a cluster, all that was published to it is taken together.

    Raises:
        AuditError: the archive names clusters, and what was published does not.
    """
    there: dict[tuple[int, str], set[str | None]] = {}
    for tally in tallies:
        for end in tally.ends:
            there.setdefault((tally.period, end.source), set()).add(tally.cluster)
    sent: dict[tuple[int, str], set[str | None]] = {}
    for index, source, cluster in published:
        sent.setdefault((index, source), set()).add(cluster)
    result: dict[Scope, Hours] = {}
    for (index, source, cluster), count in published.items():
        stored = there.get((index, source), {cluster})
        if sent[index, source] == {None} and stored != {None}:
            raise AuditError(
                "source-names-no-cluster",
                source=source,
                stored=", ".join(sorted(c for c in stored if c)),
            )
        scope = (index, source, None if stored == {None} else cluster)
        result[scope] = _sum(result[scope], count) if scope in result else count
    return result


def _sum(first: Hours, second: Hours) -> Hours:
    if isinstance(first, int) or isinstance(second, int):
        assert isinstance(first, int) and isinstance(second, int)  # noqa: S101, PT018 - of one kind
        return first + second
    return Counter(first) + Counter(second)


def _alike(known: Sequence[Candidate]) -> list[tuple[End, End]]:
    by_pattern = defaultdict[tuple[int, str, str], list[Candidate]](list)
    for candidate in known:
        by_pattern[candidate.period, candidate.end.source, candidate.shape.pattern].append(
            candidate
        )
    return [
        (first.end, second.end)
        for same in by_pattern.values()
        for first, second in pairs_of(same, 2)
        if any(
            {first.end.destination, second.end.destination}
            <= {share.destination for share in first.mapping.shares(cluster) if share.weight}
            for cluster in first.mapping.scopes
        )
    ]


def _named(end: End) -> str:
    return f"{end.source} -> {end.destination}" if end.source else end.destination


def _ends(known: ByPattern, kept: ByPattern, group: Group) -> list[Candidate]:
    """The ends that can have made the messages of a group.

    A message under the source of the mapping that applies to it shows that the configuration is not
    in force, unless an end of the mapping can have made it.
    """
    ends = known.in_cluster(group.period, group.fits, group.cluster)
    applied = next(iter(kept.of(group.period, group.fits)), None)
    if applied and all(candidate.mapping is not applied.mapping for candidate in ends):
        ends.append(applied)
    return ends


def _is_captured(candidate: Candidate, captured: Sequence[str]) -> bool:
    """Whether some subject of an end is among the captured ones."""
    return any(collide(candidate.shape.filter, filter) for filter in captured)


def _hidden(
    periods: Sequence[Period],
    known: Sequence[Candidate],
    groups: Sequence[Group],
    captured: Sequence[str],
) -> set[End]:
    """The ends that the archive cannot hold: what is lost, and what it does not capture.

    Where the captured subjects are not known, the part that keeps its subject counts as not
    captured if no message of it is there at all.
    """
    hidden = {End(mapping.source, "") for period in periods for mapping in period.mappings.mappings}
    seen = set().union(*(group.fits for group in groups)) if groups else set()
    for candidate in known:
        listed = {destination.subject for destination in candidate.mapping.destinations}
        if captured:
            is_hidden = not _is_captured(candidate, captured)
        else:
            is_hidden = (
                candidate.end.destination not in listed and candidate.shape.pattern not in seen
            )
        if is_hidden:
            hidden.add(candidate.end)
    return hidden


def count_by_shape(
    messages: Rows,
    shapes: Sequence[Shape],
    periods: Sequence[Period],
    repeats: Repeats | None,
    measure: Measure | None = None,
    keys: AnyMapping[str, tuple[int, ...]] | None = None,
) -> tuple[list[Group], dict[Scope, Draws]]:
    """How many messages of each period, cluster and hour fit the same shapes; and their draws."""
    columns = ("subject", "cluster", "ts", *(COLUMNS if repeats else ()))
    work = partial(_count_by_shape, Fits(shapes, keys), repeats, measure)
    counts, draws = Counter[Any](), dict[Scope, Draws]()
    for counted, drawn in messages.split(periods).each(work, columns):
        counts += counted
        for scope, some in drawn.items():
            draws[scope] = draws[scope] + some if scope in draws else some
    return [
        Group(index, cluster, start_of(hour, periods[index]), fits, is_repeat, number)
        for (index, fits, is_repeat, cluster, hour), number in counts.items()
    ], draws


def _count_by_shape(
    shapes: Fits, repeats: Repeats | None, measure: Measure | None, parts: Parts
) -> tuple[Counter[Any], dict[Scope, Draws]]:
    """The messages of a task by mapping version, shapes, cluster and hour."""
    counts: Counter[Any] = Counter()
    measuring = None if measure is None else Measuring(measure)
    for index, rows in parts:
        columns = [texts(rows.column("cluster")), hours(rows.column("ts"))]
        none = Coded(np.broadcast_to(np.int64(0), len(rows)), [False])
        columns.append(repeats.of(rows) if repeats else none)
        layers, hashes = shapes.with_keys(rows.column("subject"))
        for (cluster, hour, is_repeat, *patterns), count in combinations(*columns, *layers):
            counts[index, frozenset(patterns) - {None}, is_repeat, cluster, hour] += count
        if measuring is not None:
            measuring.add(index, columns[0], layers, hashes, columns[2])
    return counts, {} if measuring is None else measuring.draws


def observed_keys(
    messages: Rows, periods: Sequence[Period], wildcard: int
) -> Iterator[KeyStickiness]:
    """How many keys of each mapping with weights saw more than one end.

    Counted are messages that one destination alone can have made, where the destination carries
    the wildcard of the source as it is.

    Args:
        wildcard: number of the source's wildcard that is the key.
    """
    known = candidates(periods)
    keyed: dict[tuple[int, str], tuple[Candidate, int | None]] = {}
    for candidate in (c for c in known if is_audited(c.mapping)):
        of = candidate.period, candidate.shape.pattern
        before = keyed.get(of, (None, None))[1]
        keyed[of] = candidate, candidate.shape.places.get(wildcard, before)
    ends = {
        of: Keyed(candidate.end.source, number, place + 1)
        for number, (of, (candidate, place)) in enumerate(keyed.items())
        if place is not None
    }
    read = partial(_keyed_rows, Fits([candidate.shape for candidate in known]), ends)
    return sticky(messages.split(periods), ("subject",), read, wildcard)


def _keyed_rows(
    shapes: Fits, ends: AnyMapping[tuple[int, str], Keyed], index: int, rows: pa.RecordBatch
) -> Iterator[tuple[Keyed, pa.Array]]:
    """The subjects of each end that has a key: those that fit its shape alone."""
    layers = list(shapes.of(rows.column("subject")))
    fitting = np.sum([layer.numbers != len(layer.values) - 1 for layer in layers], axis=0)
    for layer in layers:
        for number, pattern in enumerate(layer.values[:-1]):
            end = ends.get((index, pattern))
            if end is not None:
                alone = (layer.numbers == number) & (fitting == 1)
                yield end, rows.column("subject").filter(pa.array(alone))
