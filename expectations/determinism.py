"""Whether messages, mappings and seed give the rows that were written, by other code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from expectations.aggregates import no_row
from expectations.expectation import Expectation, Judgement, Row
from expectations.measures.transformed import TransformedMeasures
from nats_transform import AccountMappings
from nats_transform.words import plural

_OUTCOME = ("mapped_subject", "fate", "mapping_source", "mapping_destination", "draw", "reason")
"""The columns of what an `Outcome` says, in its order."""


def every_outcome(mappings: AccountMappings, seed: int = 0) -> Expectation:
    """Mapping, draw, destination and new subject of every row are found again by other code."""
    return no_row(
        "ExpectEveryOutcomeToAgree", "determinism", "different",
        f"Code other than the kernel's, with seed {seed}, finds the mapping, draw, destination and "
        "new subject that were written for every message.",
        "A sample would miss one wrong message among millions.",
        "with an outcome that its mapping doesn't give it",
        # What both ways agree on is no example, but the row is.
        explain=lambda rows: _differing(rows, mappings, seed) or rows,
    )  # fmt: skip


def scalar_replay(mappings: AccountMappings, seed: int = 0) -> Expectation:
    """The scalar library, other code than the kernel, gives a sample the same outcomes."""

    def judge(measures: TransformedMeasures) -> Judgement:
        examples = _differing(measures.sample, mappings, seed)
        replayed = len(measures.sample)
        observed = f"{replayed:,} of {plural(measures.archive.rows, 'message')} replayed"
        if examples:
            observed += f", {len(examples):,} come out differently"
        # Messages, and none of them looked at, would prove nothing.
        success = not examples and (replayed > 0 or not measures.archive.rows)
        return Judgement(success, observed, examples)

    return Expectation(
        "ExpectScalarReplayToAgree", "determinism",
        f"The library maps a sample of the messages again, one by one with seed {seed}, and gets "
        "the outcomes that were written.",
        "Two implementations of nats-server's rules are unlikely to share a mistake. Each run "
        "replays different messages.",
        judge,
    )  # fmt: skip


def _differing(rows: Iterable[Row], mappings: AccountMappings, seed: int) -> Sequence[Row]:
    """Those of some rows that the scalar library makes otherwise, and how."""
    examples = []
    for row in rows:
        of_message = {name: row[name] for name in ("stream", "seq", "subject", "cluster")}
        outcome = mappings.replay(
            row["subject"], row["cluster"], stream=row["stream"], seq=row["seq"], seed=seed
        )
        differs = {
            key: value
            for name, expected in zip(_OUTCOME, outcome, strict=True)
            if row[name] != expected
            for key, value in ((name, row[name]), (f"expected {name}", expected))
        }
        if differs:
            examples.append(of_message | differs)
    return examples
