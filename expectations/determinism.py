"""The same messages, mappings and seed give the same rows, whoever computes them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from expectations.mappings import as_mappings
from expectations.measured import TRANSFORMED, Judgement, MeasuredExpectation, Row, count
from expectations.measures import TransformedMeasures
from nats_transform import AccountMappings
from nats_transform import spark as compiled
from nats_transform.subject import decode, encode


class ExpectTheSameDigest(MeasuredExpectation):
    """The rows have the digest that they had before.

    Args:
        digest: of all columns: what the job saw while it wrote, or an earlier run published.
        origin: whose digest that is, in a few words.
    """

    digest: str
    origin: str = "the job that wrote them"

    metric_dependencies = (TRANSFORMED,)
    success_keys = ("digest", "origin")
    shown = ("digest", "origin")
    statement = "The rows as they are read have the digest $digest of $origin."
    reason = "The same messages, mappings and seed must give the same rows, however they are cut."

    def judge(self, measures: TransformedMeasures) -> Judgement:
        found = measures.table
        details = {"rows": found.rows, "digest": found.digest}
        if found.digest is None and found.rows:
            return Judgement(False, "the rows were not hashed", details=details)
        return Judgement(found.digest == self.digest, f"digest {found.digest}", details=details)


class _ExpectOutcomesToAgree(MeasuredExpectation):
    """A sample of the rows has the outcomes that a path gives it.

    Args:
        mappings: the rows were written with, as `expectations.mappings.as_plain` gives them.
        seed: that the draws depend on.
    """

    mappings: list[dict[str, Any]]
    seed: int = 0

    metric_dependencies = (TRANSFORMED,)
    success_keys = ("mappings", "seed")
    shown = ("seed",)

    @abstractmethod
    def again(self, mappings: AccountMappings, measures: TransformedMeasures) -> list[Row]:
        """The columns of the outcome of each message in the sample, in the sample's order."""

    def judge(self, measures: TransformedMeasures) -> Judgement:
        sample = measures.sample
        examples = []
        outcomes = self.again(as_mappings(self.mappings), measures)
        for row, outcome in zip(sample, outcomes, strict=True):
            differs = {name: value for name, value in outcome.items() if row[name] != value}
            if differs:
                shown = {f"expected {name}": value for name, value in differs.items()}
                examples.append({**row, **shown})
        observed = f"{len(sample):,} of {count(measures.archive.rows, 'message')} computed again"
        if examples:
            observed += f", {len(examples):,} come out differently"
        # Messages, and none of them looked at, would prove nothing.
        success = not examples and (bool(sample) or not measures.archive.rows)
        details = {"computed_again": len(sample), "differ": len(examples)}
        return Judgement(success, observed, examples, details=details)


class ExpectRecomputationToAgree(_ExpectOutcomesToAgree):
    """Spark gives a sample of the rows the same outcomes again; args as above."""

    statement = "Computed again by Spark with seed $seed, a sample has the outcomes written."
    reason = "An outcome that depends on more than message, mapping and seed cannot be explained."

    def again(self, mappings: AccountMappings, measures: TransformedMeasures) -> list[Row]:
        def column(name: str) -> pa.Array:
            texts = [None if (text := row[name]) is None else encode(text) for row in sample]
            return pa.array(texts, pa.binary())

        sample = measures.sample
        rows = measures.spark.createDataFrame(
            pa.table(
                {
                    **{name: column(name) for name in ("stream", "subject", "cluster")},
                    "seq": pa.array([row["seq"] for row in sample], pa.int64()),
                    "place": pa.array(range(len(sample)), pa.int64()),
                }
            )
        )
        # Text went as binary, so that it need not be UTF-8, and comes back like that.
        names = {name: F.col(name).cast("string") for name in ("stream", "cluster")}
        found = compiled.apply(mappings, rows.withColumns(names), seed=self.seed)
        columns = compiled.OUTPUT.names
        texts = {name: F.col(name).cast("binary") for name in columns if name != "draw"}
        return [
            {name: _text(row[name]) for name in columns}
            for row in sorted(found.withColumns(texts).collect(), key=lambda row: int(row["place"]))
        ]


def _text(cell: Any) -> Any:
    return decode(bytes(cell)) if isinstance(cell, bytes | bytearray) else cell


class ExpectScalarReplayToAgree(_ExpectOutcomesToAgree):
    """The scalar path, which is other code, gives a sample the same outcomes; args as above."""

    statement = "Replayed by the scalar path with seed $seed, a sample has the outcomes written."
    reason = "Two implementations of nats-server's rules that agree are not wrong by accident."

    def again(self, mappings: AccountMappings, measures: TransformedMeasures) -> list[Row]:
        rows: list[Row] = []
        for row in measures.sample:
            outcome = mappings.replay(
                row["subject"], row["cluster"], stream=row["stream"], seq=row["seq"], seed=self.seed
            )
            rows.append(
                {
                    "mapped_subject": outcome.subject,
                    "fate": outcome.fate.value,
                    "reason": outcome.reason,
                    "mapping_source": outcome.mapping_source,
                    "mapping_destination": outcome.mapping_destination,
                    "draw": outcome.draw,
                }
            )
        return rows
