"""`nats-transform compare`: what becomes of the same messages in two states of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.command import job_command
from cli.output import print_line, print_table
from nats_transform.errors import shown
from nats_transform.words import and_more, plural

if TYPE_CHECKING:
    from jobs.compare import CompareResult, Outcome
    from jobs.settings.branches import CompareSettings

_CHANGES = 20


@job_command(
    "compare",
    exit_codes="0 they are compared; 1 they differ, and --fail-on asks for that; 2 they cannot be "
    "compared, and the line on stderr says why.",
    json="before, after, shared, equal, digest, moved, moved_subjects, examples, fates, changes.",
)
def command(result: CompareResult, settings: CompareSettings) -> None:
    """Compare two states of the transformed messages, before consumers see the new one.

    A state is a branch, the id of a snapshot, or a mapping version: the rows that it made, the
    newest of each day. Messages are compared by sequence: fate, mapping, destination and new
    subject. Days that both states share are counted and not read.

    \b
    Examples:
      nats-transform compare main next
      nats-transform compare main next --stream ORDERS --day 2026-11-02 --fail-on moved
      nats-transform compare c31eab66 next --json
    """
    for state in (result.before, result.after):
        versions = ", ".join(version[:12] for version in state.mapping_versions) or "none"
        print_line(f"{state.name}: {plural(state.messages, 'message')}, mapping version {versions}")
    print_line(
        f"{plural(result.shared, 'message')} in files of both, {result.equal:,} more are equal "
        f"(digest {result.digest}), {result.changed:,} differ"
    )
    subjects = plural(result.moved_subjects, "subject")
    print_line(f"{plural(result.moved, 'message')} of {subjects} have another new subject, or none")
    print_table(
        [(fate, f"{old:,}", f"{new:,}") for fate, (old, new) in result.fates.items()],
        head=("of the messages that were read", "before", "after"),
        right=[1, 2],
    )
    for change in result.differences[:_CHANGES]:
        same = change.before == change.after
        then = "the same, with another subject" if same else _outcome(change.after)
        print_line(f"{plural(change.messages, 'message')}: {_outcome(change.before)} -> {then}")
    if (left_out := len(result.differences) - _CHANGES) > 0:
        print_line(f"see --json for the others{and_more(left_out)}")
    for move in result.examples:
        subject, old, new = (
            "none" if subject is None else shown(subject)
            for subject in (move.subject, move.before, move.after)
        )
        print_line(f"{subject}: {old} -> {new} ({plural(move.messages, 'message')})", indent=2)


def _outcome(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not in the table"
    rule = [shown(part) for part in (outcome.source, outcome.destination) if part is not None]
    return " ".join([outcome.fate or "", *([f"({' -> '.join(rule)})"] if rule else [])])
