"""Whether the same messages, mappings and seed give the same rows, whoever computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from expectations.expectation import Expectation, Judgement, count
from expectations.mappings import as_mappings
from expectations.measures.transformed import TransformedMeasures


@dataclass(frozen=True)
class ExpectTheSameDigest(Expectation):
    """The rows have the digest that they had before.

    Args:
        digest: the digest of all columns, as 16 hexadecimal digits.
        origin: a few words that say where the digest is from.
    """

    digest: str
    origin: str

    shown = ("digest", "origin")
    statement = "The rows that are read back have the digest $digest, as computed by $origin."
    reason = (
        "The same messages, mappings and seed must give the same rows, however work is divided."
    )

    def judge(self, measures: TransformedMeasures) -> Judgement:
        found = measures.table
        digest = str(found)
        observed = f"digest {digest}"
        if digest != self.digest:
            observed += f", but {self.origin} computed {self.digest}"
        details = {"rows": found.rows, "digest": digest}
        return Judgement(digest == self.digest, observed, details=details)


@dataclass(frozen=True)
class ExpectScalarReplayToAgree(Expectation):
    """The scalar library, other code than the kernel, gives a sample the same outcomes.

    Args:
        mappings: those that wrote the rows, as `expectations.mappings.as_plain` gives them.
        seed: the seed of the draws.
    """

    mappings: list[dict[str, Any]]
    seed: int = 0

    shown = ("seed",)
    statement = (
        "A sample of the messages, mapped again one by one by the library with seed $seed, gets "
        "the outcomes that were written."
    )
    reason = "Two implementations of nats-server's rules are unlikely to be wrong in the same way."

    def judge(self, measures: TransformedMeasures) -> Judgement:
        mappings = as_mappings(self.mappings)
        examples = []
        for row in measures.sample:
            outcome = mappings.replay(
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
                examples.append(example)
        replayed = len(measures.sample)
        observed = f"{replayed:,} of {count(measures.archive.rows, 'message')} replayed"
        if examples:
            observed += f", {len(examples):,} come out differently"
        # Messages, and none of them looked at, would prove nothing.
        success = not examples and (replayed > 0 or not measures.archive.rows)
        details = {"replayed": replayed, "differ": len(examples)}
        return Judgement(success, observed, examples, details=details)
