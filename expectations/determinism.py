"""Whether the same messages, mappings and seed give the same rows, whoever computes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from expectations.expectation import Expectation, Judgement, Row, count
from expectations.measures.transformed import TransformedMeasures
from nats_transform import AccountMappings


@dataclass(frozen=True)
class ExpectTheSameDigest(Expectation):
    """The rows have the digest that they had before.

    Args:
        digest: the digest of all columns, as 16 hexadecimal digits.
    """

    digest: str

    shown = ("digest",)
    statement = "The rows have the digest $digest, like an earlier run over the same input."
    reason = (
        "The same messages, mappings and seed must give the same rows, however the work is divided."
    )

    def judge(self, measures: TransformedMeasures) -> Judgement:
        found = measures.digest
        digest = str(found)
        observed = f"digest {digest}"
        if digest != self.digest:
            observed += f", but an earlier run over the same input computed {self.digest}"
        details = {"rows": found.rows, "digest": digest}
        return Judgement(digest == self.digest, observed, details=details)


@dataclass(frozen=True)
class _OutcomeExpectation(Expectation):
    """An expectation about outcomes.

    Args:
        mappings: those that wrote the rows.
        seed: the seed of the draws.
    """

    mappings: AccountMappings
    seed: int = 0

    shown = ("seed",)

    def _differing(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Those of some rows that the scalar library makes otherwise, and how."""
        for row in rows:
            outcome = self.mappings.replay(
                row["subject"], row["cluster"], stream=row["stream"], seq=row["seq"], seed=self.seed
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


@dataclass(frozen=True)
class ExpectEveryOutcomeToAgree(_OutcomeExpectation):
    """Mapping, draw, destination and new subject of every row are found again by other code."""

    statement = (
        "Code other than the kernel's, with seed $seed, finds the mapping, draw, destination and "
        "new subject that were written for every message."
    )
    reason = "A sample would miss one wrong message among millions."

    def judge(self, measures: TransformedMeasures) -> Judgement:
        different = measures.flag("different")
        messages = count(measures.archive.rows, "message")
        if not different.rows:
            return Judgement(True, f"the outcomes of {messages} agree")
        return Judgement(
            False,
            f"{different.rows:,} of {messages} with an outcome that their mapping doesn't "
            "give them",
            # What both ways agree on is no example, but the row is.
            tuple(self._differing(different.examples)) or different.examples,
            details={"rows": different.rows},
        )


@dataclass(frozen=True)
class ExpectScalarReplayToAgree(_OutcomeExpectation):
    """The scalar library, other code than the kernel, gives a sample the same outcomes."""

    statement = (
        "The library maps a sample of the messages again, one by one with seed $seed, and gets "
        "the outcomes that were written."
    )
    reason = (
        "Two implementations of nats-server's rules are unlikely to share a mistake. Each run "
        "replays different messages."
    )

    def judge(self, measures: TransformedMeasures) -> Judgement:
        examples = tuple(self._differing(measures.sample))
        replayed = len(measures.sample)
        observed = f"{replayed:,} of {count(measures.archive.rows, 'message')} replayed"
        if examples:
            observed += f", {len(examples):,} come out differently"
        # Messages, and none of them looked at, would prove nothing.
        success = not examples and (replayed > 0 or not measures.archive.rows)
        details = {"replayed": replayed, "differ": len(examples)}
        return Judgement(success, observed, examples, details=details)
