"""Whether messages, mappings and seed give the rows that were written, by other code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from expectations.expectation import Expectation, Judgement, Row
from expectations.measures.transformed import TransformedMeasures
from nats_transform import AccountMappings
from nats_transform.words import plural


def every_outcome(mappings: AccountMappings, seed: int = 0) -> Expectation:
    """Mapping, draw, destination and new subject of every row are found again by other code."""

    def judge(measures: TransformedMeasures) -> Judgement:
        different = measures.flag("different")
        messages = plural(measures.archive.rows, "message")
        if not different.rows:
            return Judgement(True, f"the outcomes of {messages} agree")
        return Judgement(
            False,
            f"{different.rows:,} of {messages} with an outcome that their mapping doesn't "
            "give them",
            # What both ways agree on is no example, but the row is.
            [*_differing(different.examples, mappings, seed)] or different.examples,
            broken=measures.broken("different"),
        )

    return Expectation(
        "ExpectEveryOutcomeToAgree", "determinism",
        f"Code other than the kernel's, with seed {seed}, finds the mapping, draw, destination and "
        "new subject that were written for every message.",
        "A sample would miss one wrong message among millions.",
        judge, column="different",
    )  # fmt: skip


def scalar_replay(mappings: AccountMappings, seed: int = 0) -> Expectation:
    """The scalar library, other code than the kernel, gives a sample the same outcomes."""

    def judge(measures: TransformedMeasures) -> Judgement:
        examples = [*_differing(measures.sample, mappings, seed)]
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


def _differing(rows: Iterable[Row], mappings: AccountMappings, seed: int) -> Iterator[Row]:
    """Those of some rows that the scalar library makes otherwise, and how."""
    for row in rows:
        outcome = mappings.replay(
            row["subject"], row["cluster"], stream=row["stream"], seq=row["seq"], seed=seed
        )
        expected = {
            "mapped_subject": outcome.subject,
            "fate": outcome.fate.value,
            "reason": outcome.reason,
            "mapping_source": outcome.mapping_source,
            "mapping_destination": outcome.mapping_destination,
            "draw": outcome.draw,
        }
        differs = {name: value for name, value in expected.items() if row[name] != value}
        if differs:
            example = {name: row[name] for name in ("stream", "seq", "subject", "cluster")}
            for name, value in differs.items():
                example |= {name: row[name], f"expected {name}": value}
            yield example
