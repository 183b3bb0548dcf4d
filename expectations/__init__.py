"""Great Expectations for the tables: what must hold, and the evidence that it does.

`measures` reads a table in one pass, `metrics` gives what it found to Great Expectations, one
module a subject judges it (`conservation`, `completeness`, `subjects`, `determinism`, `weights`,
`partitions`), `suites` puts the expectations of a table together and `validation` runs them.

Importing this package loads neither Spark nor Great Expectations; its modules do.
"""
