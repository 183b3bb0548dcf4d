"""Great Expectations for the tables: what must hold, and the evidence that it does.

`measures` reads a table in one pass, and `measured` gives the result to Great Expectations. One
module for each topic judges it (`conservation`, `completeness`, `subjects`, `determinism`,
`weights`, `partitions`). `suites` lists the expectations of each table, and `validation` runs them.

Importing this package loads neither Spark nor Great Expectations; its modules do.
"""
