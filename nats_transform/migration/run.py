"""A dry run: what a candidate mapping would do to the subjects of an archive.

The kernel writes tables of what becomes of every subject, today and after the switch. The analyses
are queries over these tables. Weights count as exact shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nats_transform.errors import shown
from nats_transform.lint.findings import Severity
from nats_transform.mappings.symbolic import reversed_mappings
from nats_transform.migration.analyses.access import Access
from nats_transform.migration.analyses.changes import Changes, changed, changes, fates, flows
from nats_transform.migration.analyses.collisions import Collisions, Explosion, count_distinct
from nats_transform.migration.analyses.consumers import Consumers
from nats_transform.migration.analyses.delivery import Delivery
from nats_transform.migration.analyses.features import Features
from nats_transform.migration.analyses.headers import Headers
from nats_transform.migration.analyses.hygiene import Hygiene, levels
from nats_transform.migration.analyses.leaf_nodes import mapped_twice
from nats_transform.migration.analyses.letter_case import LetterCase
from nats_transform.migration.analyses.limits import Limits
from nats_transform.migration.analyses.lints import Lints
from nats_transform.migration.analyses.partitions import Partitions, balances
from nats_transform.migration.analyses.rules import Rules
from nats_transform.migration.analyses.sharing import Sharing
from nats_transform.migration.analyses.trees import tree
from nats_transform.migration.analyses.way_back import WayBack
from nats_transform.migration.analysis import Analysis, Draft, count_ends
from nats_transform.migration.count import EXAMPLES, PARTS, Count, whole
from nats_transform.migration.database import Database
from nats_transform.migration.findings import ALL, STOPS_PLAN, Layer, MigrationFinding
from nats_transform.migration.layers import Layers, layers
from nats_transform.migration.question import Question
from nats_transform.migration.result import DryRun
from nats_transform.migration.tables.census import CensusPart
from nats_transform.migration.tables.outcomes import Outcomes
from nats_transform.streams.features import HEADERS, SCHEDULE_HEADERS

ANALYSES: tuple[Analysis, ...] = (
    Changes(),
    Collisions(),
    Explosion(),
    WayBack(),
    Delivery(),
    Features(),
    Headers(),
    Limits(),
    Consumers(),
    Sharing(),
    Access(),
    Partitions(),
    Rules(),
    Hygiene(),
    LetterCase(),
    Lints(),
)
"""All analyses. A new analysis needs a module of its own and a line here."""


def dry_run(census: Iterable[CensusPart], question: Question, folder: Path) -> DryRun:
    """What a candidate would do to the subjects of a census.

    Args:
        census: the parts of the census. A subject has all its rows in the same part.
        question: the mappings to compare, and what depends on the subjects.
        folder: an empty folder, which keeps the tables.

    Raises:
        KernelUnavailable: the compiled kernel is missing.
    """
    named = _named(question, folder)
    asked = layers(question)
    questions = tuple(asked.questions.values())
    outcomes = Outcomes(questions, folder)
    outcomes.write(census)
    database = Database(folder, questions, tuple(outcomes.ways.shares), outcomes.has_capitals)
    try:
        analyses = count_ends(database, ANALYSES)
        twice = list(_mapped_twice(database, question, folder))
        for findings in named.values():
            findings += twice
        return _result(database, outcomes, analyses, asked, named)
    finally:
        database.close()


def _named(question: Question, folder: Path) -> dict[Layer, list[Draft]]:
    """The findings about subjects that headers name, which are a census of their own."""
    mappings = Question(question.candidate, question.current, clusters=question.clusters)
    named: dict[Layer, list[Draft]] = {Layer.NOW: [], Layer.BOTH: []}
    for number, (header, part) in enumerate(question.named.items()):
        place = folder / f"named-{number}"
        place.mkdir()
        code = "schedule-target-moves" if header in SCHEDULE_HEADERS else "header-not-mapped"
        about = code, f"header {shown(header)}", HEADERS[code]
        schedulers = tuple(stream for stream in question.streams if stream.allow_msg_schedules)
        if header in SCHEDULE_HEADERS and schedulers:
            # A scheduler publishes into its own stream, whose transform applies.
            outcome = dry_run([part], replace(mappings, streams=schedulers), place)
            for finding in outcome.findings:
                if finding.code == "schedule-not-mapped":
                    count = Count(
                        round(finding.messages * PARTS), finding.subjects, finding.examples
                    )
                    named[Layer.NOW].append((*about, count))
                    named[Layer.BOTH] += [(*about, count)] if finding.stops_plan else []
        elif (outcome := dry_run([part], mappings, place)).changed_subjects:
            examples = [example for change in outcome.changes for example in change.examples]
            examples.sort(key=lambda example: -example.messages)
            parts = round(outcome.changed_messages * PARTS)
            count = Count(parts, outcome.changed_subjects, tuple(examples[:EXAMPLES]))
            for layer in named:
                named[layer].append((*about, count))
    return named


def _mapped_twice(database: Database, question: Question, folder: Path) -> Iterator[Draft]:
    """The findings about messages that pass a leaf node connection."""
    if question.leaf_node is None:
        return
    place = folder / "leaf-node"
    place.mkdir()
    yield from mapped_twice(
        database, question.leaf_node, lambda part, asked: dry_run([part], asked, place)
    )


def _result(
    database: Database,
    outcomes: Outcomes,
    analyses: Sequence[Analysis],
    asked: Layers,
    named: Mapping[Layer, Sequence[Draft]],
) -> DryRun:
    different, distinct = changed(database), database.once(count_distinct)
    before, after = fates(database)
    findings = list(_findings(database, analyses, asked, outcomes.messages, named))
    all_flows = flows(database)  # they need what the findings have counted
    order = list(Layer)
    findings.sort(
        key=lambda f: (order.index(f.layer), f.severity.rank, -f.messages, f.code, f.about)
    )
    return DryRun(
        messages=outcomes.messages,
        subjects=outcomes.subjects,
        changed_messages=whole(different.parts),
        changed_subjects=different.subjects,
        subjects_before=distinct.before,
        subjects_after=distinct.after,
        bytes=outcomes.bytes,
        clusters=database.clusters(),
        fates_before=before,
        fates_after=after,
        findings=tuple(finding for finding in findings if finding.layer is Layer.NOW),
        with_room=tuple(finding for finding in findings if finding.layer is not Layer.NOW),
        changes=changes(database, outcomes.messages),
        flows=all_flows,
        trees=(
            tree(database, "before", outcomes.subjects),
            tree(database, "after", outcomes.subjects),
        ),
        partitions=balances(database),
        levels=levels(database, outcomes.forms.most_tokens),
        reverse=tuple(reversed_mappings(database.questions[0].candidate.mappings).mappings),
        is_reversible=not database.counts(WayBack.name),
    )


def _findings(
    database: Database,
    analyses: Sequence[Analysis],
    asked: Layers,
    messages: int,
    named: Mapping[Layer, Sequence[Draft]],
) -> Iterator[MigrationFinding]:
    """The findings, those of a layer only if no layer before it has them."""
    always = [f for a in analyses if not a.is_layered for f in a.findings(database, 0)]
    also = {finding[:2] for finding in always}
    always += (finding for finding in _obstacles(asked, Layer.NOW) if finding[:2] not in also)
    by_layer = {
        layer: [f for a in analyses if a.is_layered for f in a.findings(database, number)]
        for number, layer in enumerate(Layer)
    }
    for layer in (Layer.ROOM, Layer.BOTH):
        by_layer[layer] += (*_obstacles(asked, layer), *named.get(layer, ()))
    lasting = {finding[:2] for finding in (*always, *by_layer[Layer.BOTH])}
    by_layer[Layer.NOW] += (*always, *named[Layer.NOW])
    known: set[tuple[str, str]] = set()
    for layer, here in by_layer.items():
        for code, about, message, count in here:
            severity = ALL[code].severity
            stops = severity is Severity.ERROR or code in STOPS_PLAN
            is_new = (code, about) not in known
            if layer is Layer.NOW or (
                is_new and (stops if layer is Layer.BOTH else severity is not Severity.INFO)
            ):
                yield MigrationFinding(
                    code,
                    about,
                    message,
                    whole(count.parts),
                    count.subjects,
                    100 * count.parts / max(1, messages * PARTS),
                    count.examples,
                    layer,
                    stops and (code, about) in lasting,
                )
        known |= {finding[:2] for finding in here}


def _obstacles(asked: Layers, layer: Layer) -> Iterator[Draft]:
    return ((*obstacle[:3], Count()) for obstacle in asked.obstacles[layer])
